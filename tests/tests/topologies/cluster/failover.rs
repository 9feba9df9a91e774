//! Masters that fail, and replicas that take over.

use std::time::{Duration, Instant};

use lock_core::{LockGuard, LockManager};
use lock_tests::kit::command;
use lock_tests::{LIMIT, ServerBinary, TestCluster, eventually, in_time};

/// Longer than a failover whose first election fails.
const TTL: Duration = Duration::from_secs(15);

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
}

/// A key whose lock is on this master.
async fn key_on(cluster: &TestCluster, master: usize) -> String {
    format!("{{{}}}", cluster.tag_on(master).await)
}

async fn a_killed_master(full_coverage: &str) {
    let rig = Rig::start(full_coverage).await;
    let master = &rig.cluster.nodes[0].server;
    rig.cluster.in_step(0).await;
    master.kill();
    rig.cluster.taken_over(0).await;
    let key = rig.held[0].key().to_owned();
    let other = LockManager::connect(&rig.cluster.url()).await.unwrap();
    let waiting = tokio::spawn(async move { other.lock(&key).acquire_within(LIMIT).await });
    let since = Instant::now();
    for guard in &rig.held {
        eventually("it is renewed", LIMIT, async || {
            assert!(guard.is_held(), "{guard:?}");
            guard.remaining() + since.elapsed() > TTL
        })
        .await;
    }
    assert!(!waiting.is_finished());
    for guard in rig.held {
        guard.release().await.unwrap();
    }
    let next = in_time("the waiter", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
    rig.locks.shutdown(LIMIT).await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_no_lock_of_another_shard_or_of_its_replica() {
    a_killed_master("yes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_no_lock_also_where_the_other_shards_go_on() {
    a_killed_master("no").await;
}

/// Proves P1.
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
    rig.cluster.taken_over(1).await;
    for guard in rig.held {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
    let next = in_time("the waiter", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_costs_no_lock_of_another_master() {
    let options = [("--cluster-require-full-coverage", "no")];
    let cluster = TestCluster::start_with(&ServerBinary::find(), 3, 0, &options).await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    let mut hanging = Vec::new();
    for number in 0..6 {
        let key = format!("{{{}}}:{number}", cluster.tag_on(0).await);
        // They are renewed at different times.
        let lock = locks
            .lock(key)
            .ttl(Duration::from_millis(3000 + 400 * number));
        hanging.push(lock.acquire().await.unwrap());
    }
    let key = format!("{{{}}}", cluster.tag_on(1).await);
    let ttl = Duration::from_millis(1500);
    let guard = locks.lock(key).ttl(ttl).acquire().await.unwrap();
    cluster.nodes[0].server.stop();
    let lost = tokio::time::timeout(Duration::from_secs(6), guard.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
    assert!(guard.is_held());
    let asked = Instant::now();
    guard.extend(LIMIT).await.unwrap();
    assert!(
        asked.elapsed() < Duration::from_millis(500),
        "{:?}",
        asked.elapsed()
    );
    assert!(!hanging[0].is_held());
    guard.release().await.unwrap();
    cluster.nodes[0].server.cont();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_at_a_master_that_hangs_delays_no_waiter_of_another_one() {
    let options = [("--cluster-require-full-coverage", "no")];
    let cluster = TestCluster::start_with(&ServerBinary::find(), 3, 0, &options).await;
    let deadline = Duration::from_secs(6);
    let builder = LockManager::builder().command_deadline(deadline);
    let locks = builder.connect(&cluster.url()).await.unwrap();
    let (hangs, works) = (cluster.tag_on(0).await, cluster.tag_on(1).await);
    let hold = async |node: usize, key: String, px: u64| {
        let holder = "00000000-0000-4000-8000-000000000000:1:other";
        let set = format!("SET lock:{key} {holder} PX {px}");
        let () = command(&cluster.nodes[node].server, &set).await;
    };
    // More than are asked for at once.
    let crowd = 1500;
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..crowd {
        let key = format!("{{{hangs}}}{number}");
        hold(0, key.clone(), 3_600_000).await;
        let lock = locks.lock(key);
        waiting.spawn(async move { lock.acquire().await.map(drop) });
    }
    eventually("all are queued", LIMIT, async || {
        let keys: usize = command(&cluster.nodes[0].server, "DBSIZE").await;
        keys >= 3 * crowd
    })
    .await;
    cluster.nodes[0].server.stop();
    // Their refreshes come after 3 s, and are not answered.
    for number in 0..6 {
        let key = format!("{{{works}}}{number}");
        let px = 1000;
        hold(1, key.clone(), px).await;
        let asked = Instant::now();
        let guard = locks.lock(key).acquire_within(LIMIT).await.unwrap();
        let late = asked.elapsed().saturating_sub(Duration::from_millis(px));
        assert!(late < deadline / 4, "{late:?}");
        guard.release().await.unwrap();
    }
    cluster.nodes[0].server.cont();
}
