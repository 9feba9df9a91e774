//! Letting go of a lock and asking for it again in one command, for those who wait in this process.

use std::sync::Arc;

use super::Shared;
use super::contender::Contender;
use super::outstanding::{Asker, Outstanding};
use crate::queue::Line;
use crate::store::{Answer, Mode, Passed, Released, Store, StoreError};
use crate::sync::lock;

/// A new contender takes the place of the holder: it has the lock, or the last place of the server's queue. `None` where
/// nobody waits here, or the holder cannot be replaced.
pub(super) async fn replace(
    shared: &Arc<Shared>,
    line: &Arc<Line>,
    holder: &Arc<Contender>,
) -> Option<Result<Released, StoreError>> {
    let next = line.next_after(holder)?;
    let contender = shared.contender(&next.request, Some(line)).ok()?;
    let limits = shared.limits(line);
    let Some(spare) = line.replace(holder, &contender, &next, shared.now(), limits) else {
        shared.forget(&contender);
        return None;
    };
    let terms = next.request.terms;
    let mut passing = Passing {
        shared,
        line,
        contender: &contender,
        request: Some(Outstanding::begin(shared, &contender, terms, spare)),
    };
    let (token, from) = (shared.token(&contender), shared.token(holder));
    let attempt = passing.request.as_ref()?.attempt(&token, Mode::Wait);
    let answer = shared.store.pass(attempt, &from).await;
    let request = passing.request.take()?;
    // Where the caller did not run for too long, the first in line asks by now: what was answered is of the past.
    let awaited = line.waits_for_release(&contender);
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
        // Before the check is set: one that falls due while somebody asks is dropped.
        line.release_answered(&contender);
        shared.check_line(line, terms, place.remaining);
    }
    let released = match answer {
        Ok(Answer::Granted { .. } | Answer::Queued(_)) => Ok(Released::HandedOver),
        // Something else has taken the name in between; the one that waits finds out by asking.
        Ok(Answer::Busy { .. } | Answer::Foreign { .. }) => Ok(Released::Free),
        Err(error) => Err(error),
    };
    passing.over(matches!(released, Err(_) | Ok(Released::Free)));
    line.heard(released.is_ok());
    Some(released)
}

/// The first in line waits for our answer: it must hear of it whatever happens.
struct Passing<'a> {
    shared: &'a Shared,
    line: &'a Arc<Line>,
    contender: &'a Arc<Contender>,
    request: Option<Outstanding<'a>>,
}

impl Passing<'_> {
    fn over(self, ask_again: bool) {
        if ask_again {
            lock(&self.contender.wait).interrupted();
        }
        self.tell();
        // The waiter has left while the request was on its way, or was repeated: its clean-up may have come first.
        if self.contender.is_over() {
            self.shared.undo_again(self.contender);
        }
        std::mem::forget(self);
    }

    fn tell(&self) {
        self.line.release_answered(self.contender);
        self.line.wake_first();
    }
}

impl Drop for Passing<'_> {
    /// The release was dropped on its way: it may be carried out all the same.
    fn drop(&mut self) {
        self.request = None;
        lock(&self.contender.wait).interrupted();
        self.tell();
    }
}
