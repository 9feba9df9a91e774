//! `own_thread`: each public future works on a thread that is on no runtime, also while it waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use lock_core::{GuardedScript, Lock, LockError, LockGuard, LockManager, LockManagerBuilder};
use lock_core::{LossReason, Owner};
use lock_tests::{TestCluster, TestServer};
use tokio::runtime::{Builder, Runtime};

/// A name, and a use of a manager.
type Call = (
    &'static str,
    fn(LockManager) -> LocalBoxFuture<'static, Result<(), LockError>>,
);

const SHORT: Duration = Duration::from_millis(60);

/// Calls and their names.
macro_rules! calls {
    ($($name:literal: |$locks:ident| $call:block)*) => {
        vec![$(($name, |$locks| Box::pin(async move {
            $call
            Ok(())
        }))),*]
    };
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, waker) = (
        pin!(future),
        Waker::from(Arc::new(Unpark(thread::current()))),
    );
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn builder() -> LockManagerBuilder {
    LockManager::builder().own_thread()
}

/// The runtime of the servers.
fn helper() -> Runtime {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all().build().unwrap()
}

/// The name of each call that panicked, or returned an error.
fn failed(locks: &LockManager, calls: Vec<Call>) -> Vec<String> {
    let failed = calls.into_iter().filter_map(|(name, call)| {
        let locks = locks.clone();
        match catch_unwind(AssertUnwindSafe(|| block_on(call(locks)))) {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{name}: {error}")),
            Err(_) => Some(format!("{name} panicked")),
        }
    });
    failed.collect()
}

fn times_out<T>(outcome: Result<T, LockError>) {
    let error = outcome.err().expect("another guard has the lock");
    assert!(matches!(error, LockError::TimedOut { .. }), "{error:?}");
}

/// A guard that loses the lock after a short time.
async fn soon_lost(lock: &Lock) -> Result<LockGuard, LockError> {
    lock.clone().max_hold(SHORT).acquire().await
}

/// What every store can do.
fn of_exclusive_locks() -> Vec<Call> {
    calls! {
        "acquire": |locks| {
            let lock = locks.lock("acquire");
            let lost = soon_lost(&lock).await?;
            drop(lock.acquire().await?);
            drop(lost);
        }
        "acquire_within": |locks| {
            let lock = locks.lock("within");
            let _held = lock.acquire().await?;
            times_out(lock.acquire_within(SHORT).await);
            assert!(lock.try_acquire().await?.is_none());
        }
        "with": |locks| {
            locks.lock("with").with(async |guard| assert!(guard.is_held())).await?;
        }
        "lost": |locks| {
            let guard = soon_lost(&locks.lock("lost")).await?;
            let view = guard.view();
            assert_eq!(guard.lost().await, LossReason::MaxHold);
            view.lost().await;
        }
        "release and extend": |locks| {
            let guard = locks.lock("release").acquire().await?;
            guard.extend(Duration::from_secs(20)).await?;
            guard.release().await?;
        }
        "inspect and list": |locks| {
            let lock = locks.lock("inspect");
            let _held = lock.acquire().await?;
            assert!(lock.inspect().await?.is_held());
            let mut list = locks.list();
            while list.next_page().await?.is_some() {}
        }
        "force_release": |locks| {
            // Where no message tells of it, the next renewal does.
            let lock = locks.lock("force").ttl(SHORT * 10);
            let guard = lock.acquire().await?;
            assert!(lock.force_release().await?);
            guard.lost().await;
        }
        "ping and examine": |locks| {
            locks.ping().await?;
            locks.examine().await;
        }
        "all": |locks| {
            let one = soon_lost(&locks.lock("{all}:b")).await?;
            let both = locks.all(["{all}:a", "{all}:b"]).acquire().await?;
            let other = locks.all(["{all}:b", "{all}:c"]);
            times_out(other.acquire_within(SHORT).await);
            assert!(other.try_acquire().await?.is_none());
            both.extend(Duration::from_secs(20)).await?;
            both.release().await?;
            other.with(async |guard| assert!(guard.is_held())).await?;
            let lost = other.max_hold(SHORT).acquire().await?;
            lost.lost().await;
            drop(one);
        }
        "segmented lock": |locks| {
            let segments = locks.segmented_lock("segments", 1);
            let held = segments.acquire().await?;
            times_out(segments.acquire_within(SHORT).await);
            assert!(segments.try_acquire().await?.is_none());
            held.release().await?;
            let lost = segments.clone().max_hold(SHORT).acquire().await?;
            drop(segments.acquire().await?);
            drop(lost);
        }
    }
}

/// What a quorum does not have.
fn of_other_kinds() -> Vec<Call> {
    calls! {
        "reentrant lock": |locks| {
            let (mine, other) = (Owner::new(), Owner::new());
            let lock = locks.reentrant_lock("{r}").owner(&mine).max_hold(SHORT);
            let lost = lock.acquire().await?;
            let other = locks.reentrant_lock("{r}").owner(&other);
            times_out(other.acquire_within(SHORT / 2).await);
            drop(other.acquire().await?);
            assert!(lock.try_acquire().await?.is_some());
            lock.with(async |guard| assert!(guard.is_held())).await?;
            lock.inspect().await?;
            lock.force_release().await?;
            drop(lost);
        }
        "semaphore": |locks| {
            let permits = locks.semaphore("permits", 1);
            let lost = permits.clone().max_hold(SHORT).acquire().await?;
            times_out(permits.acquire_within(SHORT / 2).await);
            assert!(permits.try_acquire().await?.is_none());
            let permit = permits.acquire().await?;
            permits.resize(2).await?;
            permit.release().await?;
            permits.inspect().await?;
            permits.force_release().await?;
            drop(lost);
            locks.semaphore("other", 1).with(async |guard| assert!(guard.is_held())).await?;
        }
        "read-write lock": |locks| {
            let lock = locks.rw_lock("rw");
            let lost = lock.clone().max_hold(SHORT).write().await?;
            times_out(lock.read_within(SHORT / 2).await);
            assert!(lock.try_read().await?.is_none());
            let reader = lock.read().await?;
            times_out(lock.write_within(SHORT).await);
            let writer = reader.try_upgrade().await.expect("no other reads");
            writer.downgrade().await?.release().await?;
            assert!(lock.try_write().await?.is_some());
            lock.with_read(async |guard| assert!(guard.is_held())).await?;
            lock.with_write(async |guard| assert!(guard.is_held())).await?;
            lock.inspect().await?;
            lock.force_release().await?;
            drop(lost);
        }
        "latch": |locks| {
            let latch = locks.latch("latch", 1);
            let late = latch.wait_within(SHORT).await.unwrap_err();
            assert!(matches!(late, LockError::NotOpen { .. }), "{late:?}");
            assert_eq!(latch.left().await?, 1);
            latch.count_down("a").await?;
            latch.wait().await?;
        }
    }
}

fn of_elections() -> Vec<Call> {
    calls! {
        "election": |locks| {
            let election = locks.election("election").ttl(Duration::from_secs(1));
            let mut leaders = election.observe().await?;
            assert_eq!(leaders.next().await, Some(None));
            let leadership = election.campaign("a").await?;
            let leader = leaders.next().await.flatten().expect("it leads");
            assert_eq!(leader.value(), "a");
            assert!(election.leader().await?.is_some());
            leadership.resign().await?;
            let checked = election.step_down_if(async || false);
            let led = checked.run("b", async |leadership| leadership.is_held());
            assert!(led.await?);
        }
        "the same election again": |locks| {
            let election = locks.election("again").max_hold(SHORT);
            let lost = election.campaign("a").await?;
            drop(election.campaign("b").await?);
            drop(lost);
        }
    }
}

fn of_one_master() -> Vec<Call> {
    let scripts: Vec<Call> = calls! {
        "guarded script": |locks| {
            let guard = locks.lock("{s}").acquire().await?;
            let script = GuardedScript::new("return 7");
            let seven: u32 = guard.guarded(&script).run().await?;
            assert_eq!(seven, 7);
        }
    };
    [
        of_exclusive_locks(),
        of_other_kinds(),
        of_elections(),
        scripts,
    ]
    .concat()
}

/// A lock that is held at the shutdown, so that it waits.
fn shut_down(locks: &LockManager) {
    block_on(async {
        let held = locks.lock("held").acquire().await.unwrap();
        assert_eq!(locks.shutdown(SHORT).await, 0);
        assert_eq!(held.lost().await, LossReason::ShutDown);
    });
}

#[test]
fn everything_works_in_memory() {
    let locks = block_on(builder().connect("memory://")).unwrap();
    let calls = [of_exclusive_locks(), of_other_kinds(), of_elections()];
    assert_eq!(failed(&locks, calls.concat()), [""; 0]);
    shut_down(&locks);
}

#[test]
fn everything_works_on_a_server() {
    let helper = helper();
    let server = helper.block_on(TestServer::start());
    let locks = block_on(builder().connect(&server.url())).unwrap();
    assert_eq!(failed(&locks, of_one_master()), [""; 0]);
    shut_down(&locks);
}

#[test]
fn everything_works_on_a_runtime_without_timers() {
    let (helper, bare) = (helper(), Builder::new_current_thread().build().unwrap());
    let server = helper.block_on(TestServer::start());
    let _entered = bare.enter();
    let locks = block_on(builder().connect(&server.url())).unwrap();
    assert_eq!(failed(&locks, of_one_master()), [""; 0]);
    shut_down(&locks);
}

/// Its connection has a time limit of its own.
#[test]
fn everything_works_over_a_connection_of_the_program() {
    let helper = helper();
    let server = helper.block_on(TestServer::start());
    let connection = helper.block_on(server.connection());
    let locks = builder().from_connection(connection).unwrap();
    assert_eq!(failed(&locks, of_one_master()), [""; 0]);
    shut_down(&locks);
}

#[test]
fn everything_works_in_a_cluster() {
    let helper = helper();
    let cluster = helper.block_on(TestCluster::start(3));
    let locks = block_on(builder().connect(&cluster.url())).unwrap();
    assert_eq!(failed(&locks, of_one_master()), [""; 0]);
    shut_down(&locks);
}

#[test]
fn everything_works_over_a_quorum() {
    let helper = helper();
    let servers = [(); 3].map(|()| helper.block_on(TestServer::start()));
    let urls = || servers.each_ref().map(TestServer::url);
    block_on(builder().begin_quorum(urls()).into_future()).unwrap();
    let status = block_on(builder().quorum_status(urls())).unwrap();
    assert!(status.iter().all(|node| node.vote().is_ok()), "{status:?}");
    let locks = block_on(builder().connect_quorum(urls())).unwrap();
    let calls = [of_exclusive_locks(), of_elections()];
    assert_eq!(failed(&locks, calls.concat()), [""; 0]);
    shut_down(&locks);
}

/// Each call that a server leaves without an answer, and so waits for its time limit, and pauses before it asks again.
fn of_a_silent_server() -> Vec<Call> {
    calls! {
        "acquire": |locks| {
            let lock = locks.lock("silent").unavailable_after(SHORT);
            unavailable(lock.acquire().await);
            unavailable(lock.acquire_within(SHORT).await);
            unavailable(lock.try_acquire().await);
            unavailable(lock.inspect().await);
            unavailable(lock.force_release().await);
        }
        "other kinds": |locks| {
            unavailable(locks.all(["a", "b"]).acquire_within(SHORT).await);
            unavailable(locks.segmented_lock("s", 2).acquire_within(SHORT).await);
            unavailable(locks.semaphore("p", 1).acquire_within(SHORT).await);
            unavailable(locks.semaphore("p", 1).resize(2).await);
            unavailable(locks.rw_lock("rw").read_within(SHORT).await);
            let mine = Owner::new();
            let lock = locks.reentrant_lock("r").owner(&mine);
            unavailable(lock.acquire_within(SHORT).await);
        }
        "latch": |locks| {
            let latch = locks.latch("latch", 1);
            unavailable(latch.count_down("a").await);
            unavailable(latch.wait_within(SHORT).await);
        }
        "election": |locks| {
            let election = locks.election("election");
            unavailable(election.leader().await);
            unavailable(election.observe().await);
        }
        "manager": |locks| {
            unavailable(locks.ping().await);
            // A quorum leaves out the nodes that do not answer.
            let _ = locks.list().next_page().await;
            locks.examine().await;
        }
    }
}

fn unavailable<T>(outcome: Result<T, LockError>) {
    let error = outcome.err().expect("the server is silent");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
}

fn impatient() -> LockManagerBuilder {
    builder().command_deadline(SHORT * 3)
}

#[test]
fn calls_to_a_silent_server_end() {
    let helper = helper();
    let server = helper.block_on(TestServer::start());
    let locks = block_on(impatient().connect(&server.url())).unwrap();
    let (kept, released, ended, reader) = block_on(async {
        let kept = locks.lock("kept").acquire().await.unwrap();
        let released = locks.lock("released").acquire().await.unwrap();
        let ended = locks.lock("ended").ttl(SHORT * 10).acquire().await.unwrap();
        let reader = locks.rw_lock("upgraded").read().await.unwrap();
        (kept, released, ended, reader)
    });
    server.stop();
    block_on(async {
        assert!(reader.try_upgrade().await.is_err());
        unavailable(kept.extend(Duration::from_secs(20)).await);
        unavailable(released.release().await);
        ended.lost().await;
        unavailable(impatient().connect(&server.url()).await);
    });
    assert_eq!(failed(&locks, of_a_silent_server()), [""; 0]);
    assert_ne!(block_on(locks.shutdown(SHORT)), 0);
    server.cont();
}

#[test]
fn calls_over_a_silent_connection_of_the_program_end() {
    let helper = helper();
    let server = helper.block_on(TestServer::start());
    let connection = helper.block_on(server.connection());
    let locks = impatient().from_connection(connection).unwrap();
    server.stop();
    assert_eq!(failed(&locks, of_a_silent_server()), [""; 0]);
    server.cont();
}

#[test]
fn calls_to_a_silent_cluster_end() {
    let helper = helper();
    let cluster = helper.block_on(TestCluster::start(3));
    let locks = block_on(impatient().connect(&cluster.url())).unwrap();
    let nodes = || cluster.masters().iter();
    nodes().for_each(|node| node.server.stop());
    assert_eq!(failed(&locks, of_a_silent_server()), [""; 0]);
    nodes().for_each(|node| node.server.cont());
}

#[test]
fn calls_to_a_silent_quorum_end() {
    let helper = helper();
    let servers = [(); 3].map(|()| helper.block_on(TestServer::start()));
    let urls = || servers.each_ref().map(TestServer::url);
    block_on(builder().begin_quorum(urls()).into_future()).unwrap();
    let locks = block_on(impatient().connect_quorum(urls())).unwrap();
    servers.iter().for_each(TestServer::stop);
    let mut calls = of_a_silent_server();
    calls.retain(|(name, _)| ["acquire", "election", "manager"].contains(name));
    assert_eq!(failed(&locks, calls), [""; 0]);
    servers.iter().for_each(TestServer::cont);
}
