//! Faults, as they are switched, and what can be counted.

use super::state::{Connection, Event, Stage, State, Up, now};
use super::{ConnectionId, Counts, Cut, Target, Way};

impl State {
    pub(super) fn set_stall(&mut self, target: Target, way: Way, on: bool) {
        if let Target::Connection(id) = target {
            if let Some(connection) = self.connections.get_mut(&id.0) {
                if way.to_server() {
                    connection.to_server.stalled = on;
                }
                if way.to_client() {
                    connection.to_client.stalled = on;
                }
            }
        } else if let Some(conditions) = self.conditions(target) {
            if way.to_server() {
                conditions.stalled[0] = on;
            }
            if way.to_client() {
                conditions.stalled[1] = on;
            }
        }
        if !on {
            self.look_again();
        }
    }

    pub(crate) fn set_up(&mut self, server: usize, up: Up) {
        self.up[server] = up;
        self.look_again();
    }

    /// Looks at everything that was held back, in the order in which it was to arrive.
    pub(super) fn look_again(&mut self) {
        let now = now();
        let mut held = Vec::new();
        for (id, connection) in &self.connections {
            if connection.stage == Stage::Connecting {
                held.push((now, Event::Connect(*id)));
            }
            let pipes = [
                (&connection.to_server, Event::ToServer(*id)),
                (&connection.to_client, Event::ToClient(*id)),
            ];
            for (pipe, event) in pipes {
                // One look for each, since each look takes one.
                let due = pipe.queue.iter().map(|(due, _)| *due);
                held.extend(due.filter(|due| *due <= now).map(|due| (due, event)));
            }
        }
        held.sort_by_key(|(due, _)| *due);
        for (_, event) in held {
            self.at(now, event);
        }
    }

    pub(super) fn heal(&mut self) {
        let some = self.processes.iter_mut().chain(&mut self.servers);
        let some = some.chain(self.links.values_mut());
        for conditions in some.chain([&mut self.all]) {
            conditions.stalled = [false; 2];
            conditions.connects = None;
        }
        for connection in self.connections.values_mut() {
            connection.to_server.stalled = false;
            connection.to_client.stalled = false;
        }
        self.cuts.clear();
        self.look_again();
    }

    /// Takes the first cut that is for this connection and of this kind.
    pub(super) fn take_cut(&mut self, id: u64, kind: impl Fn(Cut) -> bool) -> Option<Cut> {
        if self.cuts.is_empty() {
            return None;
        }
        let connection = self.connections.get(&id)?;
        let place = self
            .cuts
            .iter()
            .position(|(target, cut)| is_for(*target, id, connection) && kind(*cut))?;
        Some(self.cuts.remove(place).1)
    }

    // Counts.

    pub(crate) fn open_of(&self, process: usize) -> Vec<ConnectionId> {
        let open = self.ids(|c| {
            c.process == process && matches!(c.stage, Stage::Open | Stage::Ended | Stage::Reset)
        });
        open.into_iter().map(ConnectionId).collect()
    }

    pub(super) fn server_of(&self, id: ConnectionId) -> Option<usize> {
        self.connections.get(&id.0).map(|it| it.server)
    }

    pub(crate) fn known_to(&self, server: usize) -> Vec<ConnectionId> {
        let known = self.ids(|c| c.known && c.server == server);
        known.into_iter().map(ConnectionId).collect()
    }

    pub(super) fn counts(&self, process: usize) -> Counts {
        let is_connecting = |c: &&Connection| c.process == process && c.stage == Stage::Connecting;
        let connecting = self.connections.values().filter(is_connecting).count();
        let of_process = self.processes.get(process);
        Counts {
            open: self.open_of(process).len() as u64,
            connecting: connecting as u64,
            most_connecting: of_process.map_or(0, |p| p.most_connecting),
            attempts: of_process.map_or(0, |p| p.attempts),
            made: of_process.map_or(0, |p| p.made),
        }
    }
}

pub(super) fn is_for(target: Target, id: u64, connection: &Connection) -> bool {
    match target {
        Target::All => true,
        Target::Process(n) => n == connection.process,
        Target::Server(n) => n == connection.server,
        Target::Link(process, server) => {
            (process, server) == (connection.process, connection.server)
        }
        Target::Connection(one) => one.0 == id,
    }
}
