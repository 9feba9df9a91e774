//! A writer that becomes a reader, and a reader that becomes the writer.

use std::time::Duration;

use super::hold::Hold;
use super::lease::Status;
use super::shared::Shared;
use crate::base::error::{LockError, LossReason};
use crate::base::kind::Reweigh;
use crate::store::{Reweighed, StoreError};

/// Maximum number of requests, each of which finds what an earlier one has done.
const TRIES: u64 = 3;

/// Returns false if there are other readers, or waiters. After an error the hold may have changed on the server; its renewal and its
/// release are the same in either case.
pub(crate) async fn reweigh(shared: &Shared, hold: &Hold, to: Reweigh) -> Result<bool, LockError> {
    // A reader or a waiter that this process let go just before is not in its way.
    let key = &hold.request.key;
    shared.after_own_releases(key, None).await?;
    let (Some(acquisition), Some(lease)) = (hold.acquisition(), hold.lease()) else {
        unreachable!("a guard is made of a hold that has begun")
    };
    let token = shared.token(acquisition);
    let from = hold.fencing_token().get();
    let mut tries = 0;
    let check = || match hold.status(shared.clock.now()) {
        Status::Lost(reason) => Err(LockError::Lost {
            key: key.name().to_owned(),
            reason,
        }),
        Status::Held | Status::Pending | Status::Released => Ok(()),
    };
    loop {
        tries += 1;
        check()?;
        let answer = shared
            .store
            .reweigh(&acquisition.key, &token, from, to)
            .await;
        match answer {
            Ok(Reweighed::Done { fence }) => {
                shared.has_token(fence);
                hold.renumber(fence);
                // The answer may have come later than the lease lasts.
                return check().map(|()| true);
            }
            Ok(Reweighed::NotAlone) => return check().map(|()| false),
            Ok(Reweighed::NotHeld) => {
                lease.lose(LossReason::Gone);
                shared.lease_due_at(shared.clock.now());
            }
            Err(error) if tries == TRIES || matches!(error, StoreError::Misconfigured(_)) => {
                return Err(error.into_lock_error());
            }
            Err(_) => {
                let pause = Duration::from_millis(10 * tries);
                shared.timers.sleep(pause).await;
            }
        }
    }
}
