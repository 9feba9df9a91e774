//! A cluster of a test's own: masters, replicas, and slots that move.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::binary::ServerBinary;
use crate::kit::{command, try_command};
use crate::port::Port;
use crate::server::{TestServer, TestServerBuilder};
use crate::wait::{LIMIT, eventually};

/// Number of hash slots.
pub const SLOTS: u16 = 16_384;

/// A free port for the messages between nodes. The usual one may be in use.
#[derive(Debug)]
pub struct BusPort(Port);

impl BusPort {
    /// A port that was free just now, and that no other test gets while this value lives.
    #[must_use]
    pub fn free() -> Self {
        Self(Port::free())
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.0.number
    }
}

/// A node of a cluster.
#[derive(Debug)]
pub struct ClusterNode {
    /// Its server.
    pub server: TestServer,
    /// Its id in the cluster.
    pub id: String,
    bus: BusPort,
}

/// Masters that share the slots, and their replicas, on free loopback ports; ended on drop.
#[derive(Debug)]
pub struct TestCluster {
    /// First the masters, then the replicas of each in the same order.
    pub nodes: Vec<ClusterNode>,
    masters: usize,
    replicas: usize,
}

impl TestCluster {
    /// Starts this number of masters of the default server.
    ///
    /// # Panics
    ///
    /// When they do not start.
    pub async fn start(masters: usize) -> Self {
        Self::start_with(&ServerBinary::find(), masters, 0, &[]).await
    }

    /// Starts masters with `replicas` each, with these options of the servers.
    ///
    /// # Panics
    ///
    /// When they do not start.
    pub async fn start_with(
        binary: &ServerBinary,
        masters: usize,
        replicas: usize,
        options: &[(&str, &str)],
    ) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..masters * (1 + replicas) {
            nodes.push(ClusterNode::start(binary, options).await);
        }
        Self::of(nodes, masters, replicas).await
    }

    /// As [`start`](Self::start), and one more node, which serves no slots.
    ///
    /// # Panics
    ///
    /// When they do not start.
    pub async fn start_with_spare(masters: usize) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..=masters {
            nodes.push(ClusterNode::start(&ServerBinary::find(), &[]).await);
        }
        Self::of(nodes, masters, 0).await
    }

    /// The number of nodes that are no replicas.
    fn without_replicas(&self) -> usize {
        self.nodes.len() - self.masters * self.replicas
    }

    /// As [`start`](Self::start), each server as the builder says.
    ///
    /// # Panics
    ///
    /// When they do not start.
    pub async fn start_as(masters: usize, builder: impl Fn() -> TestServerBuilder) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..masters {
            nodes.push(ClusterNode::start_as(builder(), &[]).await);
        }
        Self::of(nodes, masters, 0).await
    }

    async fn of(nodes: Vec<ClusterNode>, masters: usize, replicas: usize) -> Self {
        let cluster = Self {
            nodes,
            masters,
            replicas,
        };
        cluster.join().await;
        cluster
    }

    async fn join(&self) {
        let first = &self.nodes[0];
        let (at, bus) = (first.server.addr(), first.bus.number());
        for (number, node) in self.nodes.iter().enumerate() {
            let server = &node.server;
            let () = command(server, &format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1)).await;
            if number < self.masters {
                let slots = slots_of(number, self.masters);
                let (from, to) = (slots.start, slots.end - 1);
                let () = command(server, &format!("CLUSTER ADDSLOTSRANGE {from} {to}")).await;
            }
            let () = command(
                server,
                &format!("CLUSTER MEET {} {} {bus}", at.ip(), at.port()),
            )
            .await;
        }
        for (number, node) in self.nodes.iter().enumerate().skip(self.without_replicas()) {
            let master = &self.nodes[number % self.masters].id;
            eventually("a replica knows its master", LIMIT, async || {
                let said = format!("CLUSTER REPLICATE {master}");
                try_command::<()>(&node.server, &said).await.is_ok()
            })
            .await;
        }
        for node in &self.nodes {
            eventually("the cluster is complete", LIMIT, async || {
                let info: String = command(&node.server, "CLUSTER INFO").await;
                let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
                info.contains("cluster_state:ok") && info.contains(&known)
            })
            .await;
        }
        for (number, replica) in self.nodes.iter().enumerate().skip(self.without_replicas()) {
            let master = &self.nodes[number % self.masters];
            eventually("a replica is in step", LIMIT, async || {
                let info: String = command(&replica.server, "INFO replication").await;
                let slots: String = command(&master.server, "CLUSTER NODES").await;
                info.contains("master_link_status:up") && slots.contains(&replica.id)
            })
            .await;
        }
    }

    /// Takes a node that belongs to no cluster into this one.
    ///
    /// # Panics
    ///
    /// When it does not become a node.
    pub async fn meet(&self, node: &ClusterNode) {
        let first = &self.nodes[0];
        let (at, bus) = (first.server.addr(), first.bus.number());
        let meet = format!("CLUSTER MEET {} {} {bus}", at.ip(), at.port());
        let () = command(&node.server, &meet).await;
        eventually("the node knows the cluster", LIMIT, async || {
            let slots: String = command(&node.server, "CLUSTER NODES").await;
            self.masters().iter().all(|one| slots.contains(&one.id))
        })
        .await;
    }

    /// A URL that names all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|node| node.server.addr().to_string())
            .collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// The masters as they were at the start.
    #[must_use]
    pub fn masters(&self) -> &[ClusterNode] {
        &self.nodes[..self.masters]
    }

    /// The number of the master that had this slot at the start.
    #[must_use]
    pub fn master_of(&self, slot: u16) -> usize {
        (0..self.masters)
            .find(|number| slots_of(*number, self.masters).contains(&slot))
            .unwrap_or_default()
    }

    /// The slot of a key, as the servers say.
    pub async fn slot_of(&self, key: &str) -> u16 {
        command(&self.nodes[0].server, &format!("CLUSTER KEYSLOT {key}")).await
    }

    /// A tag in a slot that was this master's at the start.
    ///
    /// # Panics
    ///
    /// When a server does not answer.
    pub async fn tag_on(&self, master: usize) -> String {
        for number in 0.. {
            let tag = format!("tag-{number}");
            if self.master_of(self.slot_of(&tag).await) == master {
                return tag;
            }
        }
        unreachable!("there are more numbers than slots")
    }

    /// The first replica of a master.
    #[must_use]
    pub fn replica_of(&self, master: usize) -> &TestServer {
        &self.nodes[self.without_replicas() + master].server
    }

    /// Waits until the replica has all that its master has done so far.
    pub async fn in_step(&self, master: usize) {
        let offset = async |server: &TestServer, name: &str| {
            let info: String = command(server, "INFO replication").await;
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|offset| offset.parse::<u64>().ok())
                .unwrap_or_default()
        };
        let written = offset(&self.nodes[master].server, "master_repl_offset:").await;
        eventually("the replica is in step", LIMIT, async || {
            offset(self.replica_of(master), "slave_repl_offset:").await >= written
        })
        .await;
    }

    /// From now on the replica hears nothing of its master: it is stopped, and its connection is cut.
    ///
    /// # Panics
    ///
    /// When there is no such connection.
    pub async fn cut_off(&self, master: usize) {
        self.in_step(master).await;
        self.replica_of(master).stop();
        let cut: u64 = command(&self.nodes[master].server, "CLIENT KILL TYPE replica").await;
        assert_eq!(cut, 1);
    }

    /// Waits until the replica of this master has taken over, and the other masters know it.
    pub async fn taken_over(&self, master: usize) {
        eventually("the replica takes over", LIMIT, async || {
            let info: String = command(self.replica_of(master), "INFO replication").await;
            info.contains("role:master")
        })
        .await;
        let id = &self.nodes[self.without_replicas() + master].id;
        for other in (0..self.masters).filter(|other| *other != master) {
            eventually("another master knows it", LIMIT, async || {
                let nodes: String = command(&self.nodes[other].server, "CLUSTER NODES").await;
                let new = nodes.lines().find(|line| line.starts_with(id.as_str()));
                new.is_some_and(|line| line.contains("master") && line.contains(" connected "))
            })
            .await;
        }
    }

    /// Begins to move a slot in the old way: its keys may be moved one by one from now on.
    ///
    /// # Panics
    ///
    /// When a server refuses.
    pub async fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let () = command(
            &target.server,
            &format!("CLUSTER SETSLOT {slot} IMPORTING {}", source.id),
        )
        .await;
        let () = command(
            &source.server,
            &format!("CLUSTER SETSLOT {slot} MIGRATING {}", target.id),
        )
        .await;
    }

    /// Moves these keys, if they exist.
    ///
    /// # Panics
    ///
    /// When a server refuses.
    pub async fn move_keys(&self, keys: &[String], from: usize, to: usize) {
        if keys.is_empty() {
            return;
        }
        let target = self.nodes[to].server.addr();
        let mut migrate = redis::cmd("MIGRATE");
        migrate
            .arg(target.ip().to_string())
            .arg(target.port())
            .arg("")
            .arg(0)
            .arg(5000);
        migrate.arg("KEYS").arg(keys);
        let _: String = crate::admin::ask(self.nodes[from].server.addr(), &migrate).await;
    }

    /// The keys of a slot at this node.
    pub async fn keys_in(&self, slot: u16, node: usize) -> Vec<String> {
        command(
            &self.nodes[node].server,
            &format!("CLUSTER GETKEYSINSLOT {slot} 1000"),
        )
        .await
    }

    /// Ends the move of a slot.
    ///
    /// # Panics
    ///
    /// When a server refuses.
    pub async fn end_move(&self, slot: u16, from: usize, to: usize) {
        let set = format!("CLUSTER SETSLOT {slot} NODE {}", self.nodes[to].id);
        let others = (0..self.masters).filter(|node| *node != to && *node != from);
        for node in [to, from].into_iter().chain(others) {
            // Another master learns it by itself as well, and may be down.
            let said = try_command::<()>(&self.nodes[node].server, &set).await;
            assert!(said.is_ok() || (node != to && node != from), "{said:?}");
        }
        // Where a node has not heard of the other's epoch, the next move could be undone.
        eventually("both nodes agree on the slot", LIMIT, async || {
            let epochs = (self.epoch(from).await, self.epoch(to).await);
            epochs.0 == epochs.1 && self.owns(to, slot).await && !self.owns(from, slot).await
        })
        .await;
    }

    /// The epoch of the cluster, as a node knows it.
    async fn epoch(&self, node: usize) -> u64 {
        let info: String = command(&self.nodes[node].server, "CLUSTER INFO").await;
        let epoch = info
            .lines()
            .find_map(|line| line.strip_prefix("cluster_current_epoch:"));
        epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0)
    }

    /// Whether a node says that it has this slot.
    pub async fn owns(&self, node: usize, slot: u16) -> bool {
        let nodes: String = command(&self.nodes[node].server, "CLUSTER NODES").await;
        let myself = nodes.lines().find(|line| line.contains("myself"));
        let ranges = myself.into_iter().flat_map(|line| line.split(' ').skip(8));
        ranges.into_iter().any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.parse::<u16>(), last.parse::<u16>());
            matches!((first, last), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
        })
    }

    /// Moves a slot with its keys in the old way.
    ///
    /// # Panics
    ///
    /// When a server refuses.
    pub async fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to).await;
        loop {
            let keys = self.keys_in(slot, from).await;
            if keys.is_empty() {
                break;
            }
            self.move_keys(&keys, from, to).await;
        }
        self.end_move(slot, from, to).await;
    }

    /// A cluster of three that the tests of a process share while any of them uses it.
    pub async fn shared() -> Arc<Self> {
        static SHARED: tokio::sync::Mutex<std::sync::Weak<TestCluster>> =
            tokio::sync::Mutex::const_new(std::sync::Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(cluster) = shared.upgrade() {
            return cluster;
        }
        let cluster = Arc::new(Self::start(3).await);
        *shared = Arc::downgrade(&cluster);
        cluster
    }
}

impl ClusterNode {
    async fn start(binary: &ServerBinary, options: &[(&str, &str)]) -> Self {
        let builder = TestServer::builder().binary(binary.path());
        Self::start_as(builder, options).await
    }

    async fn start_as(builder: TestServerBuilder, options: &[(&str, &str)]) -> Self {
        let bus = BusPort::free();
        let mut builder = builder
            .arg("--cluster-enabled", "yes")
            .arg("--cluster-port", &bus.number().to_string())
            .arg("--cluster-node-timeout", "500");
        for (name, value) in options {
            builder = builder.arg(name, value);
        }
        let server = builder.start().await;
        let id = command(&server, "CLUSTER MYID").await;
        Self { server, id, bus }
    }

    /// Host and port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }
}

/// The slots of one of several masters.
fn slots_of(number: usize, masters: usize) -> std::ops::Range<u16> {
    let at = |number: usize| (usize::from(SLOTS) * number / masters) as u16;
    at(number)..at(number + 1)
}
