//! The work of the task that is under way.
//!
//! After a lost connection all refreshes are due at once, so the number of them under way to each server is limited: otherwise they
//! would delay each other. A server that hangs does not delay the requests to other servers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;

use super::acquisition::Acquisition;
use super::refreshes::refresh;
use super::release::until_confirmed;
use super::shared::Shared;
use super::state::Action;
use crate::base::sync::lock;

/// Maximum number of refreshes under way at one server.
const MAXIMUM: usize = 1000;

pub(super) struct Jobs {
    shared: Arc<Shared>,
    /// A refresh has the number of its server as output.
    under_way: FuturesUnordered<BoxFuture<'static, Option<usize>>>,
    refreshes: HashMap<usize, Refreshes>,
}

/// The refreshes at one server.
#[derive(Default)]
struct Refreshes {
    under_way: usize,
    waiting: VecDeque<Arc<Acquisition>>,
}

impl Jobs {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            under_way: FuturesUnordered::new(),
            refreshes: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    pub(super) fn push(&mut self, job: impl Future<Output = ()> + Send + 'static) {
        self.under_way.push(Box::pin(async {
            job.await;
            None
        }));
    }

    /// Releases what an acquisition has on the server, unless that has begun.
    pub(super) fn release(&mut self, acquisition: Arc<Acquisition>) {
        let action = lock(&acquisition.life).state.begin_clean_up();
        if action == Action::CleanUp {
            self.push(until_confirmed(Arc::clone(&self.shared), acquisition));
        } else {
            self.shared.release_tried(&acquisition);
            self.shared.act(&acquisition, action);
        }
    }

    /// Asks on behalf of a waiter, as soon as there is a place.
    pub(super) fn refresh(&mut self, acquisition: Arc<Acquisition>) {
        let server = self.shared.store.part_of(&acquisition.key);
        let refreshes = self.refreshes.entry(server).or_default();
        refreshes.waiting.push_back(acquisition);
        self.refresh_next(server);
    }

    fn refresh_next(&mut self, server: usize) {
        let Some(refreshes) = self.refreshes.get_mut(&server) else {
            return;
        };
        if refreshes.under_way < MAXIMUM
            && let Some(acquisition) = refreshes.waiting.pop_front()
        {
            refreshes.under_way += 1;
            let refresh = refresh(Arc::clone(&self.shared), acquisition);
            self.under_way.push(Box::pin(async move {
                refresh.await;
                Some(server)
            }));
        } else if refreshes.under_way == 0 {
            self.refreshes.remove(&server);
        }
    }

    /// Waits until a job has ended. Without the budget of tokio: where many jobs are ready, each poll would use it up on the first
    /// ones, and wake all others in vain.
    pub(super) async fn ended(&mut self) {
        let ended = tokio::task::unconstrained(self.under_way.next()).await;
        if let Some(Some(server)) = ended {
            if let Some(refreshes) = self.refreshes.get_mut(&server) {
                refreshes.under_way -= 1;
            }
            self.refresh_next(server);
        }
    }
}
