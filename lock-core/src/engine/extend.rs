//! A holder that changes the ttl of its lease.

use super::hold::Hold;
use super::lease::Status;
use super::patience::NoAnswer;
use super::shared::Shared;
use crate::base::error::LockError;
use crate::base::sync::lock;
use crate::base::terms::Terms;
use crate::store::StoreError;

/// Makes these the terms of all later renewals, and waits until the server has confirmed the first.
///
/// Cancel-safe: the terms stay, and the task renews on them.
pub(crate) async fn extend(shared: &Shared, hold: &Hold, terms: Terms) -> Result<(), LockError> {
    shared.check_alive()?;
    let lost = |reason| LockError::Lost {
        key: hold.request.key.name().to_owned(),
        reason,
    };
    let (Some(acquisition), Some(lease)) = (hold.acquisition(), hold.lease()) else {
        unreachable!("a guard is made of a hold that has begun")
    };
    // The clean-up of a late request waits for as long as the lock may last.
    lock(&acquisition.life).state.on(terms);
    lock(&shared.registry).note_longest(&hold.request.claim, terms);
    let number = lease.extend(shared.clock.now(), terms);
    shared.lease_due_at(shared.clock.now());
    // One for a renewal that is under way, one for a connection, one for the answer. It is for a runtime that is not driven.
    let give_up = shared.timers.now() + shared.config.command_deadline.saturating_mul(3);
    loop {
        let changed = lease.changed();
        let now = shared.clock.now();
        match hold.status(now) {
            Status::Lost(reason) => return Err(lost(reason)),
            Status::Held | Status::Pending | Status::Released => {}
        }
        if let Some(outcome) = lease.extended(number) {
            return outcome.map_err(StoreError::into_lock_error);
        }
        if shared.timers.now() >= give_up {
            shared.check_alive()?;
            return Err(shared.unavailable(&hold.request.key, NoAnswer));
        }
        let end = shared.timers.now() + now.until(hold.end());
        let _ = shared.timers.timeout_at(end.min(give_up), changed).await;
    }
}
