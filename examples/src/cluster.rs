use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use tokio::time::{sleep, timeout};

use crate::{Outcome, PrivateServer};

/// Maximum wait for anything that the servers are to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of a [`Cluster`].
#[derive(Debug)]
pub struct Node {
    /// Ended when dropped.
    pub server: PrivateServer,
    /// How the cluster calls it.
    pub id: String,
    /// To give it orders.
    pub connection: MultiplexedConnection,
    bus: u16,
}

/// A cluster of our own: three masters that share the slots, and a replica of each. It stores nothing.
#[derive(Debug)]
pub struct Cluster {
    /// First the masters, then the replicas in the same order.
    pub nodes: Vec<Node>,
}

impl Node {
    async fn start() -> Outcome<Self> {
        let bus = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let server = PrivateServer::start_with(&format!(
            "cluster-enabled yes\ncluster-node-timeout 500\ncluster-port {bus}\nrepl-diskless-sync-delay 0\n"
        ))?;
        let client = redis::Client::open(server.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let id = redis::cmd("CLUSTER")
            .arg("MYID")
            .query_async(&mut connection)
            .await?;
        Ok(Self {
            server,
            id,
            connection,
            bus,
        })
    }

    /// Sends a command, its words separated by spaces.
    ///
    /// # Errors
    ///
    /// What the server says, or that it does not answer.
    pub async fn ask<T: FromRedisValue>(&self, words: &str) -> Outcome<T> {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap_or_default());
        for word in words {
            command.arg(word);
        }
        Ok(command.query_async(&mut self.connection.clone()).await?)
    }
}

impl Cluster {
    /// How many masters it has.
    pub const MASTERS: usize = 3;
    /// How many slots they share.
    pub const SLOTS: usize = 16_384;

    /// Starts the servers, and returns once they all work together.
    ///
    /// # Errors
    ///
    /// A sentence that says what is missing.
    pub async fn build() -> Outcome<Self> {
        let mut nodes = Vec::new();
        for _ in 0..2 * Self::MASTERS {
            nodes.push(Node::start().await?);
        }
        let (port, bus) = (nodes[0].server.port(), nodes[0].bus);
        for (number, node) in nodes.iter().enumerate() {
            let _: () = node
                .ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1))
                .await?;
            if number < Self::MASTERS {
                let (first, end) = (
                    Self::SLOTS * number / Self::MASTERS,
                    Self::SLOTS * (number + 1) / Self::MASTERS,
                );
                let _: () = node
                    .ask(&format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1))
                    .await?;
            }
            let _: () = node
                .ask(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"))
                .await?;
        }
        for (number, node) in nodes.iter().enumerate().skip(Self::MASTERS) {
            let replicate = format!("CLUSTER REPLICATE {}", nodes[number - Self::MASTERS].id);
            until("a replica knows its master", async || {
                Ok(node.ask::<()>(&replicate).await.is_ok())
            })
            .await?;
        }
        for (number, node) in nodes.iter().enumerate() {
            until("the cluster is complete", async || {
                let info: String = node.ask("CLUSTER INFO").await?;
                let replication: String = node.ask("INFO replication").await?;
                let in_step =
                    number < Self::MASTERS || replication.contains("master_link_status:up");
                Ok(info.contains("cluster_state:ok") && in_step)
            })
            .await?;
        }
        Ok(Self { nodes })
    }

    /// Where it is, for `LockManager::connect`.
    #[must_use]
    pub fn url(&self) -> String {
        let address = |node: &Node| format!("127.0.0.1:{}", node.server.port());
        let addresses: Vec<_> = self.nodes.iter().map(address).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// Kills the first master by SIGKILL, and returns when its replica has taken over.
    ///
    /// # Errors
    ///
    /// Where no replica takes over.
    pub async fn kill_a_master(&mut self) -> Outcome {
        drop(self.nodes.remove(0));
        let replica = &self.nodes[Self::MASTERS - 1];
        until("the replica takes over", async || {
            let info: String = replica.ask("INFO replication").await?;
            Ok(info.contains("role:master"))
        })
        .await
    }

    /// Gives the master that took over a new replica, and returns when that is in step.
    ///
    /// # Errors
    ///
    /// Where that fails.
    pub async fn replace_the_killed(&mut self) -> Outcome {
        let (master, node) = (&self.nodes[Self::MASTERS - 1], Node::start().await?);
        let (port, bus) = (master.server.port(), master.bus);
        let _: () = node
            .ask(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"))
            .await?;
        let replicate = format!("CLUSTER REPLICATE {}", master.id);
        until("the new replica knows its master", async || {
            Ok(node.ask::<()>(&replicate).await.is_ok())
        })
        .await?;
        until("the new replica is in step", async || {
            let info: String = node.ask("INFO replication").await?;
            Ok(info.contains("master_link_status:up"))
        })
        .await?;
        self.nodes.push(node);
        Ok(())
    }
}

/// Waits until this is so.
///
/// # Errors
///
/// The first error on the way, or that it was in vain.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Outcome<bool>) -> Outcome {
    let waited = async {
        while !is_so().await? {
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    };
    let waited = timeout(PATIENCE, waited).await;
    waited.map_err(|_| format!("waited {PATIENCE:?} in vain: {what}"))?
}
