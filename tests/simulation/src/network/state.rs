//! Connections, their pipes, and the events to come.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use fastrand::Rng;
use lock_core::sim;
use lock_master::Output;

use super::faults::is_for;
use super::{ConnectionId, Connects, Cut, Delay, Target};
use crate::request::Requests;

/// A stream takes so many bytes that the server has not read, as a socket does.
const ROOM: usize = 1 << 18;

/// Whether the server is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Up {
    Yes,
    /// It does nothing; what is sent to it waits.
    Stopped,
    No,
}

/// What is to be looked at when its time has come.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    ToServer(u64),
    ToClient(u64),
    Connect(u64),
}

/// What is under way in a pipe.
#[derive(Debug)]
pub(super) enum Payload {
    Bytes(Vec<u8>),
    End,
    Reset,
}

#[derive(Debug, Default)]
pub(super) struct Pipe {
    pub(super) queue: VecDeque<(u64, Payload)>,
    /// When the last thing that was sent will arrive.
    last: u64,
    bytes: usize,
    pub(super) stalled: bool,
}

/// How a connection stands for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Connecting,
    Refused,
    Open,
    /// The server's end has been read, or will be after what is in the inbox.
    Ended,
    Reset,
    /// The stream is gone.
    Gone,
}

pub(super) struct Connection {
    pub(super) process: usize,
    pub(super) server: usize,
    pub(super) stage: Stage,
    pub(super) inbox: VecDeque<u8>,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    pub(super) to_server: Pipe,
    pub(super) to_client: Pipe,
    pub(super) requests: Requests,
    /// The server has accepted it and not yet seen its end.
    pub(super) known: bool,
    /// The client has sent its end.
    ended: bool,
    half_open: bool,
    delay: Option<Delay>,
}

impl Connection {
    /// Whether neither side knows it any more.
    fn is_over(&self) -> bool {
        self.stage == Stage::Gone && !self.known && self.to_server.queue.is_empty()
    }
}

/// What is set for a process, or for all.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub(super) delay: Option<Delay>,
    pub(super) stalled: [bool; 2],
    pub(super) connects: Option<Connects>,
    pub(super) most_connecting: u64,
    pub(super) attempts: u64,
    pub(super) made: u64,
}

pub(crate) struct State {
    pub(super) rng: Rng,
    pub(super) events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    pub(super) connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    pub(super) all: Conditions,
    pub(super) processes: Vec<Conditions>,
    pub(super) servers: Vec<Conditions>,
    /// Between a process and a server.
    pub(super) links: BTreeMap<(usize, usize), Conditions>,
    /// The server to which each address leads.
    pub(super) leads: Vec<usize>,
    pub(super) split: u8,
    pub(super) cuts: Vec<(Target, Cut)>,
    /// Of each server.
    pub(crate) up: Vec<Up>,
    /// The server has seen these go, and its master is to be told.
    pub(super) gone: Vec<(u64, usize)>,
    /// Those to wake when the state is let go.
    pub(super) wake: Vec<Waker>,
    /// The task of the network, and until when it sleeps.
    pub(super) driver: Option<Waker>,
    pub(super) sleeps_until: u64,
}

/// Milliseconds since the run began.
pub(super) fn now() -> u64 {
    sim::elapsed().as_millis() as u64
}

impl State {
    pub(super) fn new(seed: u64, servers: usize) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            events: BTreeMap::new(),
            next_event: 0,
            connections: BTreeMap::new(),
            next_connection: 1,
            all: Conditions::default(),
            processes: Vec::new(),
            servers: (0..servers).map(|_| Conditions::default()).collect(),
            links: BTreeMap::new(),
            leads: (0..servers).collect(),
            split: 0,
            cuts: Vec::new(),
            up: vec![Up::Yes; servers],
            gone: Vec::new(),
            wake: Vec::new(),
            driver: None,
            sleeps_until: 0,
        }
    }

    fn of(&mut self, process: usize) -> &mut Conditions {
        if self.processes.len() <= process {
            self.processes.resize_with(process + 1, Conditions::default);
        }
        &mut self.processes[process]
    }

    pub(super) fn conditions(&mut self, target: Target) -> Option<&mut Conditions> {
        match target {
            Target::All => Some(&mut self.all),
            Target::Process(n) => Some(self.of(n)),
            Target::Server(n) => self.servers.get_mut(n),
            Target::Link(process, server) => Some(self.links.entry((process, server)).or_default()),
            Target::Connection(_) => None,
        }
    }

    /// What is set for the connections of a process to a server, the closest first.
    pub(super) fn set_for(
        &self,
        process: usize,
        server: usize,
    ) -> impl Iterator<Item = &Conditions> {
        let link = self.links.get(&(process, server));
        let both = [self.servers.get(server), self.processes.get(process)];
        link.into_iter()
            .chain(both.into_iter().flatten())
            .chain([&self.all])
    }

    pub(super) fn set_delay(&mut self, target: Target, delay: Delay) {
        match target {
            Target::Connection(id) => {
                if let Some(connection) = self.connections.get_mut(&id.0) {
                    connection.delay = Some(delay);
                }
            }
            _ => {
                if let Some(conditions) = self.conditions(target) {
                    conditions.delay = Some(delay);
                }
            }
        }
    }

    fn draw_delay(&mut self, process: usize, server: usize, of_connection: Option<Delay>) -> u64 {
        let closest = || self.set_for(process, server).find_map(|it| it.delay);
        let delay = of_connection.or_else(closest);
        delay.unwrap_or(Delay::NONE).draw(&mut self.rng)
    }

    /// Looks at something at this time, and wakes the network's task if it would sleep longer.
    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.events.insert((time, self.next_event), event);
        self.next_event += 1;
        if time < self.sleeps_until
            && let Some(driver) = self.driver.take()
        {
            self.wake.push(driver);
        }
    }

    // Connecting.

    pub(super) fn begin_connect(&mut self, process: usize, address: usize) -> u64 {
        let id = self.next_connection;
        self.next_connection += 1;
        let server = self.leads[address];
        let mut trip = self.draw_delay(process, server, None);
        trip += self.draw_delay(process, server, None);
        let conditions = self.of(process);
        conditions.attempts += 1;
        let after = match self.connects_of(process, server) {
            Connects::Slow(time) => time.as_millis() as u64,
            _ => trip,
        };
        let connection = Connection {
            process,
            server,
            stage: Stage::Connecting,
            inbox: VecDeque::new(),
            reader: None,
            writer: None,
            to_server: Pipe::default(),
            to_client: Pipe::default(),
            requests: Requests::default(),
            known: false,
            ended: false,
            half_open: false,
            delay: None,
        };
        self.connections.insert(id, connection);
        let under_way = self.counts(process).connecting;
        let conditions = self.of(process);
        conditions.most_connecting = conditions.most_connecting.max(under_way);
        self.at(now() + after, Event::Connect(id));
        id
    }

    pub(super) fn connects_of(&self, process: usize, server: usize) -> Connects {
        let rank = |connects: &Connects| match connects {
            Connects::Open => 0,
            Connects::Slow(_) => 1,
            Connects::Refused => 2,
            Connects::Hang => 3,
        };
        let known = self.set_for(process, server).filter_map(|it| it.connects);
        known.max_by_key(rank).unwrap_or(Connects::Open)
    }

    pub(super) fn set_connects(&mut self, target: Target, connects: Connects) {
        if let Some(conditions) = self.conditions(target) {
            conditions.connects = Some(connects);
        }
        self.look_again();
    }

    /// The handshake of a connection comes to its end. True where the server has accepted it.
    pub(super) fn finish_connect(&mut self, id: u64) -> bool {
        let known = self.connections.get(&id).map(|c| (c.process, c.server));
        let Some((process, server)) = known else {
            return false;
        };
        let mut set = self.set_for(process, server);
        let stalled = set.any(|it| it.stalled.contains(&true));
        drop(set);
        let connects = self.connects_of(process, server);
        let up = self.up[server];
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        if stalled || connects == Connects::Hang || connection.stage != Stage::Connecting {
            return false;
        }
        self.wake.extend(connection.reader.take());
        if connects == Connects::Refused || up == Up::No {
            connection.stage = Stage::Refused;
            return false;
        }
        connection.stage = Stage::Open;
        connection.known = true;
        self.of(process).made += 1;
        true
    }

    // Sending.

    pub(super) fn send(&mut self, id: u64, to_server: bool, bytes: Vec<u8>) {
        if bytes.len() > 1 && self.split > 0 && self.rng.u8(..100) < self.split {
            let at = self.rng.usize(1..bytes.len());
            let rest = bytes[at..].to_vec();
            let mut bytes = bytes;
            bytes.truncate(at);
            self.push(id, to_server, Payload::Bytes(bytes));
            self.push(id, to_server, Payload::Bytes(rest));
        } else {
            self.push(id, to_server, Payload::Bytes(bytes));
        }
    }

    /// What the server writes, in its order.
    pub(crate) fn send_all(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Bytes(id, bytes) => self.send(id, false, bytes),
                Output::Close(id) => self.close_from_server(id),
            }
        }
    }

    pub(super) fn push(&mut self, id: u64, to_server: bool, payload: Payload) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let (process, server, delay) = (connection.process, connection.server, connection.delay);
        let due = now() + self.draw_delay(process, server, delay);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.half_open {
            return;
        }
        let (pipe, event) = if to_server {
            (&mut connection.to_server, Event::ToServer(id))
        } else {
            (&mut connection.to_client, Event::ToClient(id))
        };
        let due = due.max(pipe.last);
        pipe.last = due;
        if let Payload::Bytes(bytes) = &payload {
            pipe.bytes += bytes.len();
        }
        pipe.queue.push_back((due, payload));
        self.at(due, event);
    }

    /// Whether the client may write more.
    pub(super) fn has_room(connection: &Connection) -> bool {
        connection.to_server.bytes < ROOM
    }

    /// What arrives now in one of the pipes of a connection.
    pub(super) fn arrived(&mut self, id: u64, to_server: bool) -> Option<Payload> {
        let Connection {
            process, server, ..
        } = *self.connections.get(&id)?;
        let side = usize::from(!to_server);
        let is_stalled = self.set_for(process, server).any(|it| it.stalled[side])
            || (to_server && self.up[server] == Up::Stopped);
        let connection = self.connections.get_mut(&id)?;
        let pipe = if to_server {
            &mut connection.to_server
        } else {
            &mut connection.to_client
        };
        let (due, _) = pipe.queue.front()?;
        if is_stalled || pipe.stalled || *due > now() {
            return None;
        }
        let (_, payload) = pipe.queue.pop_front()?;
        if let Payload::Bytes(bytes) = &payload {
            let was_full = pipe.bytes >= ROOM;
            pipe.bytes -= bytes.len();
            if was_full {
                self.wake.extend(connection.writer.take());
            }
        }
        Some(payload)
    }

    // Ends.

    /// The client closes: what it has written still arrives.
    pub(super) fn close(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.known && !connection.ended {
            connection.ended = true;
            self.push(id, true, Payload::End);
        }
    }

    /// The stream of a connection is gone.
    pub(super) fn drop_stream(&mut self, id: u64) {
        self.close(id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.stage = Stage::Gone;
            connection.inbox = VecDeque::new();
        }
        self.tidy(id);
    }

    pub(super) fn tidy(&mut self, id: u64) {
        if self.connections.get(&id).is_some_and(Connection::is_over) {
            self.connections.remove(&id);
        }
    }

    /// The server has seen the end of a connection. True where it had not before.
    pub(super) fn unknown(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let was_known = std::mem::take(&mut connection.known);
        connection.to_server.queue.clear();
        connection.to_server.bytes = 0;
        self.wake.extend(connection.writer.take());
        was_known
    }

    /// The server closes a connection, or ends: what it has written still arrives.
    pub(crate) fn close_from_server(&mut self, id: u64) {
        if self.unknown(id) {
            self.push(id, false, Payload::End);
            self.tell_master(id);
        }
    }

    /// Both sides see a connection break, and lose what was under way.
    pub(super) fn reset(&mut self, id: u64) {
        if self.unknown(id) {
            self.tell_master(id);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.to_client.queue.clear();
            if !connection.half_open && matches!(connection.stage, Stage::Open | Stage::Ended) {
                connection.stage = Stage::Reset;
                connection.inbox.clear();
                self.wake.extend(connection.reader.take());
            }
        }
        self.tidy(id);
    }

    pub(super) fn tell_master(&mut self, id: u64) {
        let server = self.connections.get(&id).map_or(0, |it| it.server);
        self.gone.push((id, server));
        self.wake.extend(self.driver.take());
    }

    pub(super) fn reset_all(&mut self, target: Target) -> usize {
        let all = self.connections.iter();
        let hit = all.filter(|(id, c)| is_for(target, **id, c) && c.known);
        let hit: Vec<u64> = hit.map(|(id, _)| *id).collect();
        for id in &hit {
            self.reset(*id);
        }
        hit.len()
    }

    pub(super) fn half_open(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id.0) {
            connection.half_open = true;
            connection.to_client.queue.clear();
            connection.to_server.queue.clear();
            connection.to_server.bytes = 0;
        }
    }

    pub(super) fn break_late(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id.0)
            && matches!(connection.stage, Stage::Open | Stage::Ended)
        {
            connection.to_server.stalled = true;
            connection.to_client.queue.clear();
            connection.stage = Stage::Reset;
            connection.inbox.clear();
            self.wake.extend(connection.reader.take());
        }
    }

    pub(super) fn notice(&mut self, id: ConnectionId) {
        if self.unknown(id.0) {
            self.tell_master(id.0);
        }
        self.tidy(id.0);
    }

    /// A process has crashed. Its kernel closes its sockets, unless the machine is gone as well.
    pub(crate) fn crash(&mut self, process: usize, is_silent: bool) {
        for id in self.ids(|c| c.process == process) {
            if is_silent {
                self.half_open(ConnectionId(id));
            } else {
                self.close(id);
            }
            if let Some(connection) = self.connections.get_mut(&id) {
                // What the process does while it is taken apart goes nowhere.
                connection.ended = true;
                connection.stage = Stage::Gone;
            }
            self.tidy(id);
        }
    }

    pub(super) fn ids(&self, which: impl Fn(&Connection) -> bool) -> Vec<u64> {
        let all = self.connections.iter();
        all.filter(|(_, c)| which(c)).map(|(id, _)| *id).collect()
    }
}
