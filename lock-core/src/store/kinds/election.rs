//! Who leads an election.

use crate::base::election::LeaderSnapshot;
use crate::base::key::LockKey;
use crate::store::redis::kinds::election;
use crate::store::{AnyStore, OrRefused};

impl AnyStore {
    pub(crate) async fn leader(&self, key: &LockKey) -> OrRefused<LeaderSnapshot> {
        match self {
            Self::Memory(store) => Ok(store.reached()?.leader(key)),
            Self::Redis(store) => election::leader(store, key).await,
            Self::Quorum(store) => store.leader(key).await,
        }
    }
}
