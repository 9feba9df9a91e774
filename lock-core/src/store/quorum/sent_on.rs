//! The connections on which a token was asked for. No I/O.

use super::node::NONE;
use super::nodes::{MAXIMUM_NODES, Nodes};

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
