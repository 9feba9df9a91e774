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
