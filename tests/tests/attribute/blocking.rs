//! The attribute on a function that is not async.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use lock_core::blocking::Blocking;
use lock_core::testing::MemoryServer;
use lock_core::{LockError, LockGuard, LockManager, LossReason, distributed_lock};

type Locks = Blocking<LockManager>;

#[derive(Debug, PartialEq)]
enum PayError {
    Lock(String),
    Declined,
}

impl From<LockError> for PayError {
    fn from(error: LockError) -> Self {
        Self::Lock(error.to_string())
    }
}

#[distributed_lock(key = "order:{order}", wait = "0s", client = locks)]
fn pay(locks: &Locks, order: u64, cents: u64) -> Result<u64, PayError> {
    if cents == 0 {
        return Err(PayError::Declined);
    }
    let twice = u64::checked_mul(cents, 2).ok_or(PayError::Declined)?;
    Ok(twice)
}

#[test]
fn a_function_runs_under_its_lock_on_the_thread_that_calls_it() {
    let locks = Blocking::connect("memory://").unwrap();
    assert_eq!(pay(&locks, 7, 5), Ok(10));
    assert_eq!(pay(&locks, 7, 0), Err(PayError::Declined));
    assert_eq!(pay(&locks, 7, u64::MAX), Err(PayError::Declined));
    let held = locks.lock("order:7").acquire().unwrap();
    assert!(matches!(pay(&locks, 7, 5), Err(PayError::Lock(why)) if why.contains("order:7")));
    assert_eq!(pay(&locks, 8, 5), Ok(10));
    held.release().unwrap();
    assert_eq!(pay(&locks, 7, 5), Ok(10));
}

struct Shop<T> {
    locks: LockManager,
    sold: Vec<T>,
}

impl<T: Clone> Shop<T> {
    #[distributed_lock(keys = ["stock", "till"], client = self.locks, guard = guards)]
    fn sell(&mut self, what: T) -> Result<(&mut Vec<T>, u64), LockError> {
        let first: &LockGuard = &guards[0];
        let fence = first.fencing_token().get();
        self.sold.push(what.clone());
        Ok((&mut self.sold, fence))
    }

    #[distributed_lock(max = 1, key = "report", wait = "0s", on_busy = skip, client = self.locks)]
    fn report(&self, then: impl FnOnce(&Self)) -> Option<usize> {
        then(self);
        Some(self.sold.len())
    }
}

#[test]
fn methods_borrow_have_guards_and_are_skipped() {
    let locks = Blocking::connect("memory://").unwrap();
    let mut shop = Shop {
        locks: locks.face().clone(),
        sold: Vec::new(),
    };
    let (sold, fence) = shop.sell("a").unwrap();
    sold.push("b");
    assert!(fence > 0);
    let counted = shop.report(|shop| assert_eq!(shop.report(|_| panic!("it runs")), None));
    assert_eq!(counted, Some(2));
}

#[distributed_lock(key = "outer", client = locks)]
fn nested(locks: &Locks) -> Result<(), LockError> {
    nested(locks)
}

#[test]
fn a_function_that_would_wait_for_itself_is_told() {
    let locks = Blocking::connect("memory://").unwrap();
    let told = nested(&locks);
    assert!(matches!(told, Err(LockError::Deadlock { .. })), "{told:?}");
    assert!(locks.lock("outer").try_acquire().unwrap().is_some());
}

#[distributed_lock(key = "import", client = locks)]
fn import(locks: &LockManager, body: impl FnOnce()) -> Result<(), LockError> {
    body();
    assert!(!LockGuard::current().is_some_and(|lock| lock.is_held()));
    Ok(())
}

#[distributed_lock(key = "import", client = locks, on_lost = continue)]
fn import_all(locks: &LockManager, body: impl FnOnce()) -> Result<(), LockError> {
    body();
    Ok(())
}

#[test]
fn a_lock_that_is_lost_meanwhile_is_the_outcome() {
    let server = MemoryServer::new();
    let builder = LockManager::builder().own_thread();
    let locks = server.connect(builder).unwrap();
    let lose = || assert_eq!(server.lose("import", LossReason::Gone), 1);
    let outcome = import(&locks, lose);
    assert!(
        matches!(outcome, Err(LockError::Lost { .. })),
        "{outcome:?}"
    );
    assert!(import_all(&locks, lose).is_ok());
}

#[test]
fn a_body_that_panics_releases_its_lock() {
    let locks = Blocking::connect("memory://").unwrap();
    let again = locks.clone();
    let panicked = thread::spawn(move || import_all(again.face(), || panic!("in the body")));
    assert!(panicked.join().is_err());
    let lock = locks.lock("import");
    lock.acquire_within(Duration::from_secs(30))
        .unwrap()
        .release()
        .unwrap();
}

#[distributed_lock(key = "job")]
fn job() -> Result<&'static str, LockError> {
    Ok("done")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manager_of_an_async_service_serves_spawn_blocking() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let (held, done) = channel();
    let again = locks.clone();
    let working =
        tokio::task::spawn_blocking(move || import_all(&again, || held.send(()).unwrap()));
    done.recv().unwrap();
    working.await.unwrap().unwrap();
    let outcome = locks
        .scope(async { tokio::task::block_in_place(job) })
        .await;
    assert_eq!(outcome.unwrap(), "done");
    let refused = thread::spawn(move || import_all(&locks, || ()))
        .join()
        .unwrap();
    assert!(matches!(refused, Err(LockError::InvalidConfig { .. })));
}
