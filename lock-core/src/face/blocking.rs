//! Locks for programs without async code. Needs the feature `blocking`.
//!
//! [`Blocking::connect`] makes a manager with a thread of its own, where its task, its timers and its connections live. Its handles and
//! guards have the names and the options of the async ones, and their calls block the thread that makes them: each returns when the
//! future of the async call would be ready. A guard that is dropped is released in the background, without I/O on this thread.
//!
//! ```
//! use lock_core::LockError;
//! use lock_core::blocking::Blocking;
//! use std::time::Duration;
//!
//! fn main() -> Result<(), LockError> {
//!     let locks = Blocking::connect("memory://")?;
//!     let guard = locks.lock("order:7").ttl(Duration::from_secs(10)).acquire_within(Duration::from_secs(5))?;
//!     // .. runs alone ..
//!     assert!(guard.is_held());
//!     guard.release()?;
//!     locks.shutdown(Duration::from_secs(5));
//!     Ok(())
//! }
//! ```
//!
//! # A lock that is lost
//!
//! Nothing can stop code that does not await. Ask [`is_held`](crate::LockView::is_held) between steps, or be told:
//! [`losses`](BlockingGuard::losses) is a channel, and [`on_loss`](BlockingGuard::on_loss) calls a quick function.
//!
//! # Inside async code
//!
//! A call panics in an async task, as those of tokio and reqwest do: it would block a thread that drives other tasks. Move it into
//! `spawn_blocking`, or use the async handle, [`Blocking::face`].

use tokio::runtime::Handle;

pub use crate::face::blocking_guard::BlockingGuard;

/// A manager, or a handle to a lock, whose calls block: `Blocking<LockManager>`, `Blocking<Lock>`.
///
/// # Examples
///
/// ```
/// use lock_core::blocking::Blocking;
/// use lock_core::{LockError, LockManager};
///
/// struct Shop { locks: Blocking<LockManager> }
///
/// impl Shop {
///     fn charge(&self, order: u64) -> Result<(), LockError> {
///         let _guard = self.locks.lock(format!("order:{order}")).acquire()?;
///         Ok(()) // .. runs alone ..
///     }
/// }
///
/// # fn main() -> Result<(), LockError> {
/// Shop { locks: Blocking::connect("memory://")? }.charge(7)
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a handle is not the lock: call `acquire` or `try_acquire`"]
pub struct Blocking<T> {
    pub(super) face: T,
    pub(super) thread: Handle,
}

impl<T> Blocking<T> {
    /// The async handle, or the async manager: both share the connection, the task and the locks.
    pub fn face(&self) -> &T {
        &self.face
    }

    /// Runs a future of the async face on this thread, for calls that have no blocking form.
    ///
    /// # Panics
    ///
    /// In an async task.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::blocking::Blocking::connect("memory://")?;
    /// let findings = locks.block_on(locks.face().examine());
    /// assert!(findings.is_empty());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.thread.block_on(future)
    }

    /// Another handle of this manager.
    pub(super) fn another<U>(&self, face: U) -> Blocking<U> {
        let thread = self.thread.clone();
        Blocking { face, thread }
    }

    pub(super) fn map(self, change: impl FnOnce(T) -> T) -> Self {
        let Self { face, thread } = self;
        let face = change(face);
        Self { face, thread }
    }

    pub(super) fn held<G>(&self, guard: G) -> BlockingGuard<G> {
        BlockingGuard::new(guard, self.thread.clone())
    }

    pub(super) fn tried<G>(&self, guard: Option<G>) -> Option<BlockingGuard<G>> {
        guard.map(|guard| self.held(guard))
    }
}
