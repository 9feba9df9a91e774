//! Asks the nodes for the slots, and decides which answer counts.
//!
//! A node of the URL may have been given to another cluster. So an answer counts only if it names nodes that are known. While no node
//! is known, all nodes of the URL are asked, and they must belong to one cluster.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::ConnectionAddr;
use tokio::time::{Instant, timeout, timeout_at};

use super::masters::{Cluster, no_slots};
use super::slots::{Range, ask_for_slots, read_slots};
use super::table::ids_of;
use crate::base::error::Cause;
use crate::base::sync::lock;
use crate::store::StoreError;
use crate::store::redis::connection::target::Target;
use crate::store::redis::error::{classify, no_reply};
use crate::store::redis::server::Server;
use crate::store::redis::server::ask_once::ask_once;
use crate::store::redis::server::look::{is_no_right, lacks};

/// Maximum wait for the nodes with a connection before others are asked, and for the others of the URL after the first answer.
const OTHERS_WAIT: Duration = Duration::from_millis(250);

/// Number of nodes with a connection that are asked at once while a master is in doubt.
const IN_DOUBT: usize = 2;

#[derive(Debug, thiserror::Error)]
#[error("the nodes that answer are of another cluster")]
struct Foreign;

impl Target {
    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) => host,
            _ => "",
        }
    }
}

impl Cluster {
    /// The slots, from the first node of this cluster that answers. `doubted` nodes are asked only if there are no others.
    pub(super) async fn slots(
        &self,
        doubted: &[Arc<Server>],
        is_routine: bool,
    ) -> Result<Vec<Range>, StoreError> {
        let (mut nodes, is_first) = {
            let table = lock(&self.table);
            (table.masters().to_vec(), !table.knows_ids())
        };
        let in_doubt = |node: &Arc<Server>| doubted.iter().any(|one| Arc::ptr_eq(one, node));
        if !nodes.iter().all(in_doubt) {
            nodes.retain(|node| !in_doubt(node));
        }
        let mut connected: Vec<_> = nodes
            .iter()
            .filter(|node| node.generation().is_some())
            .collect();
        fastrand::shuffle(&mut connected);
        connected.truncate(if is_routine { 1 } else { IN_DOUBT });
        let mut first = pin!(first_of(connected.iter().map(|node| self.ask_node(node))));
        let in_time = timeout(OTHERS_WAIT, &mut first).await;
        if let Ok(Some(ranges)) = in_time {
            return Ok(ranges);
        }
        let known = nodes
            .iter()
            .filter_map(|node| self.target(node.named()?).ok());
        let known: Vec<_> = known.collect();
        let seeds = self.seeds.iter().filter(|seed| {
            let is_at = |node: &Arc<Server>| node.address() == seed.address;
            !doubted.iter().any(is_at)
        });
        let others = self.ask_at_all(seeds.chain(&known), is_first);
        if in_time.is_ok() {
            return others.await;
        }
        // The nodes that were asked first may only be far away.
        match select(first, pin!(others)).await {
            Either::Left((Some(ranges), _)) | Either::Right((Ok(ranges), _)) => Ok(ranges),
            Either::Left((None, others)) => others.await,
            Either::Right((Err(error), first)) => first.await.ok_or(error),
        }
    }

    /// The answer of a node with a connection, if it belongs to this cluster.
    async fn ask_node(&self, node: &Arc<Server>) -> Option<Vec<Range>> {
        let answer = node.ask(ask_for_slots()).await.ok()?;
        let ranges = read_slots(&answer, &node.named()?.0).ok()?;
        let is_ours = !ranges.is_empty() && lock(&self.table).is_ours(&ranges);
        is_ours.then_some(ranges)
    }

    async fn ask_at_all<'a>(
        &self,
        targets: impl Iterator<Item = &'a Target>,
        is_first: bool,
    ) -> Result<Vec<Range>, StoreError> {
        let asked = targets.map(async |target| (target, self.ask_at(target).await));
        let mut asked: FuturesUnordered<_> = asked.collect();
        let (mut answers, mut failure, mut end) = (Vec::new(), None, None);
        loop {
            let next = match end {
                Some(end) => timeout_at(end, asked.next()).await.unwrap_or(None),
                None => asked.next().await,
            };
            match next {
                None => break,
                // A node that serves nothing and knows of no other node.
                Some((_, Ok(ranges))) if ranges.is_empty() => {}
                Some((_, Ok(ranges))) if !is_first && lock(&self.table).is_ours(&ranges) => {
                    return Ok(ranges);
                }
                Some((target, Ok(ranges))) => {
                    answers.push((target, ranges));
                    if is_first {
                        end.get_or_insert_with(|| Instant::now() + OTHERS_WAIT);
                    }
                }
                // Prefer an error that says what is wrong.
                Some((_, Err(_))) if matches!(failure, Some(StoreError::Misconfigured(_))) => {}
                Some((_, Err(error))) => failure = Some(error),
            }
        }
        if !is_first && !answers.is_empty() {
            return Err(StoreError::NotNow(Cause::of(Arc::new(Foreign))));
        }
        one_cluster(answers)?.ok_or_else(|| failure.unwrap_or_else(no_slots))
    }

    async fn ask_at(&self, target: &Target) -> Result<Vec<Range>, StoreError> {
        let at = &target.address;
        let asked = timeout(self.limit, ask_once(target, &ask_for_slots(), self.limit)).await;
        let Ok(answer) = asked else {
            return Err(StoreError::NotNow(no_reply(self.limit)).at(at));
        };
        let answer = answer.map_err(|error| {
            if is_no_right(&error) {
                return classify(lacks(target, &["cluster|slots"]));
            }
            let detail = error.detail().unwrap_or_default();
            if detail.contains("cluster support disabled") {
                return StoreError::Misconfigured(
                    format!("the server at {at} is no node of a cluster: write `redis://{at}`")
                        .into(),
                );
            }
            classify(error).at(at)
        })?;
        read_slots(&answer, target.host())
    }
}

/// The first answer, if there is one.
async fn first_of<F>(asked: impl Iterator<Item = F>) -> Option<Vec<Range>>
where
    F: Future<Output = Option<Vec<Range>>>,
{
    let mut asked: FuturesUnordered<_> = asked.collect();
    while let Some(answer) = asked.next().await {
        if answer.is_some() {
            return answer;
        }
    }
    None
}

/// The first of these answers, which must come from one cluster.
fn one_cluster(mut answers: Vec<(&Target, Vec<Range>)>) -> Result<Option<Vec<Range>>, StoreError> {
    if answers.is_empty() {
        return Ok(None);
    }
    let (first, ranges) = answers.swap_remove(0);
    let ids = ids_of(&ranges);
    for (other, others) in &answers {
        let others = ids_of(others);
        if ids.intersection(&others).count() < 2.min(ids.len()).min(others.len()) {
            return Err(StoreError::Misconfigured(
                format!(
                    "the nodes {} and {} are of different clusters: name the nodes of one cluster",
                    first.address, other.address
                )
                .into(),
            ));
        }
    }
    Ok(Some(ranges))
}
