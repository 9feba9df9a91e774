//! Wakers that drop their tasks, as those of an executor that has ended: what the task holds and waits for is dropped in the
//! middle of a call of somebody else.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use lock_core::{LockManager, Owner};
use lock_tests::TestServer;
use tokio::runtime::{Builder, Handle};

/// A limit against hanging, not a measure.
const PATIENCE: Duration = Duration::from_secs(30);

/// An executor without a wake-up for this long has ended.
const IDLE: Duration = Duration::from_secs(1);

/// A task that lives in its wakers.
struct Task {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    queue: Sender<Arc<Task>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let queue = self.queue.clone();
        // An executor that has ended takes no task: this one is dropped here.
        let _ = queue.send(self);
    }
}

/// Runs a future until it waits for something that does not come.
fn run_until_it_waits(future: impl Future<Output = ()> + Send + 'static) {
    let handle = Handle::current();
    let executor = thread::spawn(move || {
        let _runtime = handle.enter();
        let (queue, tasks): (_, Receiver<Arc<Task>>) = channel();
        let task = Arc::new(Task {
            future: Mutex::new(Some(Box::pin(future))),
            queue: queue.clone(),
        });
        queue.send(task).unwrap();
        while let Ok(task) = tasks.recv_timeout(IDLE) {
            let waker = Waker::from(Arc::clone(&task));
            let mut cx = Context::from_waker(&waker);
            let mut future = task.future.lock().unwrap();
            if let Some(running) = future.as_mut()
                && running.as_mut().poll(&mut cx).is_ready()
            {
                *future = None;
            }
        }
    });
    executor.join().unwrap();
}

/// Runs a test on a runtime that is left behind where the test hangs. A thread that hangs may be the one that drives the timers
/// of the runtime, so the limit is the system's.
fn run(test: impl Future<Output = ()> + Send + 'static) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let (done, ended) = channel();
    let test = runtime.spawn(test);
    runtime.spawn(async move { done.send(test.await) });
    let outcome = ended.recv_timeout(PATIENCE);
    runtime.shutdown_background();
    outcome.expect("a waker is called under a lock").unwrap();
}

async fn release_beside_a_waiter(url: &str) {
    let locks = LockManager::connect(url).await.unwrap();
    let lock = locks.lock("a");
    let guard = lock.acquire().await.unwrap();
    let waiting = lock.clone();
    run_until_it_waits(async move { drop(waiting.acquire().await) });
    assert_eq!(lock.inspect().await.unwrap().waiters(), 1);
    guard.release().await.unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(locks.shutdown(PATIENCE).await, 0);
}

#[test]
fn a_release_in_memory_goes_on_where_the_next_waiter_is_dropped() {
    run(release_beside_a_waiter("memory://"));
}

/// Proves P14.
#[test]
fn a_release_goes_on_where_the_next_waiter_is_dropped() {
    run(async {
        let server = TestServer::start().await;
        release_beside_a_waiter(&server.url()).await;
    });
}

#[test]
fn a_reentrant_release_goes_on_where_the_next_waiter_is_dropped() {
    run(async {
        let server = TestServer::start().await;
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let lock = locks.reentrant_lock("a").owner(&Owner::new());
        let guard = lock.acquire().await.unwrap();
        let waiting = lock.clone().owner(&Owner::new());
        run_until_it_waits(async move { drop(waiting.acquire().await) });
        guard.release().await.unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(locks.shutdown(PATIENCE).await, 0);
    });
}

#[test]
fn a_loss_that_drops_its_watcher_releases_what_the_watcher_holds() {
    run(async {
        let locks = LockManager::connect("memory://").await.unwrap();
        let ttl = IDLE * 2;
        let (lost, kept) = (locks.lock("lost").ttl(ttl).renew(false), locks.lock("kept"));
        let free = kept.clone();
        run_until_it_waits(async move {
            let _kept = kept.acquire().await.unwrap();
            lost.acquire().await.unwrap().lost().await;
        });
        drop(free.acquire_within(PATIENCE).await.unwrap());
    });
}
