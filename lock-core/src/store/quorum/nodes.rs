//! Sets of nodes, and the size of a majority.

/// Maximum nodes of a quorum.
pub(super) const MAXIMUM_NODES: usize = 9;

/// The number of nodes that make a majority.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// A set of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Nodes(u16);

impl Nodes {
    pub(super) fn all(count: usize) -> Self {
        (0..count).fold(Self::default(), Self::with)
    }

    pub(super) fn with(self, index: usize) -> Self {
        Self(self.0 | 1 << index)
    }

    pub(super) fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(super) fn but(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(super) fn without(self, index: usize) -> Self {
        Self(self.0 & !(1 << index))
    }

    pub(super) fn has(self, index: usize) -> bool {
        self.0 & 1 << index != 0
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}
