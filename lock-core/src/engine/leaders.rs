//! Leaders of elections announce themselves: a record on the server, which is written with each renewal and ends with the lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use super::acquisition::Acquisition;
use super::hold::Hold;
use super::shared::Shared;
use crate::base::token::Token;
use crate::store::{Released, Store, StoreError};

/// Called when a hold has begun. The leader of an election is announced with its first renewal, which is due at once.
pub(super) fn begin(shared: &Shared, hold: &Hold) {
    if hold.request.key.traits().is_led
        && let Some(lease) = hold.lease()
    {
        let now = shared.clock.now();
        lease.confirm_at(now);
        shared.lease_due_at(now);
    }
}

/// Writes the records of these leaders. The next renewal repeats a write that failed.
pub(super) async fn announce(shared: &Shared, leaders: &[Arc<Acquisition>]) {
    let announcing = leaders.iter().map(async |leader| {
        let (token, term) = (shared.token(leader), leader.number());
        let leads = leader.owner().map(|value| (term, value));
        // Zero once it has ended.
        if let Some(leads) = leads.filter(|_| term > 0)
            && let Err(error) = shared.store.announce(&leader.key, &token, Some(leads)).await
        {
            let (key, refused) = (leader.key.name(), matches!(error, StoreError::Misconfigured(_)));
            if refused && !shared.leads_unseen.swap(true, Ordering::Relaxed) {
                tracing::warn!(key, %error, "observers do not see this leader");
            } else {
                tracing::debug!(key, %error, "the leader could not be announced: trying again with the next renewal");
            }
        }
    });
    join_all(announcing).await;
}

/// Releases the lock, then tells the observers of a leader that its term has ended: else they learn it when the lease would have ended.
pub(super) async fn release(
    shared: &Shared,
    leader: &Acquisition,
    token: &Token,
) -> Result<Released, StoreError> {
    let key = &leader.key;
    let released = shared.store.release(key, token, leader.owner()).await?;
    if key.traits().is_led
        && let Err(error) = Box::pin(shared.store.announce(key, token, None)).await
    {
        tracing::debug!(key = key.name(), %error, "the end of a term could not be announced");
    }
    Ok(released)
}
