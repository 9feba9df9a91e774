//! Repeats the request of a waiting acquisition: after the refresh interval, or after messages may have been missed.

use std::sync::Arc;
use std::time::Duration;

use super::acquisition::Acquisition;
use super::outstanding::Outstanding;
use super::shared::Shared;
use super::state::Asker;
use crate::base::sync::lock;
use crate::base::terms::Terms;
use crate::store::{Answer, Mode};

/// Asks on behalf of the waiter.
pub(super) async fn refresh(shared: Arc<Shared>, acquisition: Arc<Acquisition>) {
    let terms = lock(&acquisition.life).state.terms();
    if let Some(terms) = terms {
        ask_for(&shared, &acquisition, terms).await;
    }
    lock(&acquisition.life).state.refreshed();
}

async fn ask_for(shared: &Arc<Shared>, acquisition: &Arc<Acquisition>, terms: Terms) {
    let line = shared.line_of(acquisition);
    if let Some(line) = &line
        && line.needs_subscription(shared.clock.now())
        && shared.store.pushes(&line.key)
    {
        // The first waiter sends its own request, and subscribes.
        lock(&acquisition.life).state.interrupted();
        return acquisition.wake();
    }
    let reserve = line
        .as_ref()
        .map_or(0, |line| line.reserve(shared.limits(line)));
    let request = Outstanding::begin(shared, acquisition, Asker::Refresh, terms, reserve);
    let token = shared.token(acquisition);
    let attempt = request.attempt(&token, Mode::Wait);
    let answer = shared.store.acquire(attempt).await;
    if let Some(line) = &line {
        line.set_answered(answer.is_ok());
    }
    request.read(&answer);
    let mut remaining = Duration::MAX;
    match answer {
        Ok(Answer::Queued(place)) => {
            if let Some(own) = place.own_holder {
                shared.check_own_holder(own, &acquisition.key, place.remaining);
            }
            remaining = place.remaining;
        }
        Ok(Answer::Busy {
            remaining: left, ..
        }) => remaining = left,
        Ok(Answer::Granted { .. } | Answer::Refused(_)) | Err(_) => acquisition.wake(),
    }
    shared.check(acquisition, line.as_deref(), remaining.min(terms.ttl()));
}
