//! The servers: three masters that share the slots, and a replica of each.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_examples::{Cluster, Node, Outcome, until};
use tokio::time::sleep;

const MASTERS: usize = Cluster::MASTERS;
const SLOTS: usize = Cluster::SLOTS;

/// A time in microseconds since 1970: all processes run on one machine.
pub(crate) type Micros = u64;

pub(crate) fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as Micros)
}

/// A move of a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    pub(crate) slot: usize,
    pub(crate) from: Micros,
    pub(crate) to: Micros,
}

pub(crate) struct Stage {
    cluster: Cluster,
    /// The master of each slot that has moved.
    owners: HashMap<usize, usize>,
    slots: HashMap<String, usize>,
}

/// The epoch of the cluster as a node knows it, and whether it has the slot.
async fn knows(node: &Node, slot: usize) -> Outcome<(u64, bool)> {
    let info: String = node.ask("CLUSTER INFO").await?;
    let epoch = info
        .lines()
        .find_map(|line| line.strip_prefix("cluster_current_epoch:"));
    let nodes: String = node.ask("CLUSTER NODES").await?;
    let own = nodes
        .lines()
        .find(|line| line.contains("myself"))
        .unwrap_or_default();
    let has = own.split(' ').skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    });
    Ok((epoch.and_then(|epoch| epoch.parse().ok()).unwrap_or(0), has))
}

impl Stage {
    pub(crate) async fn build() -> Outcome<Self> {
        Ok(Self {
            cluster: Cluster::build().await?,
            owners: HashMap::new(),
            slots: HashMap::new(),
        })
    }

    pub(crate) fn url(&self) -> String {
        self.cluster.url()
    }

    /// The slots of the keys that were asked for.
    pub(crate) fn slots(&self) -> &HashMap<String, usize> {
        &self.slots
    }

    /// The slots of the locks with this name and the numbers from 0.
    pub(crate) async fn slots_of(&mut self, name: &str, count: usize) -> Outcome<Vec<usize>> {
        let mut slots = Vec::with_capacity(count);
        for number in 0..count {
            let key = format!("{name}-{number}");
            let slot = self.cluster.nodes[0]
                .ask(&format!("CLUSTER KEYSLOT lock:{key}"))
                .await?;
            self.slots.insert(key, slot);
            slots.push(slot);
        }
        Ok(slots)
    }

    fn owner(&self, slot: usize) -> usize {
        let first = (0..MASTERS).find(|number| slot < SLOTS * (number + 1) / MASTERS);
        self.owners.get(&slot).copied().or(first).unwrap_or(0)
    }

    /// Whether the server moves slots at once.
    pub(crate) async fn moves_at_once(&self) -> bool {
        self.is_valkey().await
            || self.cluster.nodes[0]
                .ask::<redis::Value>("CLUSTER MIGRATION STATUS ALL")
                .await
                .is_ok()
    }

    async fn is_valkey(&self) -> bool {
        self.cluster.nodes[0]
            .ask::<redis::Value>("CLUSTER GETSLOTMIGRATIONS")
            .await
            .is_ok()
    }

    /// Moves a slot to the next master.
    pub(crate) async fn move_slot(&mut self, slot: usize, at_once: bool) -> Outcome<Move> {
        let from = self.owner(slot);
        let to = (from + 1) % MASTERS;
        let begin = now();
        if at_once {
            self.import(slot, from, to).await?;
        } else {
            self.begin_move(slot, from, to).await?;
            self.move_keys(slot, from, to).await?;
            self.end_move(slot, from, to).await?;
        }
        Ok(self.has_moved(slot, to, begin))
    }

    /// As [`move_slot`](Self::move_slot) key by key: first this key, then nothing for this time, then the others.
    pub(crate) async fn move_slowly(
        &mut self,
        slot: usize,
        key: &str,
        pause: Duration,
    ) -> Outcome<Move> {
        let from = self.owner(slot);
        let to = (from + 1) % MASTERS;
        let begin = now();
        self.begin_move(slot, from, to).await?;
        let port = self.cluster.nodes[to].server.port();
        let _: String = self.cluster.nodes[from]
            .ask(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"))
            .await?;
        sleep(pause).await;
        self.move_keys(slot, from, to).await?;
        self.end_move(slot, from, to).await?;
        Ok(self.has_moved(slot, to, begin))
    }

    fn has_moved(&mut self, slot: usize, to: usize, begin: Micros) -> Move {
        self.owners.insert(slot, to);
        Move {
            slot,
            from: begin,
            to: now(),
        }
    }

    async fn begin_move(&self, slot: usize, from: usize, to: usize) -> Outcome {
        let (source, target) = (&self.cluster.nodes[from], &self.cluster.nodes[to]);
        let _: () = target
            .ask(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", source.id))
            .await?;
        source
            .ask(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", target.id))
            .await
    }

    async fn move_keys(&self, slot: usize, from: usize, to: usize) -> Outcome {
        let port = self.cluster.nodes[to].server.port().to_string();
        loop {
            let keys: Vec<String> = self.cluster.nodes[from]
                .ask(&format!("CLUSTER GETKEYSINSLOT {slot} 100"))
                .await?;
            if keys.is_empty() {
                return Ok(());
            }
            let mut migrate = redis::cmd("MIGRATE");
            migrate
                .arg("127.0.0.1")
                .arg(&port)
                .arg("")
                .arg(0)
                .arg(5000)
                .arg("KEYS")
                .arg(keys);
            let _: String = migrate
                .query_async(&mut self.cluster.nodes[from].connection.clone())
                .await?;
        }
    }

    /// As `redis-cli --cluster reshard` does: the new master first, then the old one, then the others.
    async fn end_move(&self, slot: usize, from: usize, to: usize) -> Outcome {
        let set = format!("CLUSTER SETSLOT {slot} NODE {}", self.cluster.nodes[to].id);
        let others = (0..MASTERS).filter(|node| *node != to && *node != from);
        for node in [to, from].into_iter().chain(others) {
            let _: () = self.cluster.nodes[node].ask(&set).await?;
        }
        // Where a node has not heard of the other's epoch, the next move could be undone.
        until("the masters agree", async || {
            let mut epochs = Vec::new();
            for (number, node) in self.cluster.nodes[..MASTERS].iter().enumerate() {
                let (epoch, has) = knows(node, slot).await?;
                if has != (number == to) {
                    return Ok(false);
                }
                epochs.push(epoch);
            }
            Ok(epochs.windows(2).all(|pair| pair[0] == pair[1]))
        })
        .await
    }

    async fn import(&self, slot: usize, from: usize, to: usize) -> Outcome {
        let (source, target) = (&self.cluster.nodes[from], &self.cluster.nodes[to]);
        if self.is_valkey().await {
            let order = format!(
                "CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}",
                target.id
            );
            let _: redis::Value = source.ask(&order).await?;
        } else {
            let _: redis::Value = target
                .ask(&format!("CLUSTER MIGRATION IMPORT {slot} {slot}"))
                .await?;
        }
        until("the slot has moved", async || {
            Ok(knows(target, slot).await?.1 && !knows(source, slot).await?.1)
        })
        .await
    }

    /// Stops a master until its replica has taken over, and lets it go on. Returns when its replica took over.
    pub(crate) async fn stop_a_master(&self) -> Outcome<Micros> {
        let (master, replica) = (&self.cluster.nodes[1], &self.cluster.nodes[MASTERS + 1]);
        let is = async |node: &Node, role: &str| {
            let info: String = node.ask("INFO replication").await?;
            Ok(info.contains(role))
        };
        master.server.signal("STOP")?;
        until("the replica takes over", async || {
            is(replica, "role:master").await
        })
        .await?;
        let taken_over = now();
        // Time for others to take the locks of the new master.
        sleep(Duration::from_millis(50)).await;
        master.server.signal("CONT")?;
        until("the old master knows it", async || {
            is(master, "role:slave").await
        })
        .await?;
        Ok(taken_over)
    }

    /// Kills a master, and returns when its replica takes over.
    pub(crate) async fn kill_a_master(&mut self) -> Outcome<Micros> {
        self.cluster.kill_a_master().await?;
        Ok(now())
    }
}
