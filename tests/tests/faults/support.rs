//! What the fault tests have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::{Lock, LockError, LockGuard, LockManager};
pub(crate) use lock_tests::in_time;
pub(crate) use lock_tests::kit::{
    command, leftovers, ms, script_calls, try_command, until_clean, warm_server,
};
use lock_tests::{LIMIT, Proxy, Request, TestServer, eventually};

/// The name the tests lock, and what it is called on the server.
pub(crate) const NAME: &str = "k";
pub(crate) const KEY: &str = "lock:k";
pub(crate) const QUEUE: &str = "lock-core:queue:{lock:k}";

/// Longer than any test may wait: with this ttl a key that goes was removed.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A manager straight on the server, which no slow machine makes give up.
pub(crate) async fn direct(server: &TestServer) -> LockManager {
    connect(&server.url(), LIMIT).await
}

/// A manager behind the proxy, which takes a request for lost after `deadline`.
pub(crate) async fn behind(proxy: &Proxy, deadline: Duration) -> LockManager {
    connect(&proxy.url(), deadline).await
}

/// Connects, however short the deadline is for a machine that has other things to do.
pub(crate) async fn connect(url: &str, deadline: Duration) -> LockManager {
    let mut connected = None;
    eventually("a connection", LIMIT, async || {
        let builder = LockManager::builder().command_deadline(deadline);
        connected = builder.connect(url).await.ok();
        connected.is_some()
    })
    .await;
    connected.unwrap()
}

/// Waits for a renewal. False where the lease ends first.
pub(crate) async fn renewed(guard: &LockGuard) -> bool {
    let mut before = guard.remaining();
    let mut held = true;
    eventually("a renewal", LIMIT, async || {
        held = guard.is_held();
        let now = guard.remaining();
        !held || std::mem::replace(&mut before, now) < now
    })
    .await;
    held
}

/// How a caller asks for a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Try,
    Within,
    Forever,
}

pub(crate) const WAYS: [Way; 3] = [Way::Try, Way::Within, Way::Forever];

impl Way {
    pub(crate) async fn acquire(self, lock: &Lock) -> Result<Option<LockGuard>, LockError> {
        match self {
            Self::Try => lock.try_acquire().await,
            Self::Within => lock.acquire_within(LIMIT).await.map(Some),
            Self::Forever => lock.acquire().await.map(Some),
        }
    }
}

pub(crate) fn is_acquire(request: &Request) -> bool {
    request.script() == Some("acquire")
}

pub(crate) fn is_release(request: &Request) -> bool {
    request.script() == Some("release")
}

pub(crate) fn is_pass(request: &Request) -> bool {
    request.script() == Some("pass")
}

pub(crate) fn is_extend(request: &Request) -> bool {
    request.script() == Some("extend")
}

pub(crate) async fn queue_len(server: &TestServer) -> usize {
    command(server, &format!("LLEN {QUEUE}")).await
}

/// Waits until so many wait for the lock.
pub(crate) async fn until_queued(server: &TestServer, waiters: usize) {
    eventually("the waiters are queued", LIMIT, async || {
        queue_len(server).await == waiters
    })
    .await;
}

/// Waits until so many wait for the lock, on the server and in the manager of this handle.
pub(crate) async fn until_waiting(lock: &Lock, waiters: u64) {
    eventually("the callers wait", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == waiters
    })
    .await;
}

pub(crate) async fn until_gone(server: &TestServer, key: &str) {
    eventually("the key is gone", LIMIT, async || !server.exists(key).await).await;
}

/// The result of a future that is ready now.
pub(crate) async fn now_or_never<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = std::future::ready(()) => None,
    }
}

#[track_caller]
pub(crate) fn assert_unavailable<T>(result: Result<T, LockError>, word: &str) {
    match result.err() {
        Some(error @ LockError::Unavailable { .. }) if error.to_string().contains(word) => {}
        other => panic!("`Unavailable` with {word:?} expected, not {other:?}"),
    }
}

/// Counts who is inside at the same time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Section(Arc<SectionState>);

#[derive(Debug, Default)]
struct SectionState {
    inside: AtomicUsize,
    entered: AtomicUsize,
    overlap: AtomicBool,
}

impl Section {
    /// Works for a moment under the guard, and notes if anybody else does so too.
    pub(crate) async fn work(&self, guard: &LockGuard, moment: Duration) {
        if self.0.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            self.0.overlap.store(true, Ordering::SeqCst);
        }
        tokio::time::sleep(moment).await;
        // Only a hold that is still one counts as broken into.
        if self.0.inside.fetch_sub(1, Ordering::SeqCst) > 1 && guard.is_held() {
            self.0.overlap.store(true, Ordering::SeqCst);
        }
        self.0.entered.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn entered(&self) -> usize {
        self.0.entered.load(Ordering::SeqCst)
    }

    #[track_caller]
    pub(crate) fn assert_exclusive(&self) {
        assert!(!self.0.overlap.load(Ordering::SeqCst), "two were inside");
    }
}
