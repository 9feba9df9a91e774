//! Slots that move while locks in them are held and waited for.

use std::time::Duration;

use lock_core::LockManager;
use lock_tests::{LIMIT, TestCluster, eventually, in_time};
use tokio::time::timeout;

/// Shorter than the interval at which a waiter asks without a message.
const SOON: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(3600);

/// A cluster, two clients, and the slot of the lock `a`.
struct Rig {
    cluster: TestCluster,
    one: LockManager,
    other: LockManager,
    slot: u16,
    from: usize,
    to: usize,
}

impl Rig {
    async fn start() -> Self {
        let cluster = TestCluster::start(3).await;
        let connect = async || {
            let builder = LockManager::builder().default_ttl(LONG);
            builder.connect(&cluster.url()).await.unwrap()
        };
        let (one, other) = (connect().await, connect().await);
        let slot = cluster.slot_of("lock:a").await;
        let from = cluster.master_of(slot);
        Self {
            one,
            other,
            slot,
            from,
            to: (from + 1) % 3,
            cluster,
        }
    }

    async fn begin(&self) {
        self.cluster.begin_move(self.slot, self.from, self.to).await;
    }

    async fn end(&self) {
        let keys = self.cluster.keys_in(self.slot, self.from).await;
        self.cluster.move_keys(&keys, self.from, self.to).await;
        self.cluster.end_move(self.slot, self.from, self.to).await;
    }

    /// A task of the other client that waits for `a` when this returns.
    async fn waiting(&self) -> tokio::task::JoinHandle<lock_core::LockGuard> {
        let lock = self.other.lock("a");
        let task = tokio::spawn(async move { lock.acquire().await.unwrap() });
        let observed = self.one.lock("a");
        eventually("it is queued", LIMIT, async || {
            observed.inspect().await.unwrap().waiters() == 1
        })
        .await;
        task
    }
}

/// Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_and_its_waiters_move_with_their_slot() {
    let rig = Rig::start().await;
    let guard = rig.one.lock("a").acquire().await.unwrap();
    let token = guard.fencing_token();
    let waiting = rig.waiting().await;
    rig.cluster.move_slot(rig.slot, rig.from, rig.to).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    // Neither client knew of the move: the waiter is told by the new master.
    let next = timeout(SOON, waiting).await.expect("in time").unwrap();
    assert!(next.fencing_token() > token);
    assert!(rig.one.lock("a").try_acquire().await.unwrap().is_none());
    next.release().await.unwrap();
}

/// Proves P8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_told_also_where_it_has_no_connection_to_the_new_master() {
    let rig = Rig::start().await;
    let guard = rig.one.lock("a").acquire().await.unwrap();
    let waiting = rig.waiting().await;
    let target = &rig.cluster.nodes[rig.to].server;
    // The clients of the new master are away for a moment: the first one because it releases there.
    rig.cluster.move_slot(rig.slot, rig.from, rig.to).await;
    target.client_kill_all().await;
    guard.release().await.unwrap();
    let next = timeout(SOON, waiting).await.expect("in time").unwrap();
    next.release().await.unwrap();
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_its_ttl_in_a_slot_that_is_half_moved() {
    let rig = Rig::start().await;
    let ttl = Duration::from_millis(1500);
    let guard = rig.one.lock("a").ttl(ttl).acquire().await.unwrap();
    rig.begin().await;
    // The lock is there already, and its counter is here.
    let keys = ["lock:a".to_owned()];
    rig.cluster.move_keys(&keys, rig.from, rig.to).await;
    tokio::time::sleep(ttl * 2).await;
    assert!(guard.is_held(), "it is renewed where it is");
    let tried = rig
        .other
        .lock("a")
        .acquire_within(Duration::from_millis(200))
        .await;
    assert!(tried.is_err(), "{tried:?}");
    let release = tokio::spawn(guard.release());
    rig.end().await;
    in_time("the release", release).await.unwrap().unwrap();
    let next = rig.other.lock("a").acquire_within(LIMIT).await.unwrap();
    next.release().await.unwrap();
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_in_a_slot_that_is_half_moved_is_granted_when_the_move_ends() {
    let rig = Rig::start().await;
    rig.begin().await;
    let lock = rig.one.lock("a");
    let acquire = tokio::spawn(async move { lock.acquire_within(LIMIT).await });
    eventually("it was sent to both", LIMIT, async || {
        let stats = rig.cluster.nodes[rig.to].server.commandstats().await;
        stats.contains_key("asking")
    })
    .await;
    assert!(!acquire.is_finished());
    rig.end().await;
    let guard = timeout(SOON, acquire)
        .await
        .expect("in time")
        .unwrap()
        .unwrap();
    guard.release().await.unwrap();
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_is_lost_or_held_twice_while_slots_move_to_and_fro() {
    let cluster = TestCluster::start(2).await;
    let keys: Vec<String> = (0..20).map(|n| format!("key-{n}")).collect();
    let mut slots = Vec::new();
    for key in &keys {
        slots.push(cluster.slot_of(&format!("lock:{key}")).await);
    }
    let connect = async || {
        let builder = LockManager::builder().default_ttl(Duration::from_secs(5));
        builder.connect(&cluster.url()).await.unwrap()
    };
    let (holder, worker) = (connect().await, connect().await);
    let mut held = Vec::new();
    for key in &keys[..10] {
        held.push(holder.lock(key).acquire().await.unwrap());
    }
    let (stop, stopped) = tokio::sync::watch::channel(false);
    // Two clients take turns with the other ten.
    let busy = |locks: LockManager, keys: Vec<String>| {
        let stopped = stopped.clone();
        tokio::spawn(async move {
            let mut last = vec![0; keys.len()];
            while !*stopped.borrow() {
                for (key, last) in keys.iter().zip(&mut last) {
                    let guard = locks.lock(key).acquire().await.unwrap();
                    let token = guard.fencing_token().get();
                    assert!(token > *last, "tokens grow");
                    *last = token;
                    guard.release().await.unwrap();
                }
            }
            last.iter().sum::<u64>()
        })
    };
    let tasks = [&holder, &worker].map(|locks| busy(locks.clone(), keys[10..].to_vec()));
    for _ in 0..3 {
        for slot in &slots {
            let from = cluster.master_of(*slot);
            cluster.move_slot(*slot, from, 1 - from).await;
        }
        for slot in &slots {
            let from = 1 - cluster.master_of(*slot);
            cluster.move_slot(*slot, from, 1 - from).await;
        }
    }
    stop.send(true).unwrap();
    for task in tasks {
        assert!(in_time("a worker", task).await.unwrap() > 0);
    }
    for guard in held {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_has_moved_to_a_master_without_slots_is_listed() {
    let cluster = TestCluster::start_with_spare(2).await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    let slot = cluster.slot_of("lock:a").await;
    cluster.move_slot(slot, cluster.master_of(slot), 2).await;
    let (mut list, mut listed) = (locks.list(), Vec::new());
    while let Some(page) = list.next_page().await.unwrap() {
        listed.extend(page.into_iter().map(|lock| lock.key().to_owned()));
    }
    assert!(listed.contains(&"a".to_owned()), "{listed:?}");
    guard.release().await.unwrap();
}

/// The keys of all pages from here on.
async fn rest_of(list: &mut lock_core::LockList) -> Vec<String> {
    let mut listed = Vec::new();
    while let Some(page) = list.next_page().await.unwrap() {
        listed.extend(page.into_iter().map(|lock| lock.key().to_owned()));
    }
    listed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_moves_to_a_master_that_was_read_already_is_listed_once() {
    let cluster = TestCluster::start(3).await;
    let locks = LockManager::connect(&cluster.url()).await.unwrap();
    let mut held = Vec::new();
    for number in 0..30 {
        held.push(locks.lock(format!("key-{number}")).acquire().await.unwrap());
    }
    let mut list = locks.list();
    let first = list.next_page().await.unwrap().unwrap();
    let mut listed: Vec<_> = first
        .into_iter()
        .map(|lock| lock.key().to_owned())
        .collect();
    let read = cluster.master_of(cluster.slot_of(&format!("lock:{}", listed[0])).await);
    for guard in &held {
        let slot = cluster.slot_of(&format!("lock:{}", guard.key())).await;
        let from = cluster.master_of(slot);
        if from != read && !cluster.owns(read, slot).await {
            cluster.move_slot(slot, from, read).await;
        }
    }
    listed.extend(rest_of(&mut list).await);
    listed.sort();
    let mut keys: Vec<_> = held.iter().map(|guard| guard.key().to_owned()).collect();
    keys.sort();
    assert_eq!(listed, keys);
    for guard in held {
        guard.release().await.unwrap();
    }
}
