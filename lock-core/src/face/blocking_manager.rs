//! The manager of a program without async code.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::LockError;
use crate::face::blocking::Blocking;
use crate::face::builder::LockManagerBuilder;
use crate::face::connect::ready;
use crate::face::election::Election;
use crate::face::global::scoped;
use crate::face::latch::Latch;
use crate::face::lock::Lock;
use crate::face::manager::LockManager;
use crate::face::multi_lock::MultiLock;
use crate::face::ping::Pong;
use crate::face::reentrant::ReentrantLock;
use crate::face::rw_lock::RwLock;
use crate::face::segmented::SegmentedLock;
use crate::face::semaphore::Semaphore;

/// The handles of a manager.
macro_rules! makes {
    ($($name:ident($($arg:ident: $type:ty),+) -> $Handle:ident;)+) => {
        $(
            #[doc = concat!("As [`LockManager::", stringify!($name), "`].")]
            pub fn $name(&self, $($arg: $type),+) -> Blocking<$Handle> {
                self.another(self.face.$name($($arg),+))
            }
        )+
    };
}

impl Blocking<LockManager> {
    /// Connects with the default settings, on a thread of the manager. See [`LockManagerBuilder::connect`] for URLs and errors.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::connect`].
    ///
    /// # Panics
    ///
    /// In an async task.
    #[track_caller]
    pub fn connect(url: &str) -> Result<Self, LockError> {
        Self::connect_with(LockManager::builder(), url)
    }

    /// As [`connect`](Self::connect), with these settings.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::connect`].
    ///
    /// # Panics
    ///
    /// In an async task.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::LockManager;
    /// use lock_core::blocking::Blocking;
    ///
    /// # fn main() -> Result<(), lock_core::LockError> {
    /// let locks = Blocking::connect_with(LockManager::builder().prefix("shop:"), "memory://")?;
    /// assert!(locks.lock("a").try_acquire()?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn connect_with(builder: LockManagerBuilder, url: &str) -> Result<Self, LockError> {
        let engine = builder.own_thread().start(url)?;
        let locks = Self::of(LockManager::new(Arc::clone(&engine)))?;
        locks.block_on(ready(engine))?;
        Ok(locks)
    }

    /// The blocking face of an async manager that has [a thread of its own](LockManagerBuilder::own_thread), for programs that are async only
    /// in part. The two share everything.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for a manager without such a thread: its runtime may be one that its callers block.
    pub fn of(locks: LockManager) -> Result<Self, LockError> {
        let thread = locks.thread().ok_or_else(|| {
            LockError::config(
                "a manager that is used without async code needs a thread of its own: make it with `Blocking::connect`, or with `own_thread`",
            )
        })?;
        let thread = thread.clone();
        Ok(Self {
            face: locks,
            thread,
        })
    }

    makes! {
        lock(key: impl AsRef<str>) -> Lock;
        all(keys: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock;
        reentrant_lock(key: impl AsRef<str>) -> ReentrantLock;
        semaphore(key: impl AsRef<str>, max: u32) -> Semaphore;
        rw_lock(key: impl AsRef<str>) -> RwLock;
        election(key: impl AsRef<str>) -> Election;
        latch(key: impl AsRef<str>, count: u32) -> Latch;
        segmented_lock(key: impl AsRef<str>, segments: usize) -> SegmentedLock;
    }

    /// Runs a function in which this is the manager of `#[distributed_lock]` functions without a `client`, as [`LockManager::scope`]; not on
    /// threads that it starts.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::blocking::Blocking;
    /// use lock_core::{LockError, distributed_lock};
    ///
    /// #[distributed_lock(key = "report")]
    /// fn report() -> Result<&'static str, LockError> { Ok("done") }
    ///
    /// # fn main() -> Result<(), LockError> {
    /// let locks = Blocking::connect("memory://")?;
    /// assert_eq!(locks.scope(report)?, "done");
    /// # Ok(()) }
    /// ```
    pub fn scope<T>(&self, body: impl FnOnce() -> T) -> T {
        scoped(&self.face, body)
    }

    /// As [`LockManager::ping`], on this thread.
    ///
    /// # Errors
    ///
    /// As [`LockManager::ping`].
    ///
    /// # Panics
    ///
    /// In an async task.
    #[track_caller]
    pub fn ping(&self) -> Result<Pong, LockError> {
        self.block_on(self.face.ping())
    }

    /// As [`LockManager::shutdown`], on this thread. Call it at the end of `main`: otherwise the process may end before the releases of
    /// dropped guards are sent.
    ///
    /// # Panics
    ///
    /// In an async task.
    #[allow(clippy::must_use_candidate, reason = "as the async one")]
    #[track_caller]
    pub fn shutdown(&self, limit: Duration) -> usize {
        self.block_on(self.face.shutdown(limit))
    }
}

/// So that `client = ..` of the attribute takes it.
impl Deref for Blocking<LockManager> {
    type Target = LockManager;

    fn deref(&self) -> &LockManager {
        &self.face
    }
}
