//! Who listens to which channel.

use std::collections::{BTreeMap, BTreeSet};

use crate::ConnectionId;

/// Channels of one kind; shard channels are a world of their own.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    /// In the order in which they subscribed, which is the order in which they hear.
    listeners: BTreeMap<Vec<u8>, Vec<ConnectionId>>,
    of: BTreeMap<ConnectionId, BTreeSet<Vec<u8>>>,
}

impl Channels {
    pub(crate) fn join(&mut self, id: ConnectionId, channel: &[u8]) {
        if self.of.entry(id).or_default().insert(channel.to_vec()) {
            self.listeners.entry(channel.to_vec()).or_default().push(id);
        }
    }

    pub(crate) fn leave(&mut self, id: ConnectionId, channel: &[u8]) {
        if !self
            .of
            .get_mut(&id)
            .is_some_and(|channels| channels.remove(channel))
        {
            return;
        }
        if let Some(listeners) = self.listeners.get_mut(channel) {
            listeners.retain(|other| *other != id);
            if listeners.is_empty() {
                self.listeners.remove(channel);
            }
        }
    }

    /// Leaves all channels.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        for channel in self.channels(id) {
            self.leave(id, &channel);
        }
        self.of.remove(&id);
    }

    /// The channels of a client, sorted, where a server keeps to no order.
    pub(crate) fn channels(&self, id: ConnectionId) -> Vec<Vec<u8>> {
        self.of.get(&id).into_iter().flatten().cloned().collect()
    }

    pub(crate) fn count(&self, id: ConnectionId) -> usize {
        self.of.get(&id).map_or(0, BTreeSet::len)
    }

    pub(crate) fn listeners(&self, channel: &[u8]) -> &[ConnectionId] {
        self.listeners.get(channel).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::Channels;

    #[test]
    fn listeners_hear_in_the_order_in_which_they_came() {
        let mut channels = Channels::default();
        for id in [3, 1, 2, 3] {
            channels.join(id, b"c");
        }
        assert_eq!(channels.listeners(b"c"), [3, 1, 2]);
        channels.leave(1, b"c");
        channels.leave(1, b"c");
        channels.forget(3);
        assert_eq!(channels.listeners(b"c"), [2]);
        assert_eq!((channels.count(3), channels.count(2)), (0, 1));
        channels.forget(2);
        assert!(channels.listeners(b"c").is_empty());
    }
}
