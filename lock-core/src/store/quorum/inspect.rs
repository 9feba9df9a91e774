//! The visible state of a lock, on each node and on all together.

use std::time::Duration;

use super::QuorumStore;
use super::ballot::Ballot;
use super::causes::{Failure, combined};
use super::nodes::{Nodes, majority};
use super::round::{How, ask};
use crate::base::error::Cause;
use crate::base::key::{LockKey, Prefix};
use crate::base::kind::Kind;
use crate::base::rt::HashMap;
use crate::base::snapshot::NodeSnapshot;
use crate::base::token::Bearer;
use crate::store::redis::inspected;
use crate::store::redis::kinds::exclusive;
use crate::store::{Cursor, Scanned, Snapshot, SnapshotState, StoreError};

impl QuorumStore {
    pub(in crate::store) async fn inspect(&self, key: &LockKey) -> Result<Snapshot, StoreError> {
        let members = &self.members;
        let nodes = members.all.len();
        let ballot = Ballot::inspect(key);
        let mut round = ask(
            members,
            ballot,
            How::Tell,
            Nodes::default(),
            self.patience(),
        );
        let mut answers: Vec<Option<Result<Snapshot, Failure>>> = vec![None; nodes];
        let mut answered = 0;
        while let Some((node, answer)) = round.next_or_late(answered >= members.majority).await {
            let answer = answer.and_then(inspected);
            answered += usize::from(answer.is_ok());
            answers[node] = Some(answer.map_err(|error| members.all[node].failed(error)));
        }
        round.finish(|_| ());
        let mut answers: Vec<_> = answers.into_iter().flatten().collect();
        if answered < members.majority {
            let failures = answers.into_iter().filter_map(Result::err).collect();
            return Err(combined(nodes, failures));
        }
        // A few nodes may lag behind: this number of waiters is queued on a majority.
        let fence = answers.iter().flatten().map(|answer| answer.fence).max();
        let queues = answers.iter_mut().flatten();
        let queues = queues.map(|answer| std::mem::take(&mut answer.queue));
        let queue = queues.max_by_key(Vec::len);
        let mut waiting: Vec<u64> = answers.iter().flatten().map(|a| a.waiting).collect();
        waiting.sort_unstable_by(|a, b| b.cmp(a));
        let waiting = waiting.get(members.majority - 1).copied();
        let views: Vec<_> = answers
            .into_iter()
            .zip(&members.all)
            .map(|(answer, node)| NodeSnapshot {
                address: node.address.to_string(),
                state: answer.map(|snapshot| snapshot.state).map_err(cause),
            })
            .collect();
        Ok(Snapshot {
            state: state(&views),
            waiting: waiting.unwrap_or(0),
            queue: queue.unwrap_or_default(),
            fence: fence.unwrap_or(0),
            nodes: views,
        })
    }
}

impl QuorumStore {
    /// The nodes one after the other. A node without an answer is left out: a lock is on a majority of them, which must answer.
    pub(in crate::store) async fn scan(
        &self,
        prefix: Prefix<'_>,
        cursor: Cursor,
    ) -> Result<Scanned, StoreError> {
        let nodes = &self.members.all;
        let (node, on_node, mut missed) = (cursor.node, cursor.on_node, cursor.missed);
        let page = exclusive::page(prefix, on_node);
        let (names, on_node) = match nodes[node].scan(page).await {
            Ok(page) => page,
            Err(error @ StoreError::Misconfigured(_)) => return Err(error),
            Err(error) => {
                missed += 1;
                if missed > nodes.len() - self.members.majority {
                    return Err(error);
                }
                (Vec::new(), 0)
            }
        };
        let keys = names
            .iter()
            .filter_map(|name| exclusive::listed(Kind::Exclusive, prefix, name));
        let here = (on_node != 0).then_some(Cursor { on_node, ..cursor });
        let there = (node + 1 < nodes.len()).then_some(Cursor {
            node: node + 1,
            missed,
            ..Cursor::default()
        });
        Ok(Scanned {
            keys: keys.collect(),
            next: here.or(there),
        })
    }
}

fn cause(failure: Failure) -> Cause {
    match failure.error {
        StoreError::Ambiguous(cause) | StoreError::NotNow(cause) | StoreError::NotYet(cause) => {
            cause
        }
        StoreError::Misconfigured(wrong) => Cause::text(wrong.to_string()),
    }
}

/// The holder is the client that a majority names, as long as a majority keeps its votes. A node without an answer may have voted
/// for it.
fn state(nodes: &[NodeSnapshot]) -> SnapshotState {
    let majority = majority(nodes.len());
    let unknown = nodes.iter().filter(|node| node.state.is_err()).count();
    let mut clients: HashMap<&str, (Vec<Duration>, &Bearer)> = HashMap::default();
    let mut kinds = Vec::new();
    for node in nodes {
        match &node.state {
            Ok(SnapshotState::Held {
                remaining,
                client,
                holder,
                ..
            }) => {
                let votes = clients.entry(client);
                votes.or_insert((Vec::new(), holder)).0.push(*remaining);
            }
            Ok(SnapshotState::Foreign { kind }) => kinds.push(kind),
            // A majority does not count permits.
            Ok(SnapshotState::Free | SnapshotState::Shared { .. }) | Err(_) => {}
        }
    }
    if kinds.len() + unknown >= majority
        && let Some(kind) = kinds.first()
    {
        return SnapshotState::Foreign {
            kind: (*kind).clone(),
        };
    }
    let most = clients.into_iter().max_by_key(|(_, (left, _))| left.len());
    let Some((client, (mut left, holder))) = most else {
        return SnapshotState::Free;
    };
    if left.len() + unknown < majority {
        return SnapshotState::Free;
    }
    left.sort_unstable_by(|a, b| b.cmp(a));
    let remaining = left.get(majority - 1).or(left.last()).copied();
    SnapshotState::Held {
        remaining: remaining.unwrap_or_default(),
        client: client.to_owned(),
        holder: holder.clone(),
        holds: 1,
        owner: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(client: &str, seconds: u64) -> NodeSnapshot {
        NodeSnapshot {
            address: String::new(),
            state: Ok(SnapshotState::Held {
                remaining: Duration::from_secs(seconds),
                client: client.to_owned(),
                holder: Bearer::default(),
                holds: 1,
                owner: None,
            }),
        }
    }

    fn free() -> NodeSnapshot {
        NodeSnapshot {
            address: String::new(),
            state: Ok(SnapshotState::Free),
        }
    }

    fn silent() -> NodeSnapshot {
        NodeSnapshot {
            address: String::new(),
            state: Err(Cause::text("silent".to_owned())),
        }
    }

    fn remaining(nodes: &[NodeSnapshot]) -> Option<u64> {
        match state(nodes) {
            SnapshotState::Held { remaining, .. } => Some(remaining.as_secs()),
            _ => None,
        }
    }

    #[test]
    fn a_lock_is_held_for_as_long_as_a_majority_keeps_it() {
        let nodes = [
            held("a", 9),
            held("a", 2),
            held("a", 7),
            free(),
            held("b", 60),
        ];
        assert_eq!(remaining(&nodes), Some(2));
        assert_eq!(
            remaining(&[held("a", 1), held("b", 2), held("a", 3), free(), free()]),
            None
        );
    }

    #[test]
    fn a_node_without_an_answer_may_have_voted_for_the_holder() {
        let nodes = [held("a", 9), held("a", 2), silent(), free(), free()];
        assert_eq!(remaining(&nodes), Some(2));
        assert_eq!(
            remaining(&[held("a", 9), silent(), free(), free(), free()]),
            None
        );
    }
}
