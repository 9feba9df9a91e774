//! Callers that vanish in the middle of acquiring (P4).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use lock_core::LockManager;
use lock_tests::{LIMIT, Proxy, TestServer};

use crate::support::{KEY, NAME, WAYS, behind, in_time, until_gone, warm_server};
use crate::support::{LONG, Section, Way, direct, is_acquire, ms, until_clean, until_queued};

const CANCELLED: usize = 400;
const TASKS: usize = 20;
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Polls a future so many times, then drops it.
struct Polls<F> {
    future: Pin<Box<F>>,
    left: u32,
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if self.left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// One acquisition that is cut off somewhere. True if it was.
async fn cut_off(
    locks: &LockManager,
    sections: &[Section; 3],
    rng: &mut fastrand::Rng,
    longest: Duration,
) -> bool {
    let index = rng.usize(..NAMES.len());
    let lock = locks.lock(NAMES[index]).ttl(LONG);
    let way = WAYS[rng.usize(..3)];
    let acquire = async move { way.acquire(&lock).await };
    let outcome = if rng.bool() {
        let left = rng.u32(0..8);
        Polls {
            future: Box::pin(acquire),
            left,
        }
        .await
    } else {
        let cut = longest.mul_f64(rng.f64());
        tokio::time::timeout(cut, acquire).await.ok()
    };
    let Some(result) = outcome else { return true };
    if let Some(guard) = result.unwrap() {
        let moment = Duration::from_micros(rng.u64(..2000));
        sections[index].work(&guard, moment).await;
        if rng.bool() {
            guard.release().await.unwrap();
        }
    }
    false
}

async fn cancel_many(managers: &[LockManager], longest: Duration) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let sections: [Section; 3] = Default::default();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let locks = managers[task % managers.len()].clone();
            let sections = sections.clone();
            let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(task as u64));
            tokio::spawn(async move {
                let mut cut = 0;
                while cut < CANCELLED / TASKS {
                    cut += usize::from(cut_off(&locks, &sections, &mut rng, longest).await);
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("the cancelled callers", task).await.unwrap();
    }
    sections.iter().for_each(Section::assert_exclusive);
    println!("granted {:?}", sections.each_ref().map(Section::entered));
    for locks in managers {
        assert_eq!(locks.shutdown(LIMIT).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_hundred_cancelled_acquires_leave_nothing() {
    let server = TestServer::start().await;
    let managers = [direct(&server).await, direct(&server).await];
    cancel_many(&managers, ms(4)).await;
    until_clean(&server).await;
}

/// Proves P4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_hundred_cancelled_acquires_leave_nothing_on_a_slow_network() {
    let server = TestServer::start().await;
    let proxy = Proxy::start(&server);
    // The clean-up of what was cancelled in flight looks twice, so long apart: well within the time that shutdown has.
    let deadline = LIMIT / 3;
    let managers = [
        behind(&proxy, deadline).await,
        behind(&proxy, deadline).await,
    ];
    proxy.delay(ms(2));
    cancel_many(&managers, ms(12)).await;
    until_clean(&server).await;
}

#[tokio::test]
async fn an_acquire_cancelled_before_its_reply_is_released_at_once() {
    for way in WAYS {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let locks = behind(&proxy, LIMIT).await;
        let lock = locks.lock(NAME).ttl(LONG);
        let held = proxy.hold_next_request_matching(is_acquire);
        let caller = tokio::spawn(async move { way.acquire(&lock).await });
        held.wait().await;
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled(), "{way:?}");
        // The clean-up waits behind the acquire, on the same connection.
        held.deliver();
        assert_eq!(locks.shutdown(LIMIT).await, 0, "{way:?}");
        until_clean(&server).await;
    }
}

#[tokio::test]
async fn a_cancelled_waiter_leaves_the_queue_and_the_next_one_gets_the_lock() {
    let server = TestServer::start().await;
    let holder = direct(&server).await;
    let guard = holder.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let mut tasks = Vec::new();
    for way in [Way::Within, Way::Forever, Way::Forever] {
        // Each has a place of its own on the server.
        let lock = direct(&server).await.lock(NAME).ttl(LONG);
        tasks.push(tokio::spawn(async move { way.acquire(&lock).await }));
        until_queued(&server, tasks.len()).await;
    }
    tasks[0].abort();
    tasks[1].abort();
    until_queued(&server, 1).await;
    guard.release().await.unwrap();
    let last = in_time("the last waiter", tasks.pop().unwrap()).await;
    let last = last.unwrap().unwrap().unwrap();
    assert!(last.is_held());
    drop(last);
    until_gone(&server, KEY).await;
    until_clean(&server).await;
}
