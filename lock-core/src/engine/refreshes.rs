//! Requests that repeat the one of a waiting acquisition: after the refresh interval, or after messages may have been missed.
//!
//! After a lost connection all of them are due at once, so the number of requests under way to each server is limited: otherwise they
//! would delay each other. A server that hangs does not delay the requests to other servers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::acquisition::Acquisition;
use super::outstanding::Outstanding;
use super::shared::Shared;
use super::state::Asker;
use crate::store::{Answer, Mode, Store};

/// Maximum number of refreshes under way at one server.
const MAXIMUM: usize = 1000;

/// The refreshes under way, and those that wait for a place.
#[derive(Default)]
pub(super) struct Refreshes {
    /// Each with the number of its server.
    under_way: FuturesUnordered<BoxFuture<'static, usize>>,
    servers: HashMap<usize, OfServer>,
}

#[derive(Default)]
struct OfServer {
    under_way: usize,
    waiting: VecDeque<Arc<Acquisition>>,
}

impl Refreshes {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn add(&mut self, shared: &Arc<Shared>, acquisition: Arc<Acquisition>) {
        let server = shared.store.part_of(&acquisition.key);
        let of_server = self.servers.entry(server).or_default();
        of_server.waiting.push_back(acquisition);
        self.start(shared, server);
    }

    fn start(&mut self, shared: &Arc<Shared>, server: usize) {
        let Some(of_server) = self.servers.get_mut(&server) else {
            return;
        };
        if of_server.under_way < MAXIMUM
            && let Some(acquisition) = of_server.waiting.pop_front()
        {
            of_server.under_way += 1;
            let refresh = refresh(Arc::clone(shared), acquisition);
            self.under_way.push(Box::pin(async move {
                refresh.await;
                server
            }));
        } else if of_server.under_way == 0 {
            self.servers.remove(&server);
        }
    }

    /// Waits until a refresh has ended, and starts the next one. Without the budget of tokio, as the other jobs of the task.
    pub(super) async fn ended(&mut self, shared: &Arc<Shared>) {
        let Some(server) = tokio::task::unconstrained(self.under_way.next()).await else {
            return;
        };
        if let Some(of_server) = self.servers.get_mut(&server) {
            of_server.under_way -= 1;
        }
        self.start(shared, server);
    }
}

/// Asks on behalf of the waiter.
pub(super) async fn refresh(shared: Arc<Shared>, acquisition: Arc<Acquisition>) {
    if acquisition.life().state.is_waiting() {
        ask_for(&shared, &acquisition).await;
    }
    acquisition.life().state.refreshed();
}

async fn ask_for(shared: &Arc<Shared>, acquisition: &Arc<Acquisition>) {
    let line = shared.line_of(acquisition);
    if let Some(line) = &line
        && line.needs_subscription(shared.now())
        && shared.store.pushes(&line.key)
    {
        // The first waiter asks and subscribes itself.
        acquisition.life().state.interrupted();
        return acquisition.wake();
    }
    let reserve = line
        .as_ref()
        .map_or(0, |line| line.reserve(acquisition, shared.limits(line)));
    let terms = acquisition.terms();
    let request = Outstanding::begin(shared, acquisition, Asker::Refresh, terms, reserve);
    let token = shared.token(acquisition);
    let attempt = request.attempt(&token, Mode::Wait);
    let answer = shared.store.acquire(attempt).await;
    if let Some(line) = &line {
        line.heard(answer.is_ok());
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
        Ok(Answer::Granted { .. } | Answer::Foreign { .. }) | Err(_) => acquisition.wake(),
    }
    shared.check(acquisition, line.as_deref(), remaining.min(terms.ttl()));
}
