//! The default manager.

use std::sync::{PoisonError, RwLock};

use once_cell::sync::Lazy;

use crate::base::error::LockError;

use crate::face::manager::LockManager;

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
}

/// The manager that was installed with [`LockManager::install_default`].
///
/// # Errors
///
/// [`NoDefaultManager`](LockError::NoDefaultManager) if none was installed.
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
    DEFAULT
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
        .ok_or(LockError::NoDefaultManager)
}
