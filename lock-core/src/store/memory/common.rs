//! What the locks of all kinds share: the clients, the counter of fencing tokens, the subscribers, and the time.

use std::collections::HashMap;

use crate::base::time::Moment;
use crate::base::token::Token;
use crate::store::{EventSink, Grant};

/// An event to send once the state is unlocked.
pub(super) enum Message {
    Granted(Token, Grant, Box<str>),
    Contended(Token),
    Revoked(Token),
    /// It has to ask again.
    Freed(Token),
    /// For this client, about the lock of this name.
    Unlocked(Box<str>, Box<str>),
}

pub(crate) struct Common {
    /// The time of the operation that runs.
    pub(super) now: Moment,
    pub(super) clients: HashMap<Box<str>, EventSink>,
    /// The last fencing token.
    pub(super) fence: u64,
    /// The number of the last grant of a lock with a queue. Grants of one moment have different ones.
    pub(super) last_grant: u64,
    /// For each lock with announcements, the clients that are subscribed, and how often.
    pub(super) listeners: HashMap<Box<str>, HashMap<Box<str>, usize>>,
    pub(super) outbox: Vec<Message>,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            now: Moment(0),
            clients: HashMap::new(),
            fence: 0,
            last_grant: 0,
            listeners: HashMap::new(),
            outbox: Vec::new(),
        }
    }
}

impl Common {
    /// Mints a fencing token, and reserves `reserve` tokens behind it for the client to give out.
    pub(super) fn mint(&mut self, reserve: u64) -> u64 {
        // Below 2^53 like those of the server: microseconds, with the last token as the floor.
        let minted = (self.fence + 1).max(self.now.0 / 1000);
        self.fence = minted + reserve;
        minted
    }

    pub(super) fn listen(&mut self, client: &str, lock: &str) {
        let listeners = self.listeners.entry(lock.into()).or_default();
        *listeners.entry(client.into()).or_default() += 1;
    }

    pub(super) fn leave(&mut self, client: &str, lock: &str) {
        let Some(listeners) = self.listeners.get_mut(lock) else {
            return;
        };
        if let Some(count) = listeners.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                listeners.remove(client);
            }
        }
        if listeners.is_empty() {
            self.listeners.remove(lock);
        }
    }

    /// Tells all subscribers that the lock is free. Returns their number.
    pub(super) fn announce(&mut self, lock: &str) -> u64 {
        let clients = self.listeners.get(lock).into_iter().flat_map(HashMap::keys);
        let before = self.outbox.len();
        let messages = clients.map(|client| Message::Unlocked(client.clone(), lock.into()));
        self.outbox.extend(messages);
        (self.outbox.len() - before) as u64
    }
}
