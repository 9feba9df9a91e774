//! Trying to take a lock beside the line: for one who does not wait, and for an owner that may have it already.

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use super::patience::{Limit, NoAnswer, Patience, TooLate, within};
use super::trouble::Trouble;
use crate::LockError;
use crate::error::{Cause, LossReason};
use crate::session::{Contender, Granted, Hold, Outstanding, Request, Session, Taken};
use crate::store::{Answer, Mode, NO_TTL, Store, StoreError};
use crate::sync::lock;
use crate::time::Moment;

/// One try beside the line.
pub(super) async fn alone(
    session: &Arc<Session>,
    request: Request,
    patience: Patience,
    answered: &mut bool,
) -> Result<Arc<Hold>, LockError> {
    let shared = &*session.shared;
    let contender = shared.contender(&request, None)?;
    let hold = Arc::new(Hold::new(request));
    let mut attempt = Attempted {
        session,
        contender: Some(Arc::clone(&contender)),
        sent: false,
    };
    let mut trouble = Trouble::new();
    let mut last = None;
    loop {
        lock(&contender.wait).asking(hold.request.terms);
        if shared.is_closing() {
            session.check_alive()?;
            return Err(last.map_or(LockError::ShutDown, StoreError::into_lock_error));
        }
        // What the owner has here before we ask.
        let owners = shared.holder_for(&hold.request);
        let end = patience.end();
        let Some((sent_at, answer)) = try_once(&mut attempt, &contender, end).await else {
            // As in line: a server that has answered is there.
            return Err(if *answered {
                LockError::TimedOut {
                    key: contender.key.name().to_owned(),
                    waited: patience.waited(),
                }
            } else {
                LockError::unavailable(NoAnswer)
            });
        };
        *answered = answer.is_ok();
        let error = match answer {
            Ok(Answer::Granted { fence }) => {
                let granted = Granted::by_answer(fence, 0, sent_at, hold.request.terms);
                match shared.take_alone(&contender, granted, &hold) {
                    Taken::Held => {
                        hold.take();
                        attempt.contender = None;
                        return Ok(hold);
                    }
                    Taken::ShutDown | Taken::Abandoned => return Err(LockError::ShutDown),
                    Taken::Revoked => continue,
                    Taken::TooLate => StoreError::Ambiguous(Cause::new(Arc::new(TooLate))),
                }
            }
            Ok(Answer::Busy { remaining }) => {
                if let Some(lease) = owners.as_ref().and_then(|holder| holder.lease())
                    && lease.lose(LossReason::Taken)
                {
                    // All the while the owner had it as far as we knew, and another has it.
                    shared.lease_due_at(sent_at);
                }
                // The server answered that it holds nothing of this try; unless an earlier request is still out.
                attempt.sent = contender.has_unanswered();
                if shared.is_closing() {
                    return Err(LockError::ShutDown);
                }
                return Err(LockError::Busy {
                    key: contender.key.name().to_owned(),
                    retry_after: (remaining < NO_TTL).then_some(remaining),
                });
            }
            Ok(Answer::Queued(_)) => return Err(LockError::unavailable(Unasked)),
            Ok(Answer::Foreign { kind }) => return Err(foreign(&contender, kind)),
            Err(error) => error,
        };
        if shared.is_closing() {
            // Where it was the runtime that ended, its connection is broken, and `acquire` says so.
            return Err(LockError::ShutDown);
        }
        let pause = trouble.again();
        let give_up = match patience.limit {
            // A broken connection may have swallowed the reply: with the same token a second call finds out.
            Limit::Try => trouble.count > 1 || !matches!(error, StoreError::Ambiguous(_)),
            Limit::Within(_) => end.is_some_and(|end| Instant::now() + pause >= end),
            Limit::Forever => trouble.lasted() > hold.request.terms.ttl(),
        };
        if give_up || matches!(error, StoreError::Misconfigured(_)) {
            return Err(error.into_lock_error());
        }
        last = Some(error);
        sleep(pause).await;
    }
}

/// One request of a try, and when it was sent. `None` where the time ran out first.
async fn try_once(
    attempt: &mut Attempted<'_>,
    contender: &Arc<Contender>,
    end: Option<Instant>,
) -> Option<(Moment, Result<Answer, StoreError>)> {
    let shared = &*attempt.session.shared;
    // A caller that gives up before there is a connection leaves nothing behind.
    if let Some(connecting) = shared.store.connecting()
        && let Err(error) = within(end, connecting).await?
    {
        return Some((shared.now(), Err(error)));
    }
    let token = shared.token(contender);
    let request = Outstanding::begin(shared, contender, contender.terms(), 0);
    attempt.sent = true;
    let answer = within(
        end,
        shared.store.acquire(request.attempt(&token, Mode::Try)),
    )
    .await?;
    let sent_at = request.sent_at();
    request.settle(&answer);
    Some((sent_at, answer))
}

/// Undoes a try when dropped, unless it was completed or came to nothing.
pub(super) struct Attempted<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) contender: Option<Arc<Contender>>,
    pub(super) sent: bool,
}

impl Drop for Attempted<'_> {
    fn drop(&mut self) {
        if let Some(contender) = self.contender.take() {
            self.session.abandon(contender, self.sent);
        }
    }
}

pub(super) fn foreign(contender: &Contender, kind: String) -> LockError {
    LockError::ForeignKey {
        key: contender.key.name().to_owned(),
        kind,
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the server answered what was not asked")]
struct Unasked;
