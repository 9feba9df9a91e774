//! Requests that repeat the one of a waiting line: after the refresh interval, or after messages may have been missed.
//!
//! After a lost connection all lines are due at once, so the number of requests under way to each server is limited: otherwise they
//! would delay each other. A server that hangs does not delay the requests to other servers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::acquisition::Acquisition;
use super::line::Line;
use super::outstanding::{Asker, Outstanding};
use super::phase::Status;
use super::shared::Shared;
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
    /// Lines, each with the acquisition that asks for it.
    waiting: VecDeque<(Arc<Line>, Arc<Acquisition>)>,
}

impl Refreshes {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn add(&mut self, shared: &Arc<Shared>, line: Arc<Line>, asks: Arc<Acquisition>) {
        let server = shared.store.part_of(&line.key);
        let of_server = self.servers.entry(server).or_default();
        of_server.waiting.push_back((line, asks));
        self.start(shared, server);
    }

    fn start(&mut self, shared: &Arc<Shared>, server: usize) {
        let Some(of_server) = self.servers.get_mut(&server) else {
            return;
        };
        if of_server.under_way < MAXIMUM
            && let Some((line, asks)) = of_server.waiting.pop_front()
        {
            of_server.under_way += 1;
            let refresh = refresh(Arc::clone(shared), line, asks);
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

/// Asks on behalf of all waiters of the line.
pub(super) async fn refresh(shared: Arc<Shared>, line: Arc<Line>, acquisition: Arc<Acquisition>) {
    if acquisition.status(shared.now()) == Status::Pending {
        ask_for(&shared, &line, &acquisition).await;
    }
    line.refreshed(&acquisition);
}

async fn ask_for(shared: &Arc<Shared>, line: &Arc<Line>, acquisition: &Arc<Acquisition>) {
    if shared.store.pushes(&line.key) && line.needs_subscription(shared.now()) {
        // The first waiter asks and subscribes itself.
        acquisition.life().state.interrupted();
        return line.wake_first();
    }
    let reserve = line.reserve(acquisition, shared.limits(line));
    let terms = acquisition.terms();
    let request = Outstanding::begin(shared, acquisition, terms, reserve);
    let token = shared.token(acquisition);
    let attempt = request.attempt(&token, Mode::Wait);
    let answer = shared.store.acquire(attempt).await;
    line.heard(answer.is_ok());
    request.read(&answer, Asker::Refresh);
    let mut remaining = Duration::MAX;
    match answer {
        Ok(Answer::Queued(place)) => {
            if let Some(own) = place.own_holder {
                shared.check_own_holder(own, &acquisition.key, place.remaining);
            }
            remaining = place.remaining;
            line.held_by(place.holder, place.is_foreign);
        }
        Ok(Answer::Busy {
            remaining: left,
            holder,
        }) => {
            remaining = left;
            line.held_by(holder, false);
        }
        Ok(Answer::Granted { .. } | Answer::Foreign { .. }) | Err(_) => line.wake_first(),
    }
    shared.check_line(line, terms, remaining.min(terms.ttl()));
}
