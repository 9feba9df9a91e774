//! Guarded scripts that hang in the network while the lock goes on to the next guard (P3).

use lock_core::{GuardedScript, LockError, LockGuard, LockManager, Owner};
use lock_tests::{Held, LIMIT, Proxy, Request, TestServer, eventually};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{LONG, behind, in_time, is_pass, is_release, warm_server};

/// In the slot of the lock. It counts the scripts that wrote.
const COUNT: &str = "{k}:count";

fn is_guarded(request: &Request) -> bool {
    request.has(COUNT)
}

async fn count(guard: &LockGuard) -> Result<u64, LockError> {
    let script = GuardedScript::new("return redis.call('INCR', KEYS[1])");
    guard.guarded(&script).key(COUNT).run().await
}

struct Rig {
    server: TestServer,
    proxy: Proxy,
    locks: LockManager,
}

impl Rig {
    async fn start() -> Self {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let locks = behind(&proxy, LIMIT).await;
        Self {
            server,
            proxy,
            locks,
        }
    }

    /// A guard that can be followed by another without a command, and that other one, which waits.
    async fn turn(&self) -> (LockGuard, JoinHandle<LockGuard>) {
        let lock = self.locks.lock("{k}").ttl(LONG);
        self.turn_of(
            || {
                let lock = lock.clone();
                async move { lock.acquire().await.unwrap() }
            },
            async || lock.inspect().await.unwrap().waiters(),
        )
        .await
    }

    async fn turn_of<F>(
        &self,
        acquire: impl Fn() -> F,
        waiters: impl AsyncFn() -> u64,
    ) -> (LockGuard, JoinHandle<LockGuard>)
    where
        F: Future<Output = LockGuard> + Send + 'static,
    {
        let first = acquire().await;
        let second = tokio::spawn(acquire());
        eventually("one waits", LIMIT, async || waiters().await == 1).await;
        let third = tokio::spawn(acquire());
        eventually("two wait", LIMIT, async || waiters().await == 2).await;
        // The server learns the script, too.
        assert_eq!(count(&first).await.unwrap(), 1);
        first.release().await.unwrap();
        (in_time("the second", second).await.unwrap(), third)
    }

    /// A guarded call that hangs in the network, its future dropped.
    async fn hanging_call(&self, guard: &LockGuard) -> Held {
        let held = self.proxy.hold_next_request_matching(is_guarded);
        tokio::select! {
            answer = count(guard) => panic!("answered: {answer:?}"),
            _ = held.wait() => {}
        }
        held
    }

    /// The next guard holds. Then the call arrives.
    async fn arrives_too_late(&self, held: Held, third: JoinHandle<LockGuard>) {
        let third = in_time("the third", third).await.unwrap();
        assert!(third.is_held());
        self.server.reset_stats().await;
        held.deliver();
        eventually("the call is carried out", LIMIT, async || {
            self.server.commandstats().await.contains_key("evalsha")
        })
        .await;
        let counted = self.server.get(COUNT).await;
        assert_eq!(
            counted.as_deref(),
            Some("1"),
            "it wrote under another guard"
        );
        assert_eq!(count(&third).await.unwrap(), 2, "the holder writes");
        third.release().await.unwrap();
    }
}

/// Proves P3.
#[tokio::test]
async fn a_script_whose_guard_was_dropped_does_not_write_under_the_next_one() {
    let rig = Rig::start().await;
    let (guard, third) = rig.turn().await;
    let held = rig.hanging_call(&guard).await;
    drop(guard);
    // The release takes another connection, and so overtakes the call.
    rig.proxy.reset();
    rig.arrives_too_late(held, third).await;
}

#[tokio::test]
async fn a_script_whose_guard_was_released_does_not_write_under_the_next_one() {
    let rig = Rig::start().await;
    let (guard, third) = rig.turn().await;
    let held = rig.hanging_call(&guard).await;
    rig.proxy.reset();
    guard.release().await.unwrap();
    rig.arrives_too_late(held, third).await;
}

#[tokio::test]
async fn a_script_whose_connection_broke_does_not_write_under_the_next_guard() {
    let rig = Rig::start().await;
    let (guard, third) = rig.turn().await;
    let held = rig.proxy.hold_next_request_matching(is_guarded);
    let (answer, ()) = tokio::join!(count(&guard), async {
        held.wait().await;
        rig.proxy.reset();
    });
    assert!(
        matches!(answer, Err(LockError::Unavailable { .. })),
        "{answer:?}"
    );
    guard.release().await.unwrap();
    rig.arrives_too_late(held, third).await;
}

#[tokio::test]
async fn a_script_of_a_scope_that_has_ended_does_not_write_under_the_next_guard() {
    let rig = Rig::start().await;
    let lock = rig.locks.lock("{k}").ttl(LONG);
    let (second, third) = rig.turn().await;
    third.abort();
    let held = rig.proxy.hold_next_request_matching(is_guarded);
    let (next, waits) = oneshot::channel();
    let scope = lock.with(async |guard| {
        tokio::select! {
            answer = count(guard) => panic!("answered: {answer:?}"),
            _ = held.wait() => {}
        }
        // Another one waits before the scope ends.
        let waiting = lock.clone();
        let waiting = tokio::spawn(async move { waiting.acquire().await.unwrap() });
        next.send(waiting).unwrap();
        rig.proxy.reset();
        eventually("one waits", LIMIT, async || {
            lock.inspect().await.is_ok_and(|info| info.waiters() == 1)
        })
        .await;
    });
    let ((), scope) = tokio::join!(async { second.release().await.unwrap() }, scope);
    scope.unwrap();
    let next = waits.await.unwrap();
    rig.arrives_too_late(held, next).await;
}

#[tokio::test]
async fn a_script_of_a_reentrant_lock_does_not_write_under_the_next_guard() {
    let rig = Rig::start().await;
    let lock = rig.locks.reentrant_lock("{k}").ttl(LONG);
    let (guard, third) = rig
        .turn_of(
            || {
                let lock = lock.clone().owner(&Owner::new());
                async move { lock.acquire().await.unwrap() }
            },
            async || lock.inspect().await.unwrap().waiters(),
        )
        .await;
    let held = rig.hanging_call(&guard).await;
    drop(guard);
    rig.proxy.reset();
    rig.arrives_too_late(held, third).await;
}

#[tokio::test]
async fn a_guard_whose_scripts_were_all_answered_is_followed_without_a_command() {
    let rig = Rig::start().await;
    let (guard, third) = rig.turn().await;
    for n in 2..5 {
        assert_eq!(count(&guard).await.unwrap(), n);
    }
    let lets_go = |request: &Request| is_pass(request) || is_release(request);
    let before = rig.proxy.count(lets_go);
    drop(guard);
    let third = in_time("the third", third).await.unwrap();
    assert_eq!(rig.proxy.count(lets_go), before);
    third.release().await.unwrap();
}
