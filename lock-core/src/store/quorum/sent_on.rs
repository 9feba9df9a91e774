//! The connections on which votes of a token were requested, and the undos that may still arrive. No I/O.
//!
//! On one connection, an undo arrives after the vote that it removes, and before a later vote. If the connection is replaced before
//! the undo is answered, the undo may arrive later: after a vote on the new connection, which it would remove although a lock was
//! granted with it. So such a vote does not count.

use super::nodes::{MAXIMUM_NODES, Nodes};

/// A generation that no connection has.
pub(super) const NONE: u64 = u64::MAX;

/// For each node, the generation of the connection of the last request for a vote of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SentOn {
    nodes: Nodes,
    connections: [u64; MAXIMUM_NODES],
}

impl Default for SentOn {
    fn default() -> Self {
        Self {
            nodes: Nodes::default(),
            connections: [NONE; MAXIMUM_NODES],
        }
    }
}

impl SentOn {
    /// Any node may have been asked.
    pub(super) fn unknown(nodes: usize) -> Self {
        Self {
            nodes: Nodes::all(nodes),
            ..Self::default()
        }
    }

    pub(super) fn sent(&mut self, node: usize, connection: u64) {
        self.nodes = self.nodes.with(node);
        self.connections[node] = connection;
    }

    /// These nodes of `other` were asked, too.
    pub(super) fn add(&mut self, other: &Self, nodes: Nodes) {
        for node in (0..MAXIMUM_NODES).filter(|node| nodes.has(*node) && other.nodes.has(*node)) {
            if !self.nodes.has(node) {
                self.sent(node, other.connections[node]);
            }
        }
    }

    /// These nodes have no vote.
    pub(super) fn forget(&mut self, nodes: Nodes) {
        self.nodes = self.nodes.but(nodes);
    }

    /// The nodes that were asked.
    pub(super) fn nodes(&self) -> Nodes {
        self.nodes
    }

    pub(super) fn on(&self, node: usize) -> u64 {
        self.connections[node]
    }
}

/// The undos of one token without an answer, for each node. Few tokens have any.
#[derive(Debug, Default)]
pub(super) struct Undone(Option<Box<[Option<Sent>; MAXIMUM_NODES]>>);

#[derive(Debug, Clone, Copy)]
struct Sent {
    /// The generation of the connection; `NONE` for several, or if it is not known.
    on: u64,
    /// The number of the last one.
    last: u64,
}

impl Undone {
    /// An undo goes out on this connection.
    pub(super) fn sent(&mut self, node: usize, on: u64, number: u64) {
        let sent = &mut self.0.get_or_insert_default()[node];
        let on = match sent {
            Some(earlier) if earlier.on != on => NONE,
            _ => on,
        };
        *sent = Some(Sent { on, last: number });
    }

    /// The undo of this number was answered, and so every earlier one on its connection was carried out.
    pub(super) fn answered(&mut self, node: usize, number: u64) {
        let Some(nodes) = &mut self.0 else { return };
        if nodes[node].is_some_and(|sent| sent.on != NONE && sent.last == number) {
            nodes[node] = None;
        }
        if nodes.iter().all(Option::is_none) {
            self.0 = None;
        }
    }

    /// Whether an undo may arrive behind what is sent on this connection.
    pub(super) fn may_follow(&self, node: usize, connection: u64) -> bool {
        let sent = self.0.as_ref().and_then(|nodes| nodes[node]);
        sent.is_some_and(|sent| sent.on == NONE || sent.on != connection)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undo_may_follow_until_what_another_connection_sent_is_answered() {
        let mut undone = Undone::default();
        assert!(!undone.may_follow(1, 7));
        undone.sent(1, 7, 1);
        assert!(!undone.may_follow(1, 7) && undone.may_follow(1, 8) && !undone.may_follow(0, 8));
        undone.sent(1, 7, 2);
        undone.answered(1, 1);
        assert!(undone.may_follow(1, 8), "the second is on its way");
        undone.answered(1, 2);
        assert!(undone.is_empty());
    }

    #[test]
    fn an_undo_that_is_repeated_on_a_new_connection_leaves_the_first_in_doubt() {
        let mut undone = Undone::default();
        undone.sent(1, 7, 1);
        undone.sent(1, 8, 2);
        undone.answered(1, 2);
        assert!(undone.may_follow(1, 7) && undone.may_follow(1, 8));
        let mut unknown = Undone::default();
        unknown.sent(0, NONE, 3);
        assert!(unknown.may_follow(0, NONE));
    }
}
