//! The reentrant kind: Redisson's `RLock` on the wire.

use super::RedisStore;
use crate::key::LockKey;
use crate::store::{
    Answer, Attempt, Forced, Released, Renewal, Snapshot, StoreError, Subscription,
};
use crate::token::Token;

fn not_yet<T>() -> Result<T, StoreError> {
    Err(StoreError::Misconfigured(
        "reentrant locks are not there yet".to_owned(),
    ))
}

#[expect(clippy::unused_async, unused_variables, reason = "to be filled in")]
impl RedisStore {
    pub(super) async fn reenter(&self, attempt: Attempt<'_>) -> Result<Answer, StoreError> {
        not_yet()
    }

    pub(super) async fn leave(
        &self,
        key: &LockKey,
        token: &Token,
        owner: Option<&str>,
    ) -> Result<Released, StoreError> {
        not_yet()
    }

    pub(super) async fn extend_reentrant(
        &self,
        renewals: &[Renewal<'_>],
    ) -> Result<Vec<bool>, StoreError> {
        not_yet()
    }

    pub(super) async fn inspect_reentrant(&self, key: &LockKey) -> Result<Snapshot, StoreError> {
        not_yet()
    }

    pub(super) async fn force_reentrant(&self, key: &LockKey) -> Result<Forced, StoreError> {
        not_yet()
    }

    pub(super) async fn listen(&self, key: &LockKey) -> Result<Option<Subscription>, StoreError> {
        Ok(None)
    }
}
