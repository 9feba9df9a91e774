//! Outstanding requests, which may still take effect.

use std::sync::Arc;

use super::acquisition::Acquisition;
use super::inbox::Granted;
use super::shared::Shared;
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::base::token::Token;
use crate::store::{Answer, Attempt, Mode, StoreError};

/// A request for an acquisition, from just before it is sent until its answer is read. If dropped earlier, it counts as a request
/// that may still take effect, and the clean-up of the acquisition waits for it.
#[must_use = "dropped, it counts as a request without an answer"]
pub(crate) struct Outstanding<'a> {
    shared: &'a Shared,
    acquisition: &'a Arc<Acquisition>,
    terms: Terms,
    reserve: u64,
    sent_at: Moment,
    answered: bool,
}

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The first waiter of the line, for itself.
    Waiter,
    /// The task, for the line.
    Refresh,
    /// The release of the previous holder, for the line.
    Release,
}

impl<'a> Outstanding<'a> {
    /// A request for a lease on these terms, with `reserve` fencing tokens beside the first.
    pub(crate) fn begin(
        shared: &'a Shared,
        acquisition: &'a Arc<Acquisition>,
        terms: Terms,
        reserve: u64,
    ) -> Self {
        acquisition.life().state.requested();
        Self {
            shared,
            acquisition,
            terms,
            reserve,
            sent_at: shared.now(),
            answered: false,
        }
    }

    /// The moment before the request was sent, on the lease clock.
    pub(crate) fn sent_at(&self) -> Moment {
        self.sent_at
    }

    /// The request as it is sent.
    pub(crate) fn attempt<'b>(&'b self, token: &'b Token, mode: Mode) -> Attempt<'b> {
        Attempt {
            // Another request may use other terms for this acquisition at this moment.
            ttl: self.terms.ttl(),
            ..self.acquisition.attempt(token, mode, self.reserve)
        }
    }

    /// The answer has come, and the caller evaluates it. An ambiguous error leaves the request outstanding.
    pub(crate) fn settle<T>(self, answer: &Result<T, StoreError>) {
        self.end(!matches!(answer, Err(StoreError::Ambiguous(_))));
    }

    /// The answer has come, but the waiter did not run for too long and lost its place: the request was counted then.
    pub(crate) fn settle_late(self) {
        self.end(true);
    }

    /// The answer has come: records it in the inbox of the acquisition.
    pub(crate) fn read(self, answer: &Result<Answer, StoreError>, asker: Asker) {
        let (sent_at, terms) = (self.sent_at, self.terms);
        if answer.is_ok() {
            self.shared.answered(&self.acquisition.key);
        }
        let mut life = self.acquisition.life();
        let state = &mut life.state;
        match answer {
            Ok(Answer::Granted { fence, reserve }) => {
                self.shared.has_token(fence + reserve);
                let granted = Granted::by_answer(*fence, *reserve, sent_at, terms);
                state.granted(granted, self.shared.now());
            }
            Ok(Answer::Queued(place)) if asker == Asker::Refresh => {
                state.refreshed(sent_at, terms, place.last_fence);
            }
            Ok(Answer::Queued(place)) => state.queued(sent_at, terms, place.last_fence),
            Ok(Answer::Busy { .. }) => state.parked(),
            // The waiter learns the reason from a request of its own.
            Ok(Answer::Foreign { .. }) => state.interrupted(),
            Err(error) => {
                state.failed(self.shared.now(), error.clone());
                // The task repeats a refresh by itself.
                if asker != Asker::Refresh {
                    state.interrupted();
                }
            }
        }
        drop(life);
        self.settle(answer);
    }

    fn end(mut self, clear: bool) {
        self.answered = true;
        let action = self.acquisition.life().state.settled(clear);
        self.shared.act(self.acquisition, action);
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let action = self.acquisition.life().state.settled(false);
            self.shared.act(self.acquisition, action);
        }
    }
}
