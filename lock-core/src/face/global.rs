//! The default manager.

use std::sync::{PoisonError, RwLock};

use once_cell::sync::Lazy;

use crate::base::error::LockError;

use crate::face::manager::LockManager;

tokio::task_local! {
    /// The manager of the running part of a task.
    static SCOPED: LockManager;
}

static DEFAULT: Lazy<RwLock<Option<LockManager>>> = Lazy::new(RwLock::default);

impl LockManager {
    /// Makes this the manager of `#[distributed_lock]` functions without a `client`. Returns the previous one.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// locks.install_default();
    /// assert!(lock_core::default_manager().is_ok());
    /// # Ok(()) }
    /// ```
    pub fn install_default(&self) -> Option<LockManager> {
        DEFAULT
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(self.clone())
    }

    /// Runs a future in which this is the manager of `#[distributed_lock]` functions without a `client`, instead of the
    /// [installed](Self::install_default) one: for tests that run in parallel, and for a task with a manager of its own.
    ///
    /// It is so in this future alone: a task that is spawned inside needs a `scope` of its own.
    ///
    /// # Cancel safety
    ///
    /// As the future.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// locks.scope(async { assert!(lock_core::default_manager().is_ok()) }).await;
    /// assert!(lock_core::default_manager().is_err());
    /// # Ok(()) }
    /// ```
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        SCOPED.scope(self.clone(), future)
    }
}

/// As [`LockManager::scope`], for code that is not async.
#[cfg(feature = "blocking")]
pub(crate) fn scoped<T>(locks: &LockManager, body: impl FnOnce() -> T) -> T {
    SCOPED.sync_scope(locks.clone(), body)
}

/// The manager of the enclosing [`LockManager::scope`], or else the one that was installed with [`LockManager::install_default`].
///
/// # Errors
///
/// [`NoDefaultManager`](LockError::NoDefaultManager) if there is neither.
///
/// # Examples
///
/// ```
/// assert!(matches!(
///     lock_core::default_manager(),
///     Err(lock_core::LockError::NoDefaultManager)
/// ));
/// ```
pub fn default_manager() -> Result<LockManager, LockError> {
    if let Ok(scoped) = SCOPED.try_with(Clone::clone) {
        return Ok(scoped);
    }
    DEFAULT
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
        .ok_or(LockError::NoDefaultManager)
}
