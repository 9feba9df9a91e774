//! The connections of a server, and what it has to write to them.

use std::collections::{BTreeMap, VecDeque};

use crate::reply::{Protocol, Reply};
use crate::{ConnectionId, Output};

#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: BTreeMap<ConnectionId, Connection>,
    /// Who is to be written to: a client that was given something to read last is written to first.
    pending: VecDeque<ConnectionId>,
    numbered: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// The number that CLIENT ID says.
    pub(crate) number: i64,
    pub(crate) protocol: Protocol,
    pub(crate) name: Vec<u8>,
    /// The start of a request whose rest has not come.
    pub(crate) unread: Vec<u8>,
    /// Ends once everything is written.
    pub(crate) closing: bool,
    unwritten: Vec<u8>,
}

impl Connections {
    pub(crate) fn open(&mut self, id: ConnectionId) {
        self.numbered += 1;
        let connection = Connection {
            number: self.numbered,
            ..Connection::default()
        };
        self.all.insert(id, connection);
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        self.all.remove(&id);
        self.pending.retain(|other| *other != id);
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.pending.clear();
        self.numbered = 0;
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.all.get_mut(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Writes, with the next flush.
    pub(crate) fn write(&mut self, id: ConnectionId, reply: &Reply) {
        let Some(connection) = self.all.get_mut(&id) else {
            return;
        };
        let was_empty = connection.unwritten.is_empty();
        reply.encode(connection.protocol, &mut connection.unwritten);
        if was_empty && !connection.unwritten.is_empty() {
            self.pending.push_front(id);
        }
    }

    /// What was written since the last flush. Connections that are closing are gone then.
    pub(crate) fn flush(&mut self) -> (Vec<Output>, Vec<ConnectionId>) {
        let mut outputs = Vec::with_capacity(self.pending.len());
        let mut closed = Vec::new();
        for id in std::mem::take(&mut self.pending) {
            let Some(connection) = self.all.get_mut(&id) else {
                continue;
            };
            outputs.push(Output::Bytes(id, std::mem::take(&mut connection.unwritten)));
            if connection.closing {
                outputs.push(Output::Close(id));
                closed.push(id);
            }
        }
        (outputs, closed)
    }
}
