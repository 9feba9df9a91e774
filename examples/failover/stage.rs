//! The servers: a master, two replicas, and three sentinels that watch them.

use std::collections::HashMap;
use std::time::Duration;

use lock_examples::{Outcome, PrivateServer};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, InfoDict, PushInfo, PushKind};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use crate::line::{Micros, now};

const MASTER: &str = "mymaster";
/// A replica asks for its first copy at once, not after 5 s.
const SERVER: &str = "repl-diskless-sync-delay 0\n";
const SENTINEL: &str = "\
sentinel down-after-milliseconds mymaster 500
sentinel failover-timeout mymaster 3000
sentinel parallel-syncs mymaster 1
";
/// Maximum wait for anything that servers or workers are to do.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) servers: Vec<PrivateServer>,
    sentinels: Vec<PrivateServer>,
    /// When a sentinel said `+switch-master`.
    pub(crate) switches: UnboundedReceiver<Micros>,
    _subscriptions: Vec<MultiplexedConnection>,
}

impl Stage {
    pub(crate) async fn build() -> Outcome<Self> {
        let mut servers = vec![PrivateServer::start_with(SERVER)?];
        let master = servers[0].port();
        for _ in 0..2 {
            servers.push(PrivateServer::start_with(&replica_of(master))?);
        }
        let (sender, switches) = unbounded_channel();
        let (mut sentinels, mut subscriptions) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let config = format!("sentinel monitor {MASTER} 127.0.0.1 {master} 2\n{SENTINEL}");
            let sentinel = PrivateServer::start_sentinel(&config)?;
            subscriptions.push(subscribe(sentinel.port(), sender.clone()).await?);
            sentinels.push(sentinel);
        }
        Ok(Self {
            servers,
            sentinels,
            switches,
            _subscriptions: subscriptions,
        })
    }

    /// The URL by which clients find the master.
    pub(crate) fn url(&self) -> String {
        let address = |sentinel: &PrivateServer| format!("127.0.0.1:{}", sentinel.port());
        let addresses: Vec<_> = self.sentinels.iter().map(address).collect();
        format!("redis+sentinel://{}/{MASTER}", addresses.join(","))
    }

    /// Waits until the sentinels agree on a master, and the other servers are its replicas. Returns the number of the master.
    pub(crate) async fn in_step(&self) -> Outcome<usize> {
        within("the servers come into step", async {
            loop {
                // A server that does not answer is not in step.
                if let Ok(Some(master)) = self.look().await {
                    return master;
                }
                sleep(Duration::from_millis(100)).await;
            }
        })
        .await
    }

    async fn look(&self) -> Outcome<Option<usize>> {
        let mut named = Vec::new();
        for sentinel in &self.sentinels {
            let state = ask(sentinel.port(), &["SENTINEL", "MASTER", MASTER]).await?;
            let state: HashMap<String, String> = state;
            let facts = ["num-slaves", "num-other-sentinels", "flags"].map(|name| state.get(name));
            if facts.map(|fact| fact.map_or("", |fact| fact)) != ["2", "2", "master"] {
                return Ok(None);
            }
            named.push(state.get("port").and_then(|port| port.parse().ok()));
        }
        let is_master = |server: &PrivateServer| named == [Some(server.port()); 3];
        let Some(master) = self.servers.iter().position(is_master) else {
            return Ok(None);
        };
        let port = self.servers[master].port().to_string();
        for (number, server) in self.servers.iter().enumerate() {
            let info: InfoDict = ask(server.port(), &["INFO", "replication"]).await?;
            let has = |name, value: &str| info.get::<String>(name).is_some_and(|is| is == value);
            let in_step = if number == master {
                has("role", "master") && has("connected_slaves", "2")
            } else {
                has("master_port", &port) && has("master_link_status", "up")
            };
            if !in_step {
                return Ok(None);
            }
        }
        Ok(Some(master))
    }

    /// Tells a sentinel to fail over. It refuses while it has no replica that it knows well. Returns when the order was given that was
    /// accepted.
    pub(crate) async fn order_failover(&self) -> Outcome<Micros> {
        within("the sentinels accept a failover", async {
            loop {
                let at = now();
                let order = ["SENTINEL", "FAILOVER", MASTER];
                if let Ok(()) = ask(self.sentinels[0].port(), &order).await {
                    return at;
                }
                sleep(Duration::from_millis(500)).await;
            }
        })
        .await
    }
}

/// The configuration of a replica.
pub(crate) fn replica_of(master: u16) -> String {
    format!("{SERVER}replicaof 127.0.0.1 {master}\n")
}

/// Notes each time that this sentinel says `+switch-master`.
async fn subscribe(port: u16, switches: UnboundedSender<Micros>) -> Outcome<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
        if push.kind == PushKind::Message {
            switches.send(now())
        } else {
            Ok(())
        }
    });
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}?protocol=resp3"))?;
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connecting.await?;
    connection.subscribe("+switch-master").await?;
    Ok(connection)
}

pub(crate) async fn connect(port: u16) -> Outcome<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

/// Asks a server or a sentinel over a new connection.
pub(crate) async fn ask<T: FromRedisValue>(port: u16, words: &[&str]) -> Outcome<T> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    Ok(command.query_async(&mut connect(port).await?).await?)
}

/// `what` is what should happen in the meantime.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> Outcome<T> {
    let done = timeout(PATIENCE, work).await;
    Ok(done.map_err(|_| format!("it takes more than {PATIENCE:?} until {what}"))?)
}
