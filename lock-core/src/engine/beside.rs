//! Attempts to acquire a lock beside the line: for a client that does not wait, and for an owner that may have the lock already.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::acquisition::{Acquisition, Taken};
use super::hold::{Hold, LockRequest};
use super::inbox::Granted;
use super::outstanding::Outstanding;
use super::patience::{Limit, NoAnswer, Patience, TooLate, within};
use super::release::Unfinished;
use super::retries::Retries;
use super::shared::Shared;
use crate::base::error::LockError;
use crate::base::error::{Cause, LossReason};
use crate::base::time::Moment;
use crate::store::{Answer, Mode, NO_TTL, Store, StoreError};

/// Tries to acquire the lock beside the line.
pub(super) async fn alone(
    shared: &Arc<Shared>,
    request: LockRequest,
    patience: Patience,
    answered: &mut bool,
) -> Result<Arc<Hold>, LockError> {
    let acquisition = shared.acquisition(&request)?;
    let hold = Arc::new(Hold::new(request));
    let unfinished = Unfinished::new(shared, &acquisition);
    let mut retries = Retries::new();
    let mut last = None;
    loop {
        acquisition.life().state.asking(hold.request.terms);
        if shared.is_closing() {
            shared.check_alive()?;
            return Err(last.map_or(LockError::ShutDown, StoreError::into_lock_error));
        }
        // The acquisition that has the lock for the owner here before the request.
        let owners = shared.holder_for(&hold.request);
        let end = patience.end();
        let Some((sent_at, answer)) = try_once(shared, &acquisition, end).await else {
            // As in the line: a server that has answered is reachable.
            return Err(if *answered {
                LockError::TimedOut {
                    key: acquisition.key.name().to_owned(),
                    waited: patience.waited(),
                    holder: None,
                }
            } else {
                shared.unavailable(&acquisition.key, NoAnswer)
            });
        };
        *answered = answer.is_ok();
        let error = match answer {
            Ok(Answer::Granted { fence, .. }) => {
                let granted = Granted::by_answer(fence, 0, sent_at, hold.request.terms);
                match shared.take_alone(&acquisition, granted, &hold) {
                    Taken::Held => {
                        hold.take();
                        unfinished.held();
                        return Ok(hold);
                    }
                    Taken::ShutDown | Taken::Abandoned => return Err(LockError::ShutDown),
                    Taken::Revoked => continue,
                    Taken::TooLate => StoreError::Ambiguous(Cause::new(Arc::new(TooLate))),
                }
            }
            Ok(Answer::Busy { remaining, holder }) => {
                if let Some(lease) = owners.as_ref().and_then(|holder| holder.lease())
                    && lease.lose(LossReason::Gone)
                {
                    // Until now this process knew the owner as the holder, but another owner has the lock.
                    shared.lease_due_at(sent_at);
                }
                acquisition.life().state.refused();
                if shared.is_closing() {
                    return Err(LockError::ShutDown);
                }
                return Err(LockError::Busy {
                    key: acquisition.key.name().to_owned(),
                    retry_after: (remaining < NO_TTL).then_some(remaining),
                    holder,
                });
            }
            Ok(Answer::Queued(_)) => return Err(shared.unavailable(&acquisition.key, Unasked)),
            Ok(Answer::Foreign { kind }) => return Err(foreign(&acquisition, kind)),
            Err(error) => error,
        };
        if shared.is_closing() {
            // If the runtime has ended, its connection is broken, and `acquire` reports that.
            return Err(LockError::ShutDown);
        }
        let pause = retries.again();
        let give_up = match patience.limit {
            // A broken connection may have lost the reply: a second request with the same token finds out.
            Limit::Try => retries.count > 1 || !matches!(error, StoreError::Ambiguous(_)),
            Limit::Within(_) => end.is_some_and(|end| Instant::now() + pause >= end),
            Limit::Forever => retries.lasted() > hold.request.terms.ttl(),
        };
        if give_up || matches!(error, StoreError::Misconfigured(_)) {
            return Err(error.into_lock_error());
        }
        last = Some(error);
        sleep(pause).await;
    }
}

/// Sends one request of an attempt, and returns the moment of sending. Returns `None` if the time ran out first.
async fn try_once(
    shared: &Shared,
    acquisition: &Arc<Acquisition>,
    end: Option<Instant>,
) -> Option<(Moment, Result<Answer, StoreError>)> {
    // A client that gives up before a connection exists leaves nothing on the server.
    if let Some(connecting) = shared.store.connecting(&acquisition.key)
        && let Err(error) = within(end, connecting).await?
    {
        return Some((shared.now(), Err(error)));
    }
    let token = shared.token(acquisition);
    let request = Outstanding::begin(shared, acquisition, acquisition.terms(), 0);
    let answer = within(
        end,
        shared.store.acquire(request.attempt(&token, Mode::Try)),
    )
    .await?;
    let sent_at = request.sent_at();
    request.settle(&answer);
    Some((sent_at, answer))
}

pub(super) fn foreign(acquisition: &Acquisition, kind: String) -> LockError {
    LockError::NotALock {
        key: acquisition.key.name().to_owned(),
        kind,
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the server's answer does not fit the request")]
struct Unasked;
