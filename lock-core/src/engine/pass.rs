//! Releases a lock and asks for it again in one command, for the waiters of this process.

use std::sync::Arc;

use super::acquisition::Acquisition;
use super::line::Line;
use super::outstanding::Outstanding;
use super::shared::Shared;
use super::state::Asker;
use crate::base::sync::lock;
use crate::store::{Answer, Mode, Passed, Released, StoreError};

/// Replaces the holder by a new acquisition, which gets the lock, or the last place in the server's queue. Returns `None` if this
/// process has no waiter, or if the holder cannot be replaced.
pub(super) async fn replace(
    shared: &Arc<Shared>,
    line: &Arc<Line>,
    holder: &Arc<Acquisition>,
) -> Option<Result<Released, StoreError>> {
    let next = line.next_after(holder)?;
    let acquisition = shared.acquisition(&next.request).ok()?;
    let limits = shared.limits(line);
    let Some(reserve) = line.replace(holder, &acquisition, &next, shared.clock.now(), limits)
    else {
        shared.forget(&acquisition);
        return None;
    };
    let terms = next.request.terms;
    let mut passing = Passing {
        acquisition: &acquisition,
        ask_again: true,
    };
    shared.watch_waiter(lock(&shared.registry), &acquisition);
    let request = Outstanding::begin(shared, &acquisition, Asker::Release, terms, reserve);
    let (token, from) = (shared.token(&acquisition), shared.token(holder));
    let attempt = request.attempt(&token, Mode::Wait);
    let answer = shared.store.pass(attempt, &from).await;
    // If the client did not run for too long, the first waiter may be asking by now: the answer is outdated.
    let awaited = lock(&acquisition.life).state.is_asked_by(Asker::Release);
    let answer = match answer {
        Ok(Passed::Lost) => {
            request.settle(&answer);
            drop(passing);
            line.set_answered(true);
            return Some(Ok(Released::NotHeld));
        }
        Ok(Passed::On(answer)) => Ok(answer),
        Err(error) => Err(error),
    };
    if awaited || answer.is_err() {
        request.read(&answer);
    } else {
        request.settle(&answer);
    }
    if let Ok(Answer::Queued(place)) = &answer
        && awaited
    {
        // Mark the answer before the check is set: a check that falls due during a request is put off.
        lock(&acquisition.life).state.asked(Asker::Release);
        shared.check(&acquisition, Some(line), place.remaining);
    }
    let released = match answer {
        Ok(Answer::Granted { .. } | Answer::Queued(_)) => Ok(Released::HandedOver),
        // Another client took the key in between. The waiter's own request reports it.
        Ok(_) => Ok(Released::Free),
        Err(error) => Err(error),
    };
    passing.ask_again = matches!(released, Err(_) | Ok(Released::Free));
    drop(passing);
    line.set_answered(released.is_ok());
    Some(released)
}

/// Tells the first waiter, which waits for the answer, in every case, also if the release is dropped while it is under way.
struct Passing<'a> {
    acquisition: &'a Acquisition,
    /// Whether no answer has brought the lock or a place in the queue.
    ask_again: bool,
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        let mut life = lock(&self.acquisition.life);
        if self.ask_again {
            life.state.interrupted();
        }
        life.state.asked(Asker::Release);
        drop(life);
        self.acquisition.wake();
    }
}
