//! Scripts of the user that run only while a guard holds its lock.

use std::sync::Arc;

use super::acquisition::Acquisition;
use super::shared::Shared;
use crate::base::error::{LockError, LossReason};
use crate::store::{GuardedCall, ReplyOfUser, StoreError};

/// Runs a script on the server of the lock. `None` if the lock is not held there: then its lease has ended.
pub(crate) async fn guarded(
    shared: &Shared,
    acquisition: &Acquisition,
    body: &Arc<str>,
    keys: &[String],
    args: &[Vec<u8>],
) -> Result<Option<ReplyOfUser>, LockError> {
    let call = GuardedCall {
        key: &acquisition.key,
        token: &shared.token(acquisition),
        claim: &acquisition.claim,
        fence: acquisition.number(),
        body,
        keys,
        args,
    };
    let outstanding = acquisition.script_sent();
    let answer = shared.store.guarded(call).await;
    if !matches!(answer, Err(StoreError::Ambiguous(_))) {
        outstanding.answered();
    }
    let value = answer.map_err(StoreError::into_lock_error)?;
    let value = value.map_err(|reason| LockError::Script { reason })?;
    if value.is_none()
        && let Some(lease) = acquisition.lease()
        && lease.lose(LossReason::Gone)
    {
        shared.lease_due_at(shared.clock.now());
    }
    Ok(value)
}
