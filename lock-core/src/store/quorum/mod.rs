//! Locks over a quorum of independent masters: Redlock, with fencing tokens.
//!
//! The holder has the votes of a majority: the same key with the same token, for the same ttl. All nodes are asked at once. The
//! outcome is known as soon as a majority has decided, and the remaining requests end in the background. What a failed attempt
//! may have left on a node is taken back: each vote has an edition, so that removes no vote of a later attempt.

mod acquire;
mod ballot;
mod causes;
mod clean_up;
mod extend;
mod hints;
mod inspect;
mod leader;
mod leftovers;
mod members;
mod node;
mod nodes;
mod note;
mod operator;
mod release;
mod round;
mod rtt;
mod session;
mod tally;
mod tokens;
mod vetting;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use self::causes::Failure;
use self::hints::Hints;
use self::members::Members;
use self::nodes::Nodes;
use super::redis::{RedisConfig, Server, Url};
use super::{Answer, Attached, Attempt, Passed, Released, StoreError};
use crate::base::error::LockError;
use crate::base::quorum_config::QuorumConfig;
use crate::base::time::{Clock, SystemClock};
use crate::base::token::Token;

/// A lock store over several masters.
pub(crate) struct QuorumStore {
    members: Arc<Members>,
    /// Gets the messages of the nodes. Kept here because the nodes hold it weakly.
    hints: Arc<Hints>,
}

impl fmt::Debug for QuorumStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumStore").finish_non_exhaustive()
    }
}

impl QuorumStore {
    /// Opens a store over the nodes behind these URLs. Sends nothing before [`ready`](Self::ready).
    pub(crate) fn open(
        urls: &[String],
        config: &QuorumConfig,
        servers: &RedisConfig,
        limit: Duration,
    ) -> Result<Self, LockError> {
        let nodes = urls.iter().map(|url| {
            let mut url = Url::read(url)?;
            let label = nodes::label_in(&mut url)?;
            let server = Server::at(&url, servers, limit)?;
            let label = label.map_or_else(|| server.address().to_string(), str::to_owned);
            Ok((label, server))
        });
        let nodes: Vec<(String, Arc<Server>)> = nodes.collect::<Result<_, LockError>>()?;
        let labels: Vec<_> = nodes.iter().map(|(label, _)| label).collect();
        nodes::check(&labels)?;
        let members = Arc::new(Members::new(nodes, config, &servers.namespace, limit));
        let hints = Hints::new(Arc::clone(&members));
        Ok(Self { members, hints })
    }

    pub(crate) fn attach(&self, engine: &Attached) {
        let hints: Weak<Hints> = Arc::downgrade(&self.hints);
        let to_hints = Attached::new(&engine.client, hints, engine.home.clone());
        for node in &self.members.all {
            node.server.attach(&to_hints);
        }
        self.members.engine.attach(engine.clone());
    }

    /// Whether a majority pushes its messages.
    pub(super) fn is_pushed_to(&self) -> bool {
        let pushing = self.members.all.iter().filter(|node| node.server.pushes());
        pushing.count() >= self.members.majority
    }

    /// Waits until no token that was given up has anything left on a node.
    pub(crate) async fn cleaned_up(&self) {
        self.members.under_way.until_over().await;
    }

    /// Connects to every node that answers, so that a wrong address or password shows at start-up. A majority is enough.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        let (members, failures) = (&self.members, self.failures().await?);
        let now = SystemClock.now();
        let left = members.in_a_majority(|node| node.sessions.wait_left(now));
        if !left.is_zero() {
            tracing::warn!(
                ?left,
                "no lock is granted before that: a majority of the nodes is new or has lost its data; to begin a new quorum without \
                 a wait, call `begin_quorum` once"
            );
        }
        for failure in &failures {
            tracing::warn!(
                node = failure.node,
                address = &*failure.address,
                why = failure.why(),
                "a node of the quorum does not vote yet"
            );
        }
        if failures.len() > members.all.len() - members.majority {
            return Err(causes::combined(members.all.len(), failures));
        }
        Ok(())
    }

    /// Waits for the vettings of all nodes, but not much longer than for a majority. Returns why the others do not vote.
    async fn failures(&self) -> Result<Vec<Failure>, StoreError> {
        let members = &self.members;
        let began = members.timers().now();
        let mut admissions: FuturesUnordered<_> = members
            .all
            .iter()
            .map(async |node| (node, Members::vetted(members, node).await))
            .collect();
        let limit = members.vetting_limit();
        let (mut end, mut admitted) = (began + limit, Nodes::default());
        let mut failures = Vec::new();
        let timers = members.timers();
        while let Ok(Some((node, outcome))) = timers.timeout_at(end, admissions.next()).await {
            match outcome {
                Ok(()) => {
                    node.rtt.answered(timers.elapsed(began));
                    admitted = admitted.with(node.index);
                }
                // Two addresses of one server would fail together: an error, even with a majority.
                Err(error) if causes::is_twice(&error) => return Err(error),
                Err(error) => failures.push(node.failed(error)),
            }
            if admitted.len() == members.majority {
                // The other nodes get the same time again. Later ones join while the store is in use.
                let again = timers.elapsed(began).max(Duration::from_millis(50));
                end = end.min(timers.now() + again);
            }
        }
        let heard_of = |node| failures.iter().any(|failure| failure.node == node);
        let late: Vec<_> = members
            .all
            .iter()
            .filter(|node| !admitted.has(node.index) && !heard_of(node.index))
            .map(|node| {
                node.rtt.is_late();
                node.failed(causes::late(limit))
            })
            .collect();
        failures.extend(late);
        Ok(failures)
    }
}

impl QuorumStore {
    /// Two steps: another client can take a free lock in between. For a waiter, each node keeps its vote after the release.
    pub(super) async fn pass(
        &self,
        attempt: Attempt<'_>,
        from: &Token,
    ) -> Result<Passed, StoreError> {
        match Box::pin(self.release(attempt.key, from)).await? {
            Released::NotHeld => Ok(Passed::Lost),
            // The lock is released, whatever follows: an error here would count as an error of the release.
            _ => match Box::pin(self.acquire(attempt)).await {
                Ok(answer) => Ok(Passed::On(answer)),
                Err(_) => Ok(Passed::On(Answer::Busy {
                    remaining: Duration::ZERO,
                    holder: None,
                })),
            },
        }
    }
}
