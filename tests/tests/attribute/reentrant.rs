//! `reentrant`: functions that call each other over one key enter again, and every hold is given back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lock_core::{
    FencingToken, LockError, LockGuard, LockManager, LossReason, Owner, distributed_lock,
};
use lock_tests::{LIMIT, Proxy, Request, TestServer, eventually};
use tokio::sync::Notify;

use crate::{both, in_time};

/// Longer than a test may take: what goes before has been released.
const LONG: Duration = Duration::from_secs(600);

/// A wait that ends, and leaves a slow machine the time for an answer.
const SOON: Duration = Duration::from_millis(500);

async fn holds(locks: &LockManager, key: &str) -> u64 {
    let lock = locks.reentrant_lock(key);
    lock.inspect().await.unwrap().holds()
}

/// What eight functions see of their one lock, from the first to the last and back.
struct Dive<'a> {
    locks: &'a LockManager,
    key: &'a str,
    ttl: Duration,
    /// Before and after the call of the next: the guard's count, that of `LockGuard::current`, and the server's.
    counts: Mutex<Vec<(u32, u32, u64)>>,
    tokens: Mutex<Vec<FencingToken>>,
    owners: Mutex<Vec<Owner>>,
    /// The last one tells that it is there, and waits.
    down: Notify,
    up: Notify,
}

impl<'a> Dive<'a> {
    fn new(locks: &'a LockManager, key: &'a str, ttl: Duration) -> Self {
        Self {
            locks,
            key,
            ttl,
            counts: Mutex::default(),
            tokens: Mutex::default(),
            owners: Mutex::default(),
            down: Notify::new(),
            up: Notify::new(),
        }
    }

    async fn look(&self, held: &LockGuard) {
        let current = LockGuard::current().expect("a hold");
        let server = holds(self.locks, self.key).await;
        let counts = (held.hold_count(), current.hold_count(), server);
        self.counts.lock().unwrap().push(counts);
        self.tokens.lock().unwrap().push(held.fencing_token());
        let owner = Owner::current().expect("a scope");
        self.owners.lock().unwrap().push(owner);
    }

    /// Goes down, comes up, and is sure to have seen what it should.
    async fn run(&self) {
        assert_eq!(first(self).await.unwrap(), 8);
        assert_eq!(holds(self.locks, self.key).await, 0, "all is given back");
        let expected = (1..=8).chain((1..=8).rev());
        let expected: Vec<_> = expected.map(|n: u32| (n, n, u64::from(n))).collect();
        assert_eq!(*self.counts.lock().unwrap(), expected);
        let tokens = self.tokens.lock().unwrap();
        assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
        let owners = self.owners.lock().unwrap();
        assert!(owners.iter().all(|owner| *owner == owners[0]));
        assert_eq!(Owner::current(), None, "the scope ends with the call");
    }
}

/// A function that locks the key once more, and calls the next.
macro_rules! level {
    ($name:ident, $next:ident) => {
        #[distributed_lock(key = dive.key, ttl = dive.ttl, reentrant, client = dive.locks, guard = held)]
        async fn $name(dive: &Dive<'_>) -> Result<u32, LockError> {
            dive.look(held).await;
            let below = $next(dive).await?;
            dive.look(held).await;
            Ok(below + 1)
        }
    };
}

level!(first, second);
level!(second, third);
level!(third, fourth);
level!(fourth, fifth);
level!(fifth, sixth);
level!(sixth, seventh);
level!(seventh, eighth);
level!(eighth, bottom);

async fn bottom(dive: &Dive<'_>) -> Result<u32, LockError> {
    dive.down.notify_one();
    dive.up.notified().await;
    Ok(0)
}

#[tokio::test]
async fn eight_functions_nested_count_up_to_eight_and_back_with_one_token() {
    both(async |locks| {
        let dive = Dive::new(locks, "reentrant:eight", LONG);
        dive.up.notify_one();
        dive.run().await;
    })
    .await;
}

fn is_extend(request: &Request) -> bool {
    request.script() == Some("reentrant extend")
}

#[tokio::test]
async fn eight_nested_holds_are_renewed_by_one_request_for_one_lease() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    let locks = LockManager::builder().command_deadline(LIMIT);
    let locks = locks.connect(&proxy.url()).await.unwrap();
    let ttl = Duration::from_secs(3);
    let dive = Dive::new(&locks, "reentrant:renewal", ttl);
    let renewals = 4;
    let at_the_bottom = async {
        dive.down.notified().await;
        let (before, began) = (proxy.count(is_extend), Instant::now());
        proxy.on_count(before + renewals, is_extend).await;
        let took = began.elapsed();
        dive.up.notify_one();
        // The first may have been due when the clock was started; eight in each tick would need no further tick.
        assert!(took >= ttl / 3 * 2, "{renewals} renewals within {took:?}");
    };
    let both = async { tokio::join!(dive.run(), at_the_bottom) };
    in_time(Box::pin(both)).await;

    let mut extends = proxy.requests();
    extends.retain(is_extend);
    let leases: Vec<_> = extends.iter().map(|extend| &extend.args()[2..]).collect();
    assert!(leases.len() >= renewals);
    assert!(
        leases
            .iter()
            .all(|lease| lease[0] == b"2" && *lease == leases[0]),
        "not one lease: {leases:?}"
    );
    assert_eq!(locks.shutdown(LIMIT).await, 0);
}

#[derive(Debug)]
enum Trouble {
    Lock(LockError),
    AtTheBottom,
}

impl From<LockError> for Trouble {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

/// One function that calls itself, and ends in its own way where nothing is left to go down.
#[distributed_lock(key = key, ttl = LONG, reentrant, client = locks, guard = held)]
async fn descend<End: Future<Output = Result<(), Trouble>>>(
    locks: &LockManager,
    key: &str,
    left: u32,
    depth: &AtomicU32,
    end: End,
) -> Result<u32, Trouble> {
    depth.store(held.hold_count(), Ordering::SeqCst);
    if left == 0 {
        end.await?;
        return Ok(held.hold_count());
    }
    let deepest = Box::pin(descend(locks, key, left - 1, depth, end)).await?;
    Ok(deepest)
}

#[tokio::test]
async fn a_function_that_calls_itself_enters_again() {
    both(async |locks| {
        let depth = AtomicU32::new(0);
        let end = async { Ok(()) };
        let deepest = descend(locks, "reentrant:itself", 4, &depth, end).await;
        assert_eq!(deepest.unwrap(), 5);
        assert_eq!(holds(locks, "reentrant:itself").await, 0);
    })
    .await;
}

#[tokio::test]
async fn an_error_at_depth_five_gives_back_every_hold_before_the_caller_has_it() {
    both(async |locks| {
        let depth = AtomicU32::new(0);
        let end = async { Err(Trouble::AtTheBottom) };
        let outcome = descend(locks, "reentrant:error", 4, &depth, end).await;
        assert!(matches!(outcome, Err(Trouble::AtTheBottom)), "{outcome:?}");
        assert_eq!(depth.into_inner(), 5);
        assert_eq!(holds(locks, "reentrant:error").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_panic_at_depth_five_gives_back_every_hold() {
    both(async |locks| {
        let mine = locks.clone();
        let call = tokio::spawn(async move {
            let depth = AtomicU32::new(0);
            let end = async {
                assert_eq!(depth.load(Ordering::SeqCst), 5);
                std::panic::resume_unwind(Box::new("at the bottom"));
            };
            let _ = descend(&mine, "reentrant:panic", 4, &depth, end).await;
        });
        let panic = call.await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"at the bottom"));
        until_free(locks, "reentrant:panic").await;
    })
    .await;
}

#[tokio::test]
async fn a_call_cancelled_at_depth_five_gives_back_every_hold() {
    both(async |locks| {
        let (depth, there) = (AtomicU32::new(0), Notify::new());
        let end = async {
            there.notify_one();
            std::future::pending().await
        };
        tokio::select! {
            outcome = descend(locks, "reentrant:cancel", 4, &depth, end) => panic!("{outcome:?}"),
            () = there.notified() => {}
        }
        assert_eq!(depth.into_inner(), 5);
        until_free(locks, "reentrant:cancel").await;
    })
    .await;
}

async fn until_free(locks: &LockManager, key: &str) {
    eventually("every hold is given back", LIMIT, async || {
        holds(locks, key).await == 0
    })
    .await;
}

#[tokio::test]
async fn an_inner_call_that_is_cancelled_gives_back_its_own_hold_alone() {
    both(async |locks| {
        let (depth, there) = (AtomicU32::new(0), Notify::new());
        let outer = async {
            let inner_end = async {
                there.notify_one();
                std::future::pending().await
            };
            let inner_depth = AtomicU32::new(0);
            tokio::select! {
                outcome = descend(locks, "reentrant:inner", 2, &inner_depth, inner_end) => panic!("{outcome:?}"),
                () = there.notified() => {}
            }
            eventually("three of four are given back", LIMIT, async || {
                holds(locks, "reentrant:inner").await == 1
            })
            .await;
            let current = LockGuard::current().expect("the outer one");
            assert!(current.is_held());
            assert_eq!(current.hold_count(), 1);
            Ok(())
        };
        let call = descend(locks, "reentrant:inner", 0, &depth, outer);
        Box::pin(call).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_lock_that_is_taken_away_ends_the_whole_nest() {
    both(async |locks| {
        let depth = AtomicU32::new(0);
        let end = async {
            let taken = locks
                .reentrant_lock("reentrant:taken")
                .force_release()
                .await;
            assert!(taken.unwrap());
            std::future::pending().await
        };
        let call = Box::pin(descend(locks, "reentrant:taken", 4, &depth, end));
        let outcome = tokio::time::timeout(LIMIT, call).await.expect("told of it");
        let Err(Trouble::Lock(LockError::Lost { reason, .. })) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(reason, LossReason::ForceReleased);
        assert_eq!(depth.into_inner(), 5);
    })
    .await;
}

/// Proves P12.
#[tokio::test]
async fn max_hold_of_an_inner_function_ends_that_one_alone() {
    #[distributed_lock(key = "reentrant:cap", reentrant, client = locks)]
    async fn outer(locks: &LockManager) -> Result<bool, LockError> {
        let Err(LockError::Lost { reason, .. }) = inner(locks).await else {
            panic!("it ends at its `max_hold`");
        };
        assert_eq!(reason, LossReason::MaxHold);
        Ok(LockGuard::current().is_some_and(|view| view.is_held()))
    }
    #[distributed_lock(key = "reentrant:cap", reentrant, max_hold = "30ms", client = locks)]
    async fn inner(locks: &LockManager) -> Result<(), LockError> {
        std::future::pending().await
    }
    both(async |locks| assert!(outer(locks).await.unwrap())).await;
}

#[tokio::test]
async fn another_owner_is_waited_for_or_turned_away() {
    #[distributed_lock(key = "reentrant:other", wait = wait, reentrant, client = locks)]
    async fn work(locks: &LockManager, wait: Duration) -> Result<u32, LockError> {
        Ok(7)
    }
    #[distributed_lock(key = "reentrant:other", wait = "0s", on_busy = skip, reentrant, client = locks)]
    async fn skip(locks: &LockManager) -> Option<u32> {
        Some(7)
    }
    #[distributed_lock(key = "reentrant:other", reentrant, client = locks)]
    async fn patient(locks: &LockManager) -> Result<u32, LockError> {
        Ok(7)
    }
    both(async |locks| {
        let lock = locks
            .reentrant_lock("reentrant:other")
            .owner(&Owner::new())
            .ttl(LONG);
        let held = lock.acquire().await.unwrap();
        let busy = work(locks, Duration::ZERO).await;
        assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
        let late = work(locks, SOON).await;
        assert!(matches!(late, Err(LockError::TimedOut { .. })), "{late:?}");
        assert_eq!(skip(locks).await, None);

        let release = async {
            eventually("it waits", LIMIT, async || {
                lock.inspect().await.unwrap().waiters() == 1
            })
            .await;
            held.release().await.unwrap();
        };
        let (waited, ()) = tokio::join!(patient(locks), release);
        assert_eq!(waited.unwrap(), 7);
        assert_eq!(work(locks, Duration::ZERO).await.unwrap(), 7);
        assert_eq!(skip(locks).await, Some(7));
    })
    .await;
}

#[tokio::test]
async fn with_several_keys_what_is_held_is_entered_again() {
    #[distributed_lock(keys = ["reentrant:b", "reentrant:a"], reentrant, client = locks, guard = held)]
    async fn outer(locks: &LockManager) -> Result<[u32; 2], LockError> {
        let inner = inner(locks).await?;
        assert_eq!(inner, [2, 1, 2], "the one in the middle is new");
        Ok([held[0].hold_count(), held[1].hold_count()])
    }
    #[distributed_lock(keys = ["reentrant:a", "reentrant:c", "reentrant:b"], reentrant, client = locks, guard = held)]
    async fn inner(locks: &LockManager) -> Result<[u32; 3], LockError> {
        Ok([0, 1, 2].map(|at: usize| held[at].hold_count()))
    }
    both(async |locks| assert_eq!(outer(locks).await.unwrap(), [1, 1])).await;
}

#[tokio::test]
async fn several_keys_of_which_one_is_anothers_are_not_entered_at_all() {
    #[distributed_lock(keys = ["reentrant:free", "reentrant:taken"], wait = wait, reentrant, client = locks)]
    async fn work(locks: &LockManager, wait: Duration) -> Result<(), LockError> {
        unreachable!("another has one of the keys")
    }
    both(async |locks| {
        let other = locks.reentrant_lock("reentrant:taken").owner(&Owner::new());
        let _other = other.acquire().await.unwrap();
        for wait in [Duration::ZERO, SOON] {
            assert!(work(locks, wait).await.unwrap_err().is_contention());
            assert_eq!(holds(locks, "reentrant:free").await, 0);
        }
    })
    .await;
}

#[tokio::test]
async fn reentrant_is_a_switch_and_the_two_kinds_have_locks_of_their_own() {
    #[distributed_lock(key = "reentrant:kind", wait = "0s", reentrant = true, client = locks)]
    async fn counted(locks: &LockManager) -> Result<u64, LockError> {
        Ok(holds(locks, "reentrant:kind").await)
    }
    #[distributed_lock(key = "reentrant:kind", wait = "0s", reentrant = false, client = locks)]
    async fn exclusive(locks: &LockManager) -> Result<u64, LockError> {
        assert!(locks.lock("reentrant:kind").inspect().await?.is_held());
        assert_eq!(holds(locks, "reentrant:kind").await, 0);
        counted(locks).await
    }
    both(async |locks| assert_eq!(exclusive(locks).await.unwrap(), 1)).await;
}

#[tokio::test]
async fn ttl_and_renew_are_those_of_the_arguments() {
    #[distributed_lock(key = "reentrant:long", ttl = "10m", reentrant, client = locks, guard = held)]
    async fn long(locks: &LockManager) -> Result<Duration, LockError> {
        Ok(held.remaining())
    }
    #[distributed_lock(key = "reentrant:fixed", ttl = "100ms", renew = false, reentrant, client = locks)]
    async fn fixed(locks: &LockManager) -> Result<(), LockError> {
        std::future::pending().await
    }
    both(async |locks| {
        assert!(long(locks).await.unwrap() > Duration::from_secs(300));
        let Err(LockError::Lost { reason, .. }) = fixed(locks).await else {
            panic!("nobody renews it");
        };
        assert_eq!(reason, LossReason::Expired);
    })
    .await;
}
