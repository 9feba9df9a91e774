//! What becomes of each lock when a replica takes over that has not heard of it, and what the new master is told.

use std::time::Duration;

use lock_core::{LockManager, LossReason};
use lock_tests::kit::command;
use lock_tests::{LIMIT, Proxy, Request, ServerBinary, TestCluster, eventually, in_time};

use super::access::behind_proxies;

/// Longer than any test: nothing is found out by a renewal or by a refresh.
const LONG: Duration = Duration::from_secs(3600);

/// Three masters with a replica each, and a key on the first one, whose replica takes over.
struct Rig {
    cluster: TestCluster,
    key: String,
}

impl Rig {
    async fn start() -> Self {
        let cluster = TestCluster::start_with(&ServerBinary::find(), 3, 1, &[]).await;
        let key = format!("{{{}}}", cluster.tag_on(0).await);
        Self { cluster, key }
    }

    async fn connect(&self) -> LockManager {
        let builder = LockManager::builder().default_ttl(LONG);
        builder.connect(&self.cluster.url()).await.unwrap()
    }

    /// Kills the master, whose replica has been cut off.
    async fn kill(&self) {
        self.cluster.nodes[0].server.kill();
        self.cluster.replica_of(0).cont();
        self.cluster.taken_over(0).await;
    }

    /// Takes the lock for another client, which knows of the failover.
    async fn other_holds(&self) -> (LockManager, lock_core::LockGuard) {
        let other = self.connect().await;
        let guard = other.lock(&self.key).acquire_within(LIMIT).await.unwrap();
        (other, guard)
    }
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_the_new_master_does_not_have_is_lost_at_once() {
    let rig = Rig::start().await;
    let locks = rig.connect().await;
    rig.cluster.cut_off(0).await;
    let guard = locks.lock(&rig.key).acquire().await.unwrap();
    rig.kill().await;
    let _other = rig.other_holds().await;
    let reason = in_time("the loss", guard.lost()).await;
    assert_eq!(reason, LossReason::Gone);
}

/// The master is stopped while an acquire lies in its socket, and goes on when another client has the lock of the new master. Until
/// then the first client hears nothing of the other nodes.
async fn a_stopped_master(command_deadline: Duration) {
    let rig = Rig::start().await;
    let builder = LockManager::builder()
        .default_ttl(LONG)
        .command_deadline(command_deadline);
    let (proxies, locks) = behind_proxies(&rig.cluster, builder).await;
    let master = &rig.cluster.nodes[0].server;
    // From now on the master knows the script, and would grant in one step.
    let warm = locks.lock(&rig.key).acquire().await.unwrap();
    warm.release().await.unwrap();
    let is_acquire = |request: &Request| request.script() == Some("acquire");
    let before = proxies[0].count(is_acquire);
    master.stop();
    proxies[1..].iter().for_each(Proxy::hold_requests);
    let lock = locks.lock(&rig.key);
    let waiting = tokio::spawn(async move { lock.acquire_within(LIMIT).await });
    proxies[0].on_count(before + 1, is_acquire).await;
    rig.cluster.taken_over(0).await;
    let (other, guard) = rig.other_holds().await;
    master.cont();
    eventually("the old master knows it", LIMIT, async || {
        let info: String = command(master, "INFO replication").await;
        info.contains("role:slave")
    })
    .await;
    proxies.iter().for_each(Proxy::release_held);
    let observed = other.lock(&rig.key);
    eventually("it waits at the new master", LIMIT, async || {
        assert!(!waiting.is_finished());
        observed.inspect().await.unwrap().waiters() == 1
    })
    .await;
    guard.release().await.unwrap();
    let next = in_time("the waiter", waiting).await.unwrap().unwrap();
    next.release().await.unwrap();
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_of_a_master_that_was_stopped_and_replaced_is_not_believed() {
    a_stopped_master(Duration::from_secs(1)).await;
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_answer_of_a_master_that_was_replaced_is_not_believed() {
    a_stopped_master(LIMIT).await;
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_request_after_a_failover_is_served() {
    let rig = Rig::start().await;
    let (idle, holder) = (rig.connect().await, rig.connect().await);
    let held = holder.lock(&rig.key).acquire().await.unwrap();
    rig.cluster.in_step(0).await;
    rig.cluster.nodes[0].server.kill();
    rig.cluster.taken_over(0).await;
    let fresh = format!("{}:fresh", rig.key);
    let tried = idle.lock(fresh).try_acquire().await.unwrap();
    assert!(tried.is_some());
    // The holder has followed by itself.
    eventually("the hold is confirmed", LIMIT, async || {
        let stats = rig.cluster.replica_of(0).commandstats().await;
        stats.contains_key("pttl") || stats.contains_key("pexpire")
    })
    .await;
    held.release().await.unwrap();
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_the_new_master_lacks_is_repeated_also_by_an_idle_client() {
    let rig = Rig::start().await;
    let locks = rig.connect().await;
    let guard = locks.lock(&rig.key).acquire().await.unwrap();
    rig.cluster.cut_off(0).await;
    guard.release().await.unwrap();
    rig.kill().await;
    let replica = rig.cluster.replica_of(0);
    let name = format!("lock:{}", rig.key);
    eventually("the new master is told", LIMIT, async || {
        !replica.exists(&name).await
    })
    .await;
}

/// Proves P10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_master_mints_above_the_tokens_that_its_clients_know() {
    let rig = Rig::start().await;
    let locks = rig.connect().await;
    let first = locks.lock(&rig.key).acquire().await.unwrap();
    first.release().await.unwrap();
    rig.cluster.cut_off(0).await;
    let master = &rig.cluster.nodes[0].server;
    let keys = master.keys().await;
    let fence = keys.iter().find(|key| key.starts_with("lock-core:fence:"));
    let ahead: u64 = 4_000_000_000_000_000;
    let () = command(master, &format!("SET {} {ahead}", fence.unwrap())).await;
    let before = locks.lock(&rig.key).acquire().await.unwrap();
    assert!(before.fencing_token().get() > ahead);
    rig.kill().await;
    in_time("the loss", before.lost()).await;
    let after = locks.lock(&rig.key).acquire().await.unwrap();
    assert!(after.fencing_token() > before.fencing_token());
}

/// Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_by_a_master_that_was_stopped_and_replaced_does_not_count() {
    let rig = Rig::start().await;
    let builder = LockManager::builder()
        .default_ttl(LONG)
        .command_deadline(LIMIT);
    let (proxies, locks) = behind_proxies(&rig.cluster, builder).await;
    let master = &rig.cluster.nodes[0].server;
    // So that the master knows the script.
    let warm = locks.rw_lock(format!("{}w", rig.key)).read().await.unwrap();
    let warm = warm.try_upgrade().await.unwrap();
    warm.release().await.unwrap();
    let reader = locks.rw_lock(&rig.key).read().await.unwrap();
    rig.cluster.in_step(0).await;
    let is_upgrade = |request: &Request| request.script() == Some("permits reweigh");
    let before = proxies[0].count(is_upgrade);
    master.stop();
    // No other node tells the client that the master was replaced.
    proxies[1..].iter().for_each(Proxy::hold_requests);
    let upgrading = tokio::spawn(reader.try_upgrade());
    proxies[0].on_count(before + 1, is_upgrade).await;
    rig.cluster.taken_over(0).await;
    let others = rig.connect().await;
    let other = others.rw_lock(&rig.key).read_within(LIMIT).await.unwrap();
    master.cont();
    let early = tokio::time::timeout(Duration::from_millis(1500), upgrading).await;
    let is_writer = matches!(early, Ok(Ok(Ok(_))));
    assert!(!(is_writer && other.is_held()), "a writer beside a reader");
}
