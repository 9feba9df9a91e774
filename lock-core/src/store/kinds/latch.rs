//! The counts of a latch.

use std::time::Duration;

use crate::base::key::LockKey;
use crate::store::redis::count_down;
use crate::store::{AnyStore, OrRefused, StoreError};

impl AnyStore {
    /// Counts an id of a latch, and reads how many are left. Without an id it only reads.
    pub(crate) async fn count_down(
        &self,
        key: &LockKey,
        count: u32,
        ttl: Duration,
        id: Option<&str>,
    ) -> OrRefused<u32> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.run(|locks| {
                let (latches, common) = (&mut locks.latches, &mut locks.common);
                latches.count_down(common, key, count, ttl, id)
            })),
            Self::Redis(store) => count_down(store, key, count, ttl, id).await,
            Self::Quorum(_) => Err(StoreError::not_over_a_quorum("a latch is")),
        }
    }
}
