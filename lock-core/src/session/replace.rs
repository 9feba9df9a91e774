//! Letting go of a lock and asking for it again in one command, for those who wait in this process.

use std::sync::Arc;

use super::Shared;
use super::contender::Contender;
use super::wait::Granted;
use crate::queue::Line;
use crate::store::{Answer, Mode, Passed, Released, Store, StoreError};
use crate::sync::lock;

/// A new contender takes the place of the holder: it has the lock, or the last place of the server's queue. `None` where
/// nobody waits here, or the holder can not be replaced.
pub(super) async fn replace(
    shared: &Arc<Shared>,
    line: &Arc<Line>,
    holder: &Arc<Contender>,
) -> Option<Result<Released, StoreError>> {
    let next = line.next_after(holder)?;
    let contender = shared.contender(&next.request, Some(line)).ok()?;
    let limits = shared.limits(line);
    let sent_at = shared.now();
    let Some(spare) = line.replace(holder, &contender, &next, sent_at, limits) else {
        shared.forget(&contender);
        return None;
    };
    let asking = Asking {
        shared,
        line,
        contender: &contender,
    };
    let terms = next.request.terms;
    let (token, from) = (shared.token(&contender), shared.token(holder));
    let attempt = contender.attempt(&token, Mode::Wait, spare);
    let answer = shared.store.pass(attempt, &from).await;
    // Where the caller did not run for too long, the first in line asks by now: what was answered is of the past.
    let awaited = line.waits_for_release(&contender);
    let released = match answer {
        Ok(Passed::Lost) => Ok(Released::NotHeld),
        Ok(Passed::On(Answer::Granted { fence, .. })) => {
            let granted = Granted::by_answer(fence, spare, sent_at, terms);
            if awaited {
                lock(&contender.wait).answered(granted);
            }
            Ok(Released::HandedOver)
        }
        Ok(Passed::On(Answer::Queued(place))) if awaited => {
            lock(&contender.wait).queued(sent_at, terms, place.last_fence);
            // Before the check is set: one that falls due while somebody asks is dropped.
            line.release_answered(&contender);
            shared.check_line(line, terms, place.remaining);
            Ok(Released::HandedOver)
        }
        Ok(Passed::On(Answer::Queued(_))) => Ok(Released::HandedOver),
        // Something else has taken the name in between; the one that waits finds out by asking.
        Ok(Passed::On(Answer::Busy { .. } | Answer::Foreign { .. })) => Ok(Released::Free),
        Err(error) => {
            if let StoreError::Ambiguous(_) = error {
                contender.request_unanswered();
            }
            lock(&contender.wait).failed(shared.now(), error.clone());
            Err(error)
        }
    };
    let unanswered = matches!(released, Err(_) | Ok(Released::NotHeld | Released::Free));
    asking.over(unanswered);
    line.heard(released.is_ok());
    Some(released)
}

/// The first in line waits for our answer: it must hear of it whatever happens.
struct Asking<'a> {
    shared: &'a Shared,
    line: &'a Arc<Line>,
    contender: &'a Arc<Contender>,
}

impl Asking<'_> {
    fn over(self, unanswered: bool) {
        if unanswered {
            lock(&self.contender.wait).interrupted();
        }
        self.tell();
        std::mem::forget(self);
    }

    fn tell(&self) {
        self.line.release_answered(self.contender);
        self.line.wake_first();
        // The waiter has left while the request was on its way, or was repeated: its clean-up may have come first.
        if self.contender.is_over() {
            self.shared.undo_again(self.contender);
        }
    }
}

impl Drop for Asking<'_> {
    /// The release was dropped on its way: it may be carried out all the same.
    fn drop(&mut self) {
        self.contender.request_unanswered();
        lock(&self.contender.wait).interrupted();
        self.tell();
    }
}
