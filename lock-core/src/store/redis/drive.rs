//! Whoever sends a request writes it, too.
//!
//! A connection of the `redis` crate has a driver, which takes requests from a queue, writes them, and reads the replies. As a
//! task it has its turn only when all others that are ready have had theirs, and to wake it may mean to wake a thread. So
//! the sender polls it as well, right after it has put its request into the queue; but not where one question goes to several
//! servers (see [`Writer`](super::link::Writer)).
//!
//! The task owns it: where its runtime drops the task, the connection has ended, whoever still has a handle.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

thread_local! {
    /// This thread is putting a request into the queue, and will poll the driver right afterwards.
    static SENDING: Cell<bool> = const { Cell::new(false) };
}

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The driver of one connection. For the task that runs it to own, and for others to borrow.
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
    /// Somebody came while another one polled the driver, and went: the other one wakes the task.
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
        // The end of a connection is the task's business.
        if self.turn().is_some_and(|turn| turn.is_ready()) {
            self.signal.task.wake();
        }
        outcome
    }

    /// Polls the driver. `None` where another thread does so at this moment, which wakes the task then.
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
        // Either we see here that somebody came by, or that one sees that the driver is free.
        fence(Ordering::SeqCst);
        if self.signal.missed.swap(false, Ordering::SeqCst) {
            self.signal.task.wake();
        }
        Some(turn)
    }

    fn free(&self) -> Option<MutexGuard<'_, Option<Driver>>> {
        let free = || match self.driver.try_lock() {
            Ok(driver) => Some(driver),
            Err(TryLockError::Poisoned(poisoned)) => {
                // It has panicked, and must not be polled again.
                let mut driver = poisoned.into_inner();
                *driver = None;
                Some(driver)
            }
            Err(TryLockError::WouldBlock) => None,
        };
        free().or_else(|| {
            self.signal.missed.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
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
    fn what_is_sent_while_another_thread_drives_is_done_behind_it() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (queue, mut numbers) = mpsc::unbounded_channel::<usize>();
        let (seen, told) = std::sync::mpsc::channel();
        let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
        // It says what it has taken, and once the queue is empty waits for leave to end its turn.
        let driver = poll_fn(move |cx| {
            loop {
                match numbers.poll_recv(cx) {
                    Poll::Ready(Some(number)) => seen.send(number).unwrap(),
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => {
                        seen.send(0).unwrap();
                        let _ = goes_on.recv();
                        return Poll::Pending;
                    }
                }
            }
        });
        let drive = Arc::new(Drive::new(driver));
        let heard = || told.recv_timeout(std::time::Duration::from_secs(30));
        drop(runtime.spawn(Arc::clone(&drive).run()));
        // The task has had a turn, and knows what wakes it.
        assert_eq!(heard(), Ok(0));
        go_on.send(()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| drive.send(|| queue.send(1)).unwrap());
            assert_eq!((heard(), heard()), (Ok(1), Ok(0)));
            drive.send(|| queue.send(2)).unwrap();
            go_on.send(()).unwrap();
            assert_eq!(heard(), Ok(2));
            drop(go_on);
        });
    }

    #[tokio::test]
    async fn a_driver_that_has_panicked_is_not_polled_again() {
        let drive = Arc::new(Drive::new(async { panic!("as expected") }));
        let task = tokio::spawn(Arc::clone(&drive).run());
        assert!(task.await.unwrap_err().is_panic());
        assert_eq!(drive.send(|| 1), 1);
    }
}
