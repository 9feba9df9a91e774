//! Masters that fail, and replicas that take over.

use std::time::Duration;

use lock_core::{LockGuard, LockManager};
use lock_tests::kit::command;
use lock_tests::{LIMIT, ServerBinary, TestCluster, eventually, in_time};

const TTL: Duration = Duration::from_secs(5);

/// Three masters with a replica each, and a lock on each master.
struct Rig {
    cluster: TestCluster,
    locks: LockManager,
    held: Vec<LockGuard>,
}

impl Rig {
    async fn start(full_coverage: &str) -> Self {
        let options = [("--cluster-require-full-coverage", full_coverage)];
        let cluster = TestCluster::start_with(&ServerBinary::find(), 3, 1, &options).await;
        let builder = LockManager::builder().default_ttl(TTL);
        let locks = builder.connect(&cluster.url()).await.unwrap();
        let mut held = Vec::new();
        for master in 0..3 {
            let key = key_on(&cluster, master).await;
            held.push(locks.lock(&key).acquire().await.unwrap());
        }
        Self {
            cluster,
            locks,
            held,
        }
    }

    /// Waits until the replica of this master has taken over.
    async fn taken_over(&self, master: usize) {
        let replica = &self.cluster.nodes[3 + master].server;
        eventually("the replica takes over", LIMIT, async || {
            let info: String = command(replica, "INFO replication").await;
            info.contains("role:master")
        })
        .await;
    }
}

/// A key whose lock is on this master.
async fn key_on(cluster: &TestCluster, master: usize) -> String {
    for number in 0.. {
        let key = format!("key-{number}");
        let slot = cluster.slot_of(&format!("lock:{key}")).await;
        if cluster.master_of(slot) == master {
            return key;
        }
    }
    unreachable!()
}

async fn a_killed_master(full_coverage: &str) {
    let rig = Rig::start(full_coverage).await;
    let master = &rig.cluster.nodes[0].server;
    // The lock has reached the replica.
    let _: u64 = command(master, "WAIT 1 5000").await;
    master.kill();
    rig.taken_over(0).await;
    let key = rig.held[0].key().to_owned();
    let other = LockManager::connect(&rig.cluster.url()).await.unwrap();
    let waiting = tokio::spawn(async move { other.lock(&key).acquire_within(LIMIT).await });
    tokio::time::sleep(TTL).await;
    for guard in &rig.held {
        assert!(guard.is_held(), "{guard:?}");
    }
    assert!(!waiting.is_finished());
    for guard in rig.held {
        guard.release().await.unwrap();
    }
    let next = in_time("the waiter", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
    rig.locks.shutdown(LIMIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_no_lock_of_another_shard_and_none_that_its_replica_has() {
    a_killed_master("yes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_no_lock_also_where_the_other_shards_go_on() {
    a_killed_master("no").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_command_costs_no_lock_and_wakes_the_waiters() {
    let rig = Rig::start("yes").await;
    let other = LockManager::connect(&rig.cluster.url()).await.unwrap();
    let key = rig.held[1].key().to_owned();
    let lock = other.lock(&key);
    let waiting = tokio::spawn(async move { lock.acquire_within(LIMIT).await });
    let observed = rig.locks.lock(&key);
    eventually("it is queued", LIMIT, async || {
        observed.inspect().await.unwrap().waiters() == 1
    })
    .await;
    let () = command(&rig.cluster.nodes[4].server, "CLUSTER FAILOVER").await;
    rig.taken_over(1).await;
    for guard in rig.held {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
    let next = in_time("the waiter", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}
