//! Whoever sends a request writes it, too.
//!
//! A connection of the `redis` crate has a driver, which takes requests from a queue, writes them, and reads the replies. As a
//! task it has its turn only when all others that are ready have had theirs, and to wake it may mean to wake a thread. So
//! the sender polls it as well, right after it has put its request into the queue.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

thread_local! {
    /// This thread is putting a request into the queue, and will poll the driver right afterwards.
    static SENDING: Cell<bool> = const { Cell::new(false) };
}

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The driver of one connection.
pub(super) struct Drive {
    /// Nothing once the connection has ended.
    driver: Mutex<Option<Driver>>,
    signal: Arc<Signal>,
    waker: Waker,
}

/// Wakes the task of the driver.
#[derive(Default)]
struct Signal {
    task: AtomicWaker,
    /// The task had its turn while somebody else polled the driver.
    missed: AtomicBool,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !SENDING.get() {
            self.task.wake();
        }
    }
}

/// Until this is dropped, the thread wakes no driver.
struct Sending;

impl Sending {
    fn begin() -> Self {
        SENDING.set(true);
        Self
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        SENDING.set(false);
    }
}

impl Drive {
    pub(super) fn new(driver: impl Future<Output = ()> + Send + 'static) -> Self {
        let signal = Arc::new(Signal::default());
        Self {
            driver: Mutex::new(Some(Box::pin(driver))),
            waker: Waker::from(Arc::clone(&signal)),
            signal,
        }
    }

    /// Drives the connection until it ends.
    pub(super) async fn run(self: Arc<Self>) {
        poll_fn(|cx| {
            self.signal.task.register(cx.waker());
            self.turn().unwrap_or(Poll::Pending)
        })
        .await;
    }

    /// Does what puts a request into the queue, and then what the driver can do about it now.
    pub(super) fn send<T>(&self, enqueue: impl FnOnce() -> T) -> T {
        let outcome = {
            let _sending = Sending::begin();
            enqueue()
        };
        // The end of a connection is the task's business; so is whatever another thread has just passed by.
        if self.turn().is_none_or(|turn| turn.is_ready()) {
            self.signal.task.wake();
        }
        outcome
    }

    /// Polls the driver. `None` where another thread does so at this moment: it wakes the task then.
    fn turn(&self) -> Option<Poll<()>> {
        let mut driver = self.free()?;
        let turn = match driver.as_mut() {
            Some(future) => future.as_mut().poll(&mut Context::from_waker(&self.waker)),
            None => Poll::Ready(()),
        };
        if turn.is_ready() {
            *driver = None;
        }
        drop(driver);
        if self.signal.missed.swap(false, Ordering::SeqCst) {
            self.signal.task.wake();
        }
        Some(turn)
    }

    fn free(&self) -> Option<MutexGuard<'_, Option<Driver>>> {
        let free = || match self.driver.try_lock() {
            Ok(driver) => Some(driver),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        free().or_else(|| {
            // Either the other one sees this when it is done, or it was done before, and the driver is free now.
            self.signal.missed.store(true, Ordering::SeqCst);
            free()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::ready;

    use tokio::sync::mpsc;

    use super::*;

    /// A driver that takes numbers from a queue and adds them up, until the queue is closed.
    fn adder() -> (mpsc::UnboundedSender<usize>, Arc<AtomicUsize>, Arc<Drive>) {
        let (queue, mut numbers) = mpsc::unbounded_channel();
        let sum = Arc::new(AtomicUsize::new(0));
        let total = Arc::clone(&sum);
        let driver = poll_fn(move |cx| {
            while let Some(number) = ready!(numbers.poll_recv(cx)) {
                total.fetch_add(number, Ordering::SeqCst);
            }
            Poll::Ready(())
        });
        (queue, sum, Arc::new(Drive::new(driver)))
    }

    async fn eventually(condition: impl Fn() -> bool) {
        while !condition() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_is_sent_is_done_before_the_task_has_its_turn() {
        let (queue, sum, drive) = adder();
        drop(tokio::spawn(Arc::clone(&drive).run()));
        tokio::task::yield_now().await;
        drive.send(|| queue.send(1)).unwrap();
        assert_eq!(sum.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn what_comes_by_another_way_is_the_tasks() {
        let (queue, sum, drive) = adder();
        let task = tokio::spawn(Arc::clone(&drive).run());
        drive.send(|| queue.send(1)).unwrap();
        queue.send(2).unwrap();
        eventually(|| sum.load(Ordering::SeqCst) == 3).await;
        drop(queue);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn the_task_ends_when_a_sender_sees_the_end() {
        let (queue, _, drive) = adder();
        let task = tokio::spawn(Arc::clone(&drive).run());
        tokio::task::yield_now().await;
        drive.send(|| drop(queue));
        task.await.unwrap();
    }

    #[test]
    fn nothing_is_left_behind_when_many_threads_send_at_once() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let (queue, sum, drive) = adder();
        drop(runtime.spawn(Arc::clone(&drive).run()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        drive.send(|| queue.send(1)).unwrap();
                    }
                });
            }
        });
        // Whatever a sender passed by because another one was there is done by the task.
        runtime.block_on(eventually(|| sum.load(Ordering::SeqCst) == 20_000));
    }
}
