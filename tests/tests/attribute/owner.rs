//! Who shares a reentrant lock: whoever has the same owner, and nobody by accident.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{LockError, LockGuard, LockManager, Owner, distributed_lock};
use lock_tests::{LIMIT, TestServer, eventually};
use tokio::sync::Barrier;
use tracing::instrument;

use crate::{both, in_time, memory};

/// How many are inside at once.
#[derive(Default)]
struct Room {
    inside: AtomicU32,
    most: AtomicU32,
}

impl Room {
    async fn visit(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[distributed_lock(key = key, reentrant, client = locks)]
async fn visit(locks: &LockManager, key: &str, room: &Room) -> Result<Owner, LockError> {
    room.visit().await;
    Ok(Owner::current().expect("a scope"))
}

/// Returns when as many are inside as the barrier waits for.
#[distributed_lock(key = key, reentrant, client = locks, guard = held)]
async fn meet(locks: &LockManager, key: &str, barrier: &Barrier) -> Result<u32, LockError> {
    barrier.wait().await;
    let count = held.hold_count();
    barrier.wait().await;
    Ok(count)
}

/// One try, by whoever the owner of the scope is.
#[distributed_lock(key = key, wait = "0s", reentrant, client = locks, guard = held)]
async fn enter(locks: LockManager, key: &'static str) -> Result<u32, LockError> {
    Ok(held.hold_count())
}

#[tokio::test]
async fn joined_calls_do_not_share_a_lock() {
    both(async |locks| {
        let room = Room::default();
        let call = || visit(locks, "owner:join", &room);
        let (a, b, c) = in_time(async { tokio::join!(call(), call(), call()) }).await;
        let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
        assert_eq!(room.most.into_inner(), 1, "one at a time");
        assert!(a != b && b != c && c != a);
    })
    .await;
}

#[tokio::test]
async fn joined_calls_that_share_an_owner_share_the_lock() {
    both(async |locks| {
        let barrier = Barrier::new(2);
        let call = || meet(locks, "owner:shared", &barrier);
        let owner = Owner::new();
        let shared = owner.scope(async { tokio::join!(call(), call()) });
        let (one, other) = in_time(shared).await;
        assert_eq!((one.unwrap(), other.unwrap()), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn calls_that_a_body_joins_share_its_lock() {
    #[distributed_lock(key = "owner:body", reentrant, client = locks)]
    async fn outer(locks: &LockManager) -> Result<(u32, u32), LockError> {
        let barrier = Barrier::new(2);
        let call = || meet(locks, "owner:body", &barrier);
        let (one, other) = tokio::join!(call(), call());
        Ok((one?, other?))
    }
    both(async |locks| {
        let call = Box::pin(outer(locks));
        assert_eq!(in_time(call).await.unwrap(), (3, 3));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawned_tasks_do_not_share_a_lock() {
    both(async |locks| {
        let room = Arc::new(Room::default());
        let calls = (0..8).map(|_| {
            let (locks, room) = (locks.clone(), Arc::clone(&room));
            tokio::spawn(async move { visit(&locks, "owner:spawn", &room).await })
        });
        let mut owners = Vec::new();
        for call in calls.collect::<Vec<_>>() {
            let owner = in_time(call).await.unwrap().unwrap();
            assert!(!owners.contains(&owner), "an owner each");
            owners.push(owner);
        }
        assert_eq!(room.most.load(Ordering::SeqCst), 1, "one at a time");
    })
    .await;
}

#[tokio::test]
async fn tasks_that_a_holder_spawns_do_not_share_its_lock() {
    #[distributed_lock(key = "owner:holder", reentrant, client = locks)]
    async fn holder(locks: &LockManager) -> Result<(), LockError> {
        let spawn = || tokio::spawn(enter(locks.clone(), "owner:holder"));
        let (one, other) = tokio::join!(spawn(), spawn());
        for outcome in [one.unwrap(), other.unwrap()] {
            assert!(
                matches!(outcome, Err(LockError::Busy { .. })),
                "{outcome:?}"
            );
        }
        // Itself it can.
        assert_eq!(enter(locks.clone(), "owner:holder").await?, 2);
        Ok(())
    }
    both(async |locks| Box::pin(holder(locks)).await.unwrap()).await;
}

#[tokio::test]
async fn tasks_that_are_given_the_owner_share_the_lock() {
    #[distributed_lock(key = "owner:passed", reentrant, client = locks)]
    async fn holder(locks: &LockManager) -> Result<u32, LockError> {
        let owner = Owner::current().expect("a scope");
        let part = owner.scope(enter(locks.clone(), "owner:passed"));
        tokio::spawn(part).await.expect("no panic")
    }
    both(async |locks| {
        let call = Box::pin(holder(locks));
        assert_eq!(in_time(call).await.unwrap(), 2);
    })
    .await;
}

#[tokio::test]
async fn an_owner_out_of_a_header_enters_what_another_service_holds() {
    /// A handler of the service that is called: the header may be missing or wrong.
    #[distributed_lock(
        key = "owner:header",
        wait = "0s",
        reentrant,
        owner = header.map(Owner::parse).transpose()?,
        client = locks
    )]
    async fn handle(locks: &LockManager, header: Option<&str>) -> Result<u64, LockError> {
        let lock = locks.reentrant_lock("owner:header");
        Ok(lock.inspect().await?.holds())
    }
    let test = async {
        let server = TestServer::start().await;
        let connect = async || {
            let patient = LockManager::builder().command_deadline(LIMIT);
            patient.connect(&server.url()).await.unwrap()
        };
        let (here, there) = (connect().await, connect().await);
        let owner = Owner::new();
        let lock = here.reentrant_lock("owner:header").owner(&owner);
        let held = lock.acquire().await.unwrap();

        let header = owner.to_string();
        assert_eq!(handle(&there, Some(&header)).await.unwrap(), 2);
        assert_eq!(lock.inspect().await.unwrap().holds(), 1);

        let stranger = Owner::new().to_string();
        for header in [None, Some(&*stranger)] {
            let refused = handle(&there, header).await;
            assert!(
                matches!(refused, Err(LockError::Busy { .. })),
                "{refused:?}"
            );
        }
        for nonsense in ["", "me", &header[1..]] {
            let refused = handle(&there, Some(nonsense)).await;
            assert!(
                matches!(refused, Err(LockError::InvalidConfig { .. })),
                "{refused:?}"
            );
        }
        held.release().await.unwrap();
        assert_eq!(handle(&there, None).await.unwrap(), 1);
    };
    in_time(Box::pin(test)).await;
}

#[tokio::test]
async fn an_owner_is_given_by_value_by_reference_or_perhaps_not_at_all() {
    #[distributed_lock(key = "owner:form", wait = "0s", reentrant, owner = owner, client = locks)]
    async fn value(locks: &LockManager, owner: Owner) -> Result<Owner, LockError> {
        assert_eq!(Owner::current(), Some(owner.clone()));
        Ok(owner)
    }
    #[distributed_lock(key = "owner:form", wait = "0s", reentrant, owner = owner, client = locks)]
    async fn reference(locks: &LockManager, owner: &Owner) -> Result<Owner, LockError> {
        Ok(Owner::current().expect("a scope"))
    }
    #[distributed_lock(key = "owner:form", wait = "0s", reentrant, owner = owner, client = locks)]
    async fn optional(locks: &LockManager, owner: Option<Owner>) -> Result<Owner, LockError> {
        Ok(owner.or_else(Owner::current).expect("a scope"))
    }
    #[distributed_lock(key = "owner:form", wait = "0s", reentrant, owner = owner, client = locks)]
    async fn borrowed(locks: &LockManager, owner: Option<&Owner>) -> Result<Owner, LockError> {
        Ok(Owner::current().expect("a scope"))
    }
    let test = async {
        let locks = memory().await;
        let me = Owner::new();
        let lock = locks.reentrant_lock("owner:form").owner(&me);
        let held = lock.acquire().await.unwrap();
        assert_eq!(value(&locks, me.clone()).await.unwrap(), me);
        assert_eq!(reference(&locks, &me).await.unwrap(), me);
        assert_eq!(optional(&locks, Some(me.clone())).await.unwrap(), me);
        assert_eq!(borrowed(&locks, Some(&me)).await.unwrap(), me);
        // None is as without `owner`: the enclosing one, or one of its own.
        let within = me.scope(borrowed(&locks, None)).await;
        assert_eq!(within.unwrap(), me);
        assert!(optional(&locks, None).await.unwrap_err().is_contention());
        held.release().await.unwrap();
        assert_ne!(optional(&locks, None).await.unwrap(), me);
    };
    in_time(Box::pin(test)).await;
}

#[tokio::test]
async fn the_owner_is_asked_for_once_and_before_the_body() {
    #[distributed_lock(
        key = said.and("key"),
        reentrant,
        owner = said.owner(),
        ttl = Duration::from_millis(said.ttl()),
        client = said.client(locks)
    )]
    async fn work(locks: &LockManager, said: Said) -> Result<Vec<&'static str>, LockError> {
        said.and("body");
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        Ok(said.0.into_inner().unwrap())
    }
    #[derive(Default)]
    struct Said(Mutex<Vec<&'static str>>);
    impl Said {
        fn and(&self, what: &'static str) -> &'static str {
            self.0.lock().unwrap().push(what);
            what
        }
        fn owner(&self) -> Owner {
            self.and("owner");
            Owner::new()
        }
        fn ttl(&self) -> u64 {
            self.and("ttl");
            10_000
        }
        fn client<'a>(&self, locks: &'a LockManager) -> &'a LockManager {
            self.and("client");
            locks
        }
    }
    let said = work(&memory().await, Said::default()).await.unwrap();
    assert_eq!(said, ["client", "owner", "key", "ttl", "body"]);
}

#[tokio::test]
async fn a_given_owner_goes_before_the_enclosing_one_also_in_calls_of_the_body() {
    #[distributed_lock(key = "owner:given", reentrant, owner = owner, client = locks)]
    async fn work(locks: &LockManager, owner: &Owner) -> Result<u32, LockError> {
        assert_eq!(Owner::current().as_ref(), Some(owner));
        enter(locks.clone(), "owner:given").await
    }
    both(async |locks| {
        let (outer, given) = (Owner::new(), Owner::new());
        let within = async {
            let count = work(locks, &given).await.unwrap();
            assert_eq!(Owner::current(), Some(outer.clone()), "as before the call");
            count
        };
        assert_eq!(outer.scope(within).await, 2);
    })
    .await;
}

#[tokio::test]
async fn an_exclusive_function_in_between_leaves_the_owner_as_it_is() {
    #[distributed_lock(key = "owner:between", reentrant, client = locks)]
    async fn outer(locks: &LockManager) -> Result<u32, LockError> {
        between(locks).await
    }
    #[distributed_lock(key = "owner:between", client = locks)]
    async fn between(locks: &LockManager) -> Result<u32, LockError> {
        enter(locks.clone(), "owner:between").await
    }
    both(async |locks| assert_eq!(outer(locks).await.unwrap(), 2)).await;
}

#[tokio::test]
async fn calls_side_by_side_see_their_own_owner_at_every_poll() {
    #[distributed_lock(key = key, reentrant, owner = owner, on_lost = continue, client = locks)]
    async fn ran_on(locks: &LockManager, key: &str, owner: &Owner) -> Result<(), LockError> {
        see(owner).await;
        Ok(())
    }
    #[distributed_lock(key = key, reentrant, owner = owner, client = locks)]
    async fn cancelled(locks: &LockManager, key: &str, owner: &Owner) -> Result<(), LockError> {
        see(owner).await;
        Ok(())
    }
    async fn see(owner: &Owner) {
        for _ in 0..20 {
            assert_eq!(Owner::current().as_ref(), Some(owner));
            tokio::task::yield_now().await;
        }
    }
    let locks = memory().await;
    let (one, other) = (Owner::new(), Owner::new());
    let watch = async {
        for _ in 0..20 {
            assert_eq!(Owner::current(), None);
            tokio::task::yield_now().await;
        }
    };
    let (a, b, ()) = tokio::join!(
        ran_on(&locks, "owner:side:a", &one),
        cancelled(&locks, "owner:side:b", &other),
        watch
    );
    a.unwrap();
    b.unwrap();
}

#[tokio::test]
async fn a_body_that_is_dropped_for_a_loss_is_dropped_in_its_scope() {
    struct Last<'a>(&'a Mutex<Option<Owner>>);
    impl Drop for Last<'_> {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Owner::current();
        }
    }
    #[distributed_lock(key = "owner:drop", reentrant, max_hold = "20ms", owner = owner, client = locks)]
    async fn work(
        locks: &LockManager,
        owner: &Owner,
        last: &Mutex<Option<Owner>>,
    ) -> Result<(), LockError> {
        let _last = Last(last);
        std::future::pending().await
    }
    let test = async {
        let (owner, last) = (Owner::new(), Mutex::new(None));
        let outcome = work(&memory().await, &owner, &last).await;
        assert!(
            matches!(outcome, Err(LockError::Lost { .. })),
            "{outcome:?}"
        );
        assert_eq!(last.into_inner().unwrap(), Some(owner));
    };
    in_time(Box::pin(test)).await;
}

/// A service with methods that call each other over one account.
#[async_trait]
trait Accounts: Sync {
    fn locks(&self) -> &LockManager;

    #[distributed_lock(key = "owner:account:{id}", reentrant, client = self.locks())]
    async fn transfer(&self, id: u64, by: Option<Owner>) -> Result<u32, LockError> {
        self.withdraw(id, by).await
    }

    async fn withdraw(&self, id: u64, by: Option<Owner>) -> Result<u32, LockError>;
}

struct Bank(LockManager);

#[async_trait]
impl Accounts for Bank {
    fn locks(&self) -> &LockManager {
        &self.0
    }

    #[distributed_lock(key = "owner:account:{id}", wait = "0s", reentrant, owner = by, client = self.0)]
    async fn withdraw(&self, id: u64, by: Option<Owner>) -> Result<u32, LockError> {
        self.audit("withdraw", &id).await
    }
}

impl Bank {
    #[instrument(skip(self, what))]
    #[distributed_lock(key = "owner:account:{id}", wait = "0s", reentrant, client = self.0)]
    async fn audit<T: AsRef<str>>(
        &self,
        what: T,
        id: &(impl std::fmt::Display + std::fmt::Debug + Sync),
    ) -> Result<u32, LockError> {
        assert_eq!(what.as_ref(), "withdraw");
        Ok(LockGuard::current().expect("a hold").hold_count())
    }
}

#[tokio::test]
async fn methods_generics_and_async_trait_reenter() {
    both(async |locks| {
        let bank = Bank(locks.clone());
        assert_eq!(bank.transfer(7, None).await.unwrap(), 3);
        assert_eq!(bank.withdraw(7, Some(Owner::new())).await.unwrap(), 2);
        // The owner that is given is not the one who holds the lock.
        let stranger = bank.transfer(7, Some(Owner::new())).await;
        assert!(
            matches!(stranger, Err(LockError::Deadlock { .. })),
            "{stranger:?}"
        );
        eventually("all is given back", LIMIT, async || {
            !locks
                .reentrant_lock("owner:account:7")
                .inspect()
                .await
                .unwrap()
                .is_held()
        })
        .await;
    })
    .await;
}
