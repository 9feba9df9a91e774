//! Outstanding requests, which may still take effect.

use std::sync::Arc;

use super::acquisition::Acquisition;
use super::shared::Shared;
use super::state::{Asker, SentRequest};
use crate::base::sync::lock;
use crate::base::terms::Terms;
use crate::base::token::Token;
use crate::store::{Answer, Attempt, Mode, StoreError};

/// A request for an acquisition, from just before it is sent until its answer is read. If dropped earlier, it counts as a request
/// that may still take effect, and the clean-up of the acquisition waits for it.
#[must_use = "dropped, it counts as a request without an answer"]
pub(super) struct Outstanding<'a> {
    shared: &'a Shared,
    acquisition: &'a Arc<Acquisition>,
    sent: SentRequest,
    reserve: u64,
    answered: bool,
}

impl<'a> Outstanding<'a> {
    /// A request for a lease on these terms, with `reserve` fencing tokens beside the first.
    pub(super) fn begin(
        shared: &'a Shared,
        acquisition: &'a Arc<Acquisition>,
        by: Asker,
        terms: Terms,
        reserve: u64,
    ) -> Self {
        lock(&acquisition.life).state.requested();
        let at = shared.clock.now();
        Self {
            shared,
            acquisition,
            sent: SentRequest { at, terms, by },
            reserve,
            answered: false,
        }
    }

    /// The request as it is sent.
    pub(super) fn attempt<'b>(&'b self, token: &'b Token, mode: Mode) -> Attempt<'b> {
        self.acquisition
            .attempt(token, mode, self.sent.terms, self.reserve)
    }

    /// The answer has come, and the caller evaluates it. An ambiguous error leaves the request outstanding.
    pub(super) fn settle<T>(self, answer: &Result<T, StoreError>) {
        self.end(!matches!(answer, Err(StoreError::Ambiguous(_))));
    }

    /// The answer has come, but its caller was stalled and has lost its place: the request was counted then.
    pub(super) fn settle_late(self) {
        self.end(true);
    }

    /// The answer has come, for the acquisition.
    pub(super) fn read(mut self, answer: &Result<Answer, StoreError>) {
        self.answered = true;
        if answer.is_ok() && self.shared.outages.is_any() {
            self.shared.answered(&self.acquisition.key);
        }
        if let Ok(Answer::Granted { fence, reserve }) = answer {
            self.shared.has_token(fence + reserve);
        }
        let now = self.shared.clock.now();
        let mut life = lock(&self.acquisition.life);
        let action = life.state.answered(self.sent, answer, now);
        drop(life);
        self.shared.act(self.acquisition, action);
    }

    fn end(mut self, clear: bool) {
        self.answered = true;
        let action = lock(&self.acquisition.life).state.settled(clear);
        self.shared.act(self.acquisition, action);
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let action = lock(&self.acquisition.life).state.settled(false);
            self.shared.act(self.acquisition, action);
        }
    }
}
