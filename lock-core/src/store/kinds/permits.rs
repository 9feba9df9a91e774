//! Changes of a semaphore, and of a hold of a read-write lock.

use crate::base::key::LockKey;
use crate::base::kind::Reweigh;
use crate::base::token::Token;
use crate::store::redis::kinds::permits;
use crate::store::{AnyStore, OrRefused, Reweighed, StoreError};

impl AnyStore {
    /// Makes a reader a writer, or a writer a reader. `from` is the fencing token of its hold.
    pub(crate) async fn reweigh(
        &self,
        key: &LockKey,
        token: &Token,
        from: u64,
        to: Reweigh,
    ) -> Result<Reweighed, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.run(|locks| {
                let (locks, common) = (&mut locks.read_write, &mut locks.common);
                locks.reweigh(common, key, token, from, to)
            })),
            Self::Redis(store) => permits::reweigh(store, key, token, from, to).await,
            Self::Quorum(_) => Err(StoreError::kind_not_over_a_quorum(key)),
        }
    }

    /// Changes the number of permits of a semaphore, which is `from` for the caller. False if nothing is held, and no number is
    /// remembered.
    pub(crate) async fn resize(&self, key: &LockKey, from: u32, to: u32) -> OrRefused<bool> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.run(|locks| {
                locks.check(key)?;
                locks.semaphores.resize(&mut locks.common, key, from, to)
            })),
            Self::Redis(store) => permits::resize(store, key, from, to).await,
            Self::Quorum(_) => Err(StoreError::kind_not_over_a_quorum(key)),
        }
    }
}
