//! Releases a lock and asks for it again in one command, for the waiters of this process.

use std::sync::Arc;

use super::acquisition::Acquisition;
use super::line::Line;
use super::outstanding::{Asker, Outstanding};
use super::shared::Shared;
use crate::store::{Answer, Mode, Passed, Released, Store, StoreError};
use crate::sync::lock;

/// Replaces the holder by a new acquisition, which gets the lock, or the last place in the server's queue. Returns `None` if this
/// process has no waiter, or if the holder cannot be replaced.
pub(super) async fn replace(
    shared: &Arc<Shared>,
    line: &Arc<Line>,
    holder: &Arc<Acquisition>,
) -> Option<Result<Released, StoreError>> {
    let next = line.next_after(holder)?;
    let acquisition = shared.acquisition(&next.request, Some(line)).ok()?;
    let limits = shared.limits(line);
    let Some(reserve) = line.replace(holder, &acquisition, &next, shared.now(), limits) else {
        shared.forget(&acquisition);
        return None;
    };
    let terms = next.request.terms;
    let mut passing = Passing {
        shared,
        line,
        acquisition: &acquisition,
        request: Some(Outstanding::begin(shared, &acquisition, terms, reserve)),
    };
    let (token, from) = (shared.token(&acquisition), shared.token(holder));
    let attempt = passing.request.as_ref()?.attempt(&token, Mode::Wait);
    let answer = shared.store.pass(attempt, &from).await;
    let request = passing.request.take()?;
    // If the client did not run for too long, the first waiter may be asking by now: the answer is outdated.
    let awaited = line.waits_for_release(&acquisition);
    let answer = match answer {
        Ok(Passed::Lost) => {
            request.settle(&answer);
            passing.over(true);
            line.heard(true);
            return Some(Ok(Released::NotHeld));
        }
        Ok(Passed::On(answer)) => Ok(answer),
        Err(error) => Err(error),
    };
    if awaited || answer.is_err() {
        request.read(&answer, Asker::Release);
    } else {
        request.settle(&answer);
    }
    if let Ok(Answer::Queued(place)) = &answer
        && awaited
    {
        // Mark the answer before the check is set: a check that falls due during a request is dropped.
        line.release_answered(&acquisition);
        shared.check_line(line, terms, place.remaining);
    }
    let released = match answer {
        Ok(Answer::Granted { .. } | Answer::Queued(_)) => Ok(Released::HandedOver),
        // The name was taken in between; the waiter finds out by asking.
        Ok(Answer::Busy { .. } | Answer::Foreign { .. }) => Ok(Released::Free),
        Err(error) => Err(error),
    };
    passing.over(matches!(released, Err(_) | Ok(Released::Free)));
    line.heard(released.is_ok());
    Some(released)
}

/// The first waiter waits for the answer: it must be told in every case.
struct Passing<'a> {
    shared: &'a Shared,
    line: &'a Arc<Line>,
    acquisition: &'a Arc<Acquisition>,
    request: Option<Outstanding<'a>>,
}

impl Passing<'_> {
    fn over(self, ask_again: bool) {
        if ask_again {
            lock(&self.acquisition.inbox).interrupted();
        }
        self.tell();
        // The waiter has left while the request was under way, or was repeated: its clean-up may have come first.
        if self.acquisition.is_over() {
            self.shared.undo_again(self.acquisition);
        }
        std::mem::forget(self);
    }

    fn tell(&self) {
        self.line.release_answered(self.acquisition);
        self.line.wake_first();
    }
}

impl Drop for Passing<'_> {
    /// The release was dropped while it was under way: it may still take effect.
    fn drop(&mut self) {
        self.request = None;
        lock(&self.acquisition.inbox).interrupted();
        self.tell();
    }
}
