//! The engine on a clock that tests move by hand, over a real memory store.

mod announcements;
mod hold;
mod late;
mod lease;
mod line;
mod news;
mod reentrant;
mod state;
mod waits;
mod wake_cell;
mod world;

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::acquisition::Acquisition;
use super::hold::{Hold, LockRequest};
use super::lease::Status;
use super::patience::Limit;
use super::shared::Shared;
use crate::base::claim::PLAIN;
use crate::base::clocks::ManualClock;
use crate::base::config::Config;
use crate::base::error::{LockError, LossReason};
use crate::base::key::LockKey;
use crate::base::sync::lock;
use crate::base::time::Clock;
use crate::engine::acquire;
use crate::face::guard::LockGuard;
use crate::store::{Answer, AnyStore, Attempt, Events, Grant, MemoryStore, Mode};

const TTL: Duration = Duration::from_secs(9);
/// Longer than any test runs; a limit against hanging, not a measure.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Rig {
    pub(super) engine: Arc<Engine>,
    clock: ManualClock,
}

impl Rig {
    /// An engine over the named memory server. All engines of one name must share the clock.
    pub(super) fn new(name: &str, clock: &ManualClock) -> Self {
        let clock = clock.clone();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let store = AnyStore::Memory(MemoryStore::open(name, Arc::clone(&shared)));
        Self {
            engine: Engine::start(Config::default(), store, shared).unwrap(),
            clock,
        }
    }

    pub(super) fn request(&self, key: &str) -> Result<LockRequest, LockError> {
        let terms = self.engine.shared.config.terms(TTL)?;
        Ok(LockRequest::plain(LockKey::new("lock:", key)?, terms))
    }

    async fn hold(&self, key: &str, renew: bool, limit: Limit) -> Result<Arc<Hold>, LockError> {
        let request = LockRequest {
            renew,
            ..self.request(key)?
        };
        acquire(&self.engine.shared, request, limit).await
    }

    async fn take(&self, key: &str, renew: bool, limit: Limit) -> Result<LockGuard, LockError> {
        let hold = self.hold(key, renew, limit).await?;
        Ok(LockGuard::new(Arc::clone(&self.engine), hold))
    }
}

pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it takes too long")
}

#[tokio::test]
async fn a_guard_is_not_held_from_its_deadline_on() {
    let rig = Rig::new("", &ManualClock::new());
    let guard = rig.take("a", false, Limit::Forever).await.unwrap();
    let drift = TTL / 100 + Duration::from_millis(2);
    rig.clock
        .advance(TTL.saturating_sub(drift + Duration::from_nanos(1)));
    assert!(guard.is_held());
    rig.clock.advance(Duration::from_nanos(1));
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(soon(guard.lost()).await, LossReason::Expired);
}

#[tokio::test]
async fn a_release_that_a_late_refresh_overtakes_is_no_loss() {
    let rig = Rig::new("", &ManualClock::new());
    let shared = &rig.engine.shared;
    let hold = rig.hold("a", true, Limit::Forever).await.unwrap();
    // The holder releases, and its thread stands still before the request is sent. A refresh that was sent during the wait is
    // answered only now, sees that the acquisition is over, and cleans up.
    let acquisition = Arc::clone(hold.acquisition().unwrap());
    let released = std::pin::pin!(super::confirmed(&rig.engine.shared, &hold, 1));
    acquisition.let_go();
    let action = lock(&acquisition.life).state.settled(true);
    shared.act(&acquisition, action);
    assert!(soon(rig.take("a", true, Limit::Forever)).await.is_ok());
    let released = released.await;
    assert!(released.is_ok(), "{released:?}");
}

/// Proves P2.
#[tokio::test]
async fn a_jump_of_the_lease_clock_is_seen_without_any_call() {
    // As after a suspend: the lease clock jumps, timers do not.
    let rig = Rig::new("", &ManualClock::new());
    let guard = rig.take("a", true, Limit::Forever).await.unwrap();
    let lost = async { soon(guard.lost()).await };
    let jump = async {
        tokio::task::yield_now().await;
        rig.clock.advance(TTL);
    };
    let (reason, ()) = tokio::join!(lost, jump);
    assert_eq!(reason, LossReason::Expired);
}

#[tokio::test]
async fn the_watchdog_renews_at_a_third_and_the_guard_outlives_its_ttl() {
    let rig = Rig::new("", &ManualClock::new());
    let guard = rig.take("a", true, Limit::Forever).await.unwrap();
    for _ in 0..12 {
        let before = guard.remaining();
        rig.clock.advance(TTL / 3);
        // The heartbeat sees the time and the renewal is confirmed.
        soon(async {
            while guard.remaining() < before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_waiter_takes_over_from_a_holder_whose_lease_ended() {
    let clock = ManualClock::new();
    let (dead, alive) = (Rig::new("takeover", &clock), Rig::new("takeover", &clock));
    let guard = dead.take("a", false, Limit::Forever).await.unwrap();
    let waiting = alive.take("a", true, Limit::Forever);
    let expiry = async {
        while alive.engine.shared.lines_waiting() == 0 {
            tokio::task::yield_now().await;
        }
        clock.advance(TTL);
    };
    let (taken, ()) = tokio::join!(soon(waiting), expiry);
    let taken = taken.unwrap();
    assert!(taken.is_held() && !guard.is_held());
    assert!(taken.fencing_token() > guard.fencing_token());
    assert!(matches!(
        guard.release().await,
        Err(LockError::Lost {
            reason: LossReason::Expired,
            ..
        })
    ));
    assert!(taken.is_held(), "the late release touched nothing");
}

#[tokio::test]
async fn a_grant_after_a_wait_beyond_patience_has_a_full_lease() {
    let clock = ManualClock::new();
    let (one, two) = (Rig::new("patience", &clock), Rig::new("patience", &clock));
    let first = one.take("a", true, Limit::Forever).await.unwrap();
    let waiting = two.take("a", true, Limit::Forever);
    let release = async {
        while two.engine.shared.lines_waiting() == 0 {
            tokio::task::yield_now().await;
        }
        // The waiter's last request is now half a lease old.
        clock.advance(TTL / 2);
        first.release().await.unwrap();
    };
    let (second, ()) = tokio::join!(soon(waiting), release);
    let second = second.unwrap();
    assert!(second.remaining() > TTL * 6 / 10);
}

#[tokio::test]
async fn nothing_is_left_registered_when_all_is_over() {
    let rig = Rig::new("", &ManualClock::new());
    let guard = rig.take("a", true, Limit::Forever).await.unwrap();
    assert!(rig.take("a", true, Limit::Try).await.is_err());
    let late = rig.take("a", true, Limit::Within(Duration::from_millis(5)));
    assert!(matches!(late.await, Err(LockError::TimedOut { .. })));
    drop(guard);
    assert_eq!(rig.engine.shutdown(PATIENCE).await, 0);
    assert_eq!(rig.engine.shared.lines_waiting(), 0);
    assert!(matches!(
        rig.take("a", true, Limit::Try).await,
        Err(LockError::ShutDown)
    ));
}

#[tokio::test]
async fn shutdown_takes_a_lock_from_a_guard_that_does_not_let_go() {
    let rig = Rig::new("", &ManualClock::new());
    let guard = rig.take("a", true, Limit::Forever).await.unwrap();
    assert_eq!(rig.engine.shutdown(Duration::from_millis(100)).await, 0);
    assert_eq!(soon(guard.lost()).await, LossReason::ShutDown);
}

#[tokio::test]
async fn shutdown_ends_those_who_wait() {
    let rig = Rig::new("", &ManualClock::new());
    let guard = rig.take("a", true, Limit::Forever).await.unwrap();
    let waiting = rig.take("a", true, Limit::Forever);
    let end = async {
        while rig.engine.shared.lines_waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let shutdown = rig.engine.shutdown(PATIENCE);
        let release = async {
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        };
        tokio::join!(shutdown, release).0
    };
    let (waited, left) = tokio::join!(waiting, end);
    assert!(matches!(waited, Err(LockError::ShutDown)));
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_grant_for_a_dropped_waiter_is_handed_on_at_once() {
    let rig = Rig::new("", &ManualClock::new());
    let shared = &rig.engine.shared;
    // The trace of a late request: the lock is granted to a token without a registered acquisition.
    let key = Arc::new(LockKey::new("lock:", "a").unwrap());
    let token = shared.client.token(999_999);
    let attempt = Attempt {
        key: &key,
        token: &token,
        ttl: TTL,
        mode: Mode::Try,
        alive_for: TTL,
        claim: &PLAIN,
        reserve: 0,
    };
    let Answer::Granted { fence, .. } = shared.store.acquire(attempt).await.unwrap() else {
        panic!("it was free")
    };
    let grant = Grant {
        kind: key.kind(),
        order: fence,
        fence,
        reserve: 0,
        contended: false,
        ttl: TTL,
    };
    shared.granted(token.as_str(), grant, key.lock());
    let guard = soon(rig.take("a", true, Limit::Forever)).await.unwrap();
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_forced_release_is_announced_to_the_holder() {
    let rig = Rig::new("", &ManualClock::new());
    let guard = rig.take("a", true, Limit::Forever).await.unwrap();
    let key = Arc::new(LockKey::new("lock:", "a").unwrap());
    assert!(rig.engine.force_release(&key).await.unwrap());
    assert_eq!(soon(guard.lost()).await, LossReason::ForceReleased);
    assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
}

/// Polls a future once.
async fn once<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx)))
        .await
}

#[tokio::test]
async fn a_grant_that_was_taken_back_before_it_was_taken_is_never_held() {
    let clock = ManualClock::new();
    let (one, two) = (Rig::new("revoked", &clock), Rig::new("revoked", &clock));
    let first = one.take("a", true, Limit::Forever).await.unwrap();
    let mut waiting = Box::pin(two.take("a", true, Limit::Forever));
    assert!(once(&mut waiting).await.is_pending());
    // The waiter is granted the lock and loses it again while no task polls it.
    first.release().await.unwrap();
    let key = Arc::new(LockKey::new("lock:", "a").unwrap());
    assert!(one.engine.force_release(&key).await.unwrap());
    let third = one.take("a", true, Limit::Try).await.unwrap();
    assert!(
        once(&mut waiting).await.is_pending(),
        "it asks again and queues"
    );
    assert!(third.is_held());
    third.release().await.unwrap();
    assert!(soon(waiting).await.unwrap().is_held());
}

#[tokio::test]
async fn shutdown_reaches_an_acquisition_that_was_granted_and_does_not_know_it() {
    let rig = Rig::new("", &ManualClock::new());
    let guard = rig.take("a", true, Limit::Forever).await.unwrap();
    let mut waiting = Box::pin(rig.take("a", true, Limit::Forever));
    assert!(once(&mut waiting).await.is_pending());
    guard.release().await.unwrap();
    let (left, waited) = tokio::join!(rig.engine.shutdown(PATIENCE), waiting);
    assert!(matches!(waited, Err(LockError::ShutDown)));
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_line_that_the_server_forgot_is_put_back() {
    let clock = ManualClock::new();
    let (one, two) = (Rig::new("forgot", &clock), Rig::new("forgot", &clock));
    let first = one.take("a", true, Limit::Forever).await.unwrap();
    let mut waiting: Vec<_> = (0..3)
        .map(|_| Box::pin(two.take("a", true, Limit::Forever)))
        .collect();
    for waiter in &mut waiting {
        assert!(once(waiter).await.is_pending());
    }
    let shared = &two.engine.shared;
    let key = Arc::new(LockKey::new("lock:", "a").unwrap());
    let token = shared.client.token(1);
    shared
        .store
        .release(&key, &token, None, false)
        .await
        .unwrap();
    assert_eq!(shared.store.inspect(&key).await.unwrap().waiting, 0);
    // The next refresh finds that the line has no place in the queue, and gives it one.
    let acquisition = lock(&shared.registry).acquisitions[&1].clone();
    super::refreshes::refresh(Arc::clone(shared), acquisition).await;
    assert_eq!(shared.store.inspect(&key).await.unwrap().waiting, 1);
    first.release().await.unwrap();
    for waiter in waiting {
        soon(waiter).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_lock_is_cleaned_up_though_the_last_handle_goes_at_once() {
    let clock = ManualClock::new();
    let (one, two) = (Rig::new("handle", &clock), Rig::new("handle", &clock));
    let guard = one.take("a", true, Limit::Forever).await.unwrap();
    let view = guard.view();
    let lease = view.hold.acquisition().unwrap().lease().unwrap();
    assert!(lease.lose(LossReason::Gone));
    drop(view);
    drop((guard, one));
    assert!(soon(two.take("a", true, Limit::Forever)).await.is_ok());
}

#[tokio::test]
async fn shutdown_takes_any_limit() {
    let rig = Rig::new("", &ManualClock::new());
    assert_eq!(rig.engine.shutdown(Duration::MAX).await, 0);
}

#[test]
fn a_manager_whose_runtime_has_ended_grants_nothing() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let rig = runtime()
        .unwrap()
        .block_on(async { Rig::new("", &ManualClock::new()) });
    let refused = runtime()
        .unwrap()
        .block_on(rig.take("a", true, Limit::Forever));
    assert!(matches!(refused, Err(LockError::InvalidConfig { .. })));
}

#[test]
fn shutdown_counts_what_an_ended_runtime_leaves_until_its_ttl() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (home, other) = (runtime(), runtime());
    let (rig, [dropped, held]) = home.block_on(async {
        let rig = Rig::new("", &ManualClock::new());
        let dropped = rig.take("a", true, Limit::Forever).await.unwrap();
        let held = rig.take("b", true, Limit::Forever).await.unwrap();
        (rig, [dropped, held])
    });
    drop(home);
    drop(dropped);
    let shutdown = || other.block_on(rig.engine.shutdown(Duration::from_millis(100)));
    assert_eq!(shutdown(), 2);
    assert!(!held.is_held());
    rig.clock.advance(TTL);
    assert_eq!(shutdown(), 0, "the ttl has passed");
}

/// Proves P12.
#[tokio::test]
async fn max_hold_is_announced_though_timers_stood_still() {
    let rig = Rig::new("", &ManualClock::new());
    let request = LockRequest {
        max_hold: (TTL / 2).into(),
        ..rig.request("a").unwrap()
    };
    let hold = acquire(&rig.engine.shared, request, Limit::Forever).await;
    let guard = LockGuard::new(Arc::clone(&rig.engine), hold.unwrap());
    let lost = async { soon(guard.lost()).await };
    let jump = async {
        tokio::task::yield_now().await;
        // As after a suspend: past the cap and before the end of the lease.
        rig.clock.advance(TTL * 6 / 10);
    };
    let started = tokio::time::Instant::now();
    let (reason, ()) = tokio::join!(lost, jump);
    assert_eq!(reason, LossReason::MaxHold);
    assert!(
        started.elapsed() < TTL / 2,
        "told by the heartbeat, not by the timer"
    );
}

/// Another client finds the lock free. A late request of the abandoned acquisition then takes it, and is undone.
async fn is_undone_when_it_lands(shared: &Shared, acquisition: &Acquisition, other: &Rig) {
    soon(async {
        while other.take("a", true, Limit::Try).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let token = shared.token(acquisition);
    let late = acquisition.attempt(&token, Mode::Try, shared.config.terms(TTL).unwrap(), 0);
    soon(async {
        while !matches!(shared.store.acquire(late).await, Ok(Answer::Granted { .. })) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(soon(other.take("a", true, Limit::Forever)).await.is_ok());
}

#[tokio::test]
async fn a_request_that_lands_after_a_drop_that_was_confirmed_is_undone() {
    let rig = Rig::new("", &ManualClock::new());
    let shared = &rig.engine.shared;
    let guard = rig.take("a", true, Limit::Forever).await.unwrap();
    let acquisition = Arc::clone(guard.view().hold.acquisition().unwrap());
    // A request without an answer may still be under way, on an old connection.
    lock(&acquisition.life).state.count_outstanding();
    drop(guard);
    is_undone_when_it_lands(shared, &acquisition, &rig).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_request_is_undone_though_an_answered_one_had_the_lock() {
    let clock = ManualClock::new();
    let (one, two) = (Rig::new("late", &clock), Rig::new("late", &clock));
    let first = one.take("a", true, Limit::Forever).await.unwrap();
    let mut waiting = Box::pin(two.take("a", true, Limit::Forever));
    assert!(once(&mut waiting).await.is_pending());
    let shared = &two.engine.shared;
    let acquisition = lock(&shared.registry).acquisitions[&1].clone();
    // Its refresh got no answer. Its earlier place brings it the lock, and the waiter leaves before it has seen the grant.
    lock(&acquisition.life).state.count_outstanding();
    first.release().await.unwrap();
    drop(waiting);
    // Paused time stands still as long as a task has work, so the clean-up has looked once.
    is_undone_when_it_lands(shared, &acquisition, &one).await;
}

#[tokio::test]
async fn a_lock_that_its_taker_never_saw_is_not_kept() {
    let rig = Rig::new("", &ManualClock::new());
    let guard = rig.take("a", true, Limit::Forever).await.unwrap();
    let request = LockRequest {
        at_least: TTL.into(),
        ..rig.request("a").unwrap()
    };
    // A third waiter behind them, so that reserved tokens are asked for.
    let mut waiting: Vec<_> = (0..3)
        .map(|_| {
            Box::pin(acquire(
                &rig.engine.shared,
                rig.request("a").unwrap(),
                Limit::Forever,
            ))
        })
        .collect();
    let mut keeper = Box::pin(acquire(&rig.engine.shared, request, Limit::Forever));
    for waiter in &mut waiting {
        assert!(once(waiter).await.is_pending());
    }
    assert!(once(&mut keeper).await.is_pending());
    guard.release().await.unwrap();
    for waiter in waiting {
        let hold = soon(waiter).await.unwrap();
        rig.engine.shared.end(&hold);
    }
    // The keeper has been served by local hand-over by now, and leaves before it has seen the lock.
    drop(keeper);
    let next = soon(rig.take("a", true, Limit::Within(PATIENCE))).await;
    assert!(next.is_ok(), "{next:?}");
}
