//! Releases what an acquisition has on the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::acquisition::Acquisition;
use super::hold::{Hold, HoldEnd};
use super::lease::{Lease, Status};
use super::pass;
use super::shared::Shared;
use super::state::Action;
use super::yield_turn::YieldTurn;
use crate::base::backoff::Backoff;
use crate::base::error::{LockError, LossReason};
use crate::base::key::LockKey;
use crate::base::observe::ReleasedHow;
use crate::base::sync::lock;
use crate::base::time::Moment;
use crate::store::{Released, Renewal, StoreError};

/// Maximum pause after the first release that failed.
const RETRY: Duration = Duration::from_millis(10);

/// Maximum time in which requests of a broken connection may still take effect. It delays a shutdown.
const ZOMBIE: Duration = Duration::from_secs(1);

/// Minimum time for which a release with an owner is retried while its manager is in use. The server still counts the hold, and a
/// later acquisition for the owner would keep it.
const OWNED: Duration = Duration::from_secs(3600);

/// Releases until the server has confirmed it, or until the ttl has ended the lease, and then forgets the acquisition.
pub(super) async fn until_confirmed(shared: Arc<Shared>, acquisition: Arc<Acquisition>) {
    acquisition.let_go();
    loop {
        release(&shared, &acquisition).await;
        // A shutdown must not end before the grants of outstanding requests are released. A request takes longer only if its client
        // does not run. The clean-up then follows when that client reads the answer.
        let ended = shared
            .progress
            .until(|| !lock(&acquisition.life).state.awaits_request());
        let limit = shared.config.command_deadline;
        let _ = shared.timers.timeout(limit, ended).await;
        let action = lock(&acquisition.life).state.cleaned_up();
        if action == Action::Forget {
            break;
        }
    }
    shared.forget(&acquisition);
}

async fn release(shared: &Arc<Shared>, acquisition: &Arc<Acquisition>) {
    let begun = shared.timers.now();
    let mut counted_from = begun;
    let mut backoff = Backoff::new(RETRY, Duration::from_secs(1));
    loop {
        let reconnected = shared.reconnected.notified();
        let answer = let_go(shared, acquisition).await;
        shared.release_tried(acquisition);
        match answer {
            // Requests without an answer may still be under way on a connection that broke.
            Ok(released) if lock(&acquisition.life).state.released(released) => {
                let lasts = shared.lasts(acquisition);
                let pause = shared.config.command_deadline.min(lasts).min(ZOMBIE);
                shared.timers.sleep(pause).await;
            }
            Ok(released) => {
                tracing::debug!(key = acquisition.key.name(), ?released, "released");
                break;
            }
            // The acquire was refused as well.
            Err(StoreError::Misconfigured(_)) if lock(&acquisition.life).state.was_refused() => {
                break;
            }
            Err(error) => {
                let now = shared.timers.now();
                if acquisition.key.traits().has_owners && shared.is_used() && now - begun < OWNED {
                    counted_from = now;
                }
                let give_up = counted_from + shared.lasts(acquisition);
                if now >= give_up {
                    tracing::warn!(
                        key = acquisition.key.name(),
                        %error,
                        "the server did not confirm a release: what it was for has ended by its ttl"
                    );
                    break;
                }
                let next = now + backoff.failed();
                // The pause ends with a new connection.
                let end = next.min(give_up);
                let _ = shared.timers.timeout_at(end, reconnected).await;
            }
        }
    }
}

impl Shared {
    /// Waits for the earlier releases of this lock that the task has not sent, or that the server has not confirmed: without this
    /// wait a client would find the lock held by a guard that its process has just dropped. Later releases are not waited for: they
    /// may never end.
    pub(super) async fn after_own_releases(
        &self,
        key: &LockKey,
        end: Option<Instant>,
    ) -> Result<(), LockError> {
        // If the engine's task has ended, an earlier release is never confirmed: do not wait for it.
        self.check_alive()?;
        let last = lock(&self.registry).last_release();
        let is_releasing = || lock(&self.registry).is_releasing(key, last);
        if is_releasing() {
            let most = self.timers.now() + self.config.command_deadline;
            let end = end.map_or(most, |end| end.min(most));
            let ended = self.progress.until(|| !is_releasing());
            let _ = self.timers.timeout_at(end, ended).await;
        }
        Ok(())
    }

    /// Ends the hold of a guard.
    pub(crate) fn end(&self, hold: &Arc<Hold>) {
        if hold.phase() != Status::Held {
            hold.observe_end(
                || self.clock.now(),
                HoldEnd::Released(ReleasedHow::Unconfirmed),
            );
            return;
        }
        let now = self.clock.now();
        if hold.release(now) == Status::Held {
            if let Some(acquisition) = self.pass_on(hold, now) {
                self.clean_up(acquisition);
            }
            hold.observe_end(|| now, HoldEnd::Released(ReleasedHow::Dropped));
        }
    }

    /// Whether a handle of the manager is left. Through it a client may still acquire.
    fn is_used(&self) -> bool {
        self.commands.upgrade().is_some()
    }
}

/// Releases the lock of the holder and waits for the answer.
///
/// A call whose reply was lost is repeated, and a refresh in flight may release as well. A missing token is then a success, as
/// long as the lease was not over. On an error the engine continues in the background.
pub(crate) async fn confirmed(
    shared: &Arc<Shared>,
    hold: &Arc<Hold>,
    most_tries: u32,
) -> Result<(), LockError> {
    let now = shared.clock.now();
    let before = hold.release(now);
    let lost = |reason| LockError::Lost {
        key: hold.request.key.name().to_owned(),
        reason,
    };
    if let Status::Lost(reason) = before {
        // The engine cleans up after a loss, so nothing is left to confirm.
        return Err(lost(reason));
    }
    let lease_end = hold.end();
    let released = HoldEnd::Released(ReleasedHow::Released);
    let Some(acquisition) = shared.pass_on(hold, now) else {
        hold.observe_end(|| now, released);
        return Ok(());
    };
    let unfinished = Unfinished::new(shared, &acquisition);
    let (mut backoff, mut perhaps_done) = (Backoff::new(RETRY, RETRY * 2), false);
    loop {
        let answer = let_go(shared, &acquisition).await;
        match answer {
            Ok(Released::NotHeld)
                if (perhaps_done || lock(&acquisition.life).state.is_cleaned_up_by_task())
                    && shared.clock.now() < lease_end =>
            {
                break;
            }
            Ok(Released::NotHeld) => {
                unfinished.released();
                hold.warn_of_loss(shared.clock.now(), LossReason::Gone);
                return Err(lost(LossReason::Gone));
            }
            Ok(_) => break,
            Err(error @ StoreError::Misconfigured(_)) => return Err(error.into_lock_error()),
            Err(error) => {
                let pause = backoff.failed();
                if backoff.failures() >= most_tries || shared.clock.now() >= lease_end {
                    return Err(error.into_lock_error());
                }
                perhaps_done |= matches!(error, StoreError::Ambiguous(_));
                shared.timers.sleep(pause).await;
            }
        }
    }
    unfinished.released();
    hold.observe_end(|| now, released);
    Ok(())
}

/// Releases the lock, or leaves it to its ttl if it must be kept for a while. If waiters are left in this process, the same
/// command asks for them.
async fn let_go(
    shared: &Arc<Shared>,
    acquisition: &Arc<Acquisition>,
) -> Result<Released, StoreError> {
    let now = shared.clock.now();
    let token = shared.token(acquisition);
    let line = shared.line_of(acquisition);
    if line.is_some() {
        // Waiters of this process depend on this release: if its caller does not run from here on, two sweeps find that soon.
        shared.lease_due_at(now + shared.config.command_deadline);
    }
    let keep_for = lock(&acquisition.life).state.keep_for(now);
    if let Some(left) = keep_for {
        return keep(shared, acquisition, now, left).await;
    }
    if let Some(line) = &line
        && let Some(answer) = Box::pin(pass::replace(shared, line, acquisition)).await
    {
        return answer;
    }
    // Do not yield for a clean-up, nor while other guards of the same owner keep the lock.
    let yields =
        !acquisition.key.traits().queues && acquisition.lease().is_some_and(Lease::is_over);
    let line = line.filter(|_| yields);
    if let Some(line) = &line {
        line.start_yielding(now);
    }
    // From now on the requests of waiters follow this release.
    shared.gone(acquisition);
    let (key, owner) = (&acquisition.key, acquisition.claim.owner());
    let is_alone = acquisition.is_alone();
    let released = shared.store.release(key, &token, owner, is_alone).await;
    let heard = match released {
        Ok(Released::Announced { heard }) => Some(heard),
        _ => None,
    };
    let yield_turn = match (line, heard) {
        (Some(line), heard) => line.yielded(heard),
        (None, Some(heard)) if yields && heard > 0 => Some(YieldTurn::wanted_by(heard)),
        (None, _) => None,
    };
    if let Some(yield_turn) = yield_turn {
        lock(&shared.registry).keep_yield(&acquisition.key, shared.clock.now(), yield_turn);
    }
    released
}

/// Leaves the lock to its ttl, which is the rest of the time for which it must be kept.
async fn keep(
    shared: &Shared,
    acquisition: &Acquisition,
    now: Moment,
    left: Duration,
) -> Result<Released, StoreError> {
    let keep = Renewal {
        key: &acquisition.key,
        token: &shared.token(acquisition),
        ttl: left,
        fence: 0,
        shortens: true,
        claim: &acquisition.claim,
    };
    let kept = Box::pin(shared.store.extend(&[keep])).await.pop();
    Ok(if kept.transpose()? == Some(true) {
        lock(&shared.registry).keep(acquisition.sequence, now, now + left);
        Released::Kept
    } else {
        Released::NotHeld
    })
}

/// An attempt or a release of a client. If dropped, it abandons the acquisition.
pub(super) struct Unfinished<'a> {
    shared: &'a Shared,
    acquisition: Option<Arc<Acquisition>>,
}

impl<'a> Unfinished<'a> {
    pub(super) fn new(shared: &'a Shared, acquisition: &Arc<Acquisition>) -> Self {
        Self {
            shared,
            acquisition: Some(Arc::clone(acquisition)),
        }
    }

    /// The server has confirmed the release.
    pub(super) fn released(mut self) {
        if let Some(acquisition) = self.acquisition.take() {
            let action = lock(&acquisition.life).state.released_by_client();
            self.shared.act(&acquisition, action);
        }
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(acquisition) = self.acquisition.take() {
            self.shared.abandon(&acquisition);
        }
    }
}
