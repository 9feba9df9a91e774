//! What the tests of the reentrant lock have in common.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lock_core::LockManager;
pub(crate) use lock_tests::in_time;
pub(crate) use lock_tests::kit::{command, ms, until_clean, warm_server};
use lock_tests::{LIMIT, Proxy, Request, TestServer, eventually};

use crate::reentrant::apart::ApartLock;
use crate::reentrant::redisson_client::Redisson;

/// Longer than any test may wait: with this ttl a key that goes was removed.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// How long a wait of ours may last that no message ends: the refresh interval. A wake-up in half of it was a message.
pub(crate) const REFRESH: Duration = Duration::from_secs(3);

/// A command deadline that a slow machine keeps. A shutdown may last as long: a request that was cancelled on its way is
/// waited for.
pub(crate) const PATIENT: Duration = Duration::from_secs(3);

/// A manager of its own, as in another process, which no slow machine makes give up.
pub(crate) async fn manager(server: &TestServer) -> LockManager {
    manager_at(&server.url(), LIMIT).await
}

pub(crate) async fn manager_at(url: &str, deadline: Duration) -> LockManager {
    let builder = LockManager::builder()
        .command_deadline(deadline)
        .default_ttl(LONG);
    builder.connect(url).await.unwrap()
}

/// Redisson straight on a server, and a manager of ours behind a proxy.
pub(crate) async fn neighbours() -> (TestServer, Redisson, Proxy, LockManager) {
    let server = warm_server().await;
    let java = Redisson::new(&server).await;
    let proxy = Proxy::start(&server);
    let locks = manager_at(&proxy.url(), LIMIT).await;
    (server, java, proxy, locks)
}

/// The lock as Redisson sees it: the owner, and how often it has the lock.
pub(crate) async fn hash(server: &TestServer, name: &str) -> BTreeMap<String, i64> {
    let mut fields: BTreeMap<String, i64> = command(server, &format!("HGETALL {name}")).await;
    fields.remove("lock-core:tenure");
    fields
}

/// How many listen to the channel of this lock.
pub(crate) async fn listeners(server: &TestServer, name: &str) -> u64 {
    let channel = crate::reentrant::redisson_client::channel(name);
    let (_, count): (String, u64) = command(server, &format!("PUBSUB NUMSUB {channel}")).await;
    count
}

/// Waits until so many processes listen for the end of the lock.
pub(crate) async fn until_listening(server: &TestServer, name: &str, processes: u64) {
    eventually("somebody listens", LIMIT, async || {
        listeners(server, name).await == processes
    })
    .await;
}

/// Waits until this number of callers of this manager waits for the lock.
pub(crate) async fn until_waiting(lock: &ApartLock, waiters: u64) {
    eventually("they wait", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == waiters
    })
    .await;
}

/// Waits until a manager behind this proxy, which had sent so many tries before, has begun to wait: it has tried, has
/// subscribed, and its second try was answered. Only a message or the clock makes it try again.
pub(crate) async fn until_parked(proxy: &Proxy, before: usize, lock: &ApartLock) {
    proxy.on_count(before + 2, is_acquire).await;
    // Requests keep their order, so the server has carried those out by now.
    lock.inspect().await.unwrap();
}

pub(crate) fn is_acquire(request: &Request) -> bool {
    request.script() == Some("reentrant acquire")
}

pub(crate) fn is_release(request: &Request) -> bool {
    request.script() == Some("reentrant release")
}

pub(crate) fn is_extend(request: &Request) -> bool {
    request.script() == Some("reentrant extend")
}

pub(crate) fn is_subscribe(request: &Request) -> bool {
    request.name() == "SUBSCRIBE" && request.arg(1).starts_with("redisson_lock__channel:")
}

/// Tells a wake-up by a message from one by the clock: most of some rounds are much shorter than the refresh interval,
/// which a slow machine lengthens and never shortens. A round returns when its wait was set off, and over.
pub(crate) async fn woken_by_a_message(what: &str, mut round: impl AsyncFnMut() -> Instant) {
    let mut took = Vec::new();
    for _ in 0..5 {
        let since = round().await;
        took.push(since.elapsed());
    }
    took.sort_unstable();
    assert!(took[2] < REFRESH / 2, "{what} came by the clock: {took:?}");
}

/// Counts who is inside at the same time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Section(Arc<SectionState>);

#[derive(Debug, Default)]
struct SectionState {
    inside: AtomicUsize,
    overlap: AtomicBool,
}

impl Section {
    /// Works for a moment, and notes if anybody else does so too. The caller's lease must outlast it.
    pub(crate) async fn work(&self, moment: Duration) {
        if self.0.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            self.0.overlap.store(true, Ordering::SeqCst);
        }
        tokio::time::sleep(moment).await;
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }

    #[track_caller]
    pub(crate) fn assert_exclusive(&self) {
        assert!(!self.0.overlap.load(Ordering::SeqCst), "two were inside");
    }
}
