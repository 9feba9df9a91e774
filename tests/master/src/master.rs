//! The server.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::ops::Range;

use crate::ConnectionId;
use crate::commands::Action;
use crate::faults::Faults;
use crate::hashes::Fields;
use crate::keyspace::{Data, Kind};
use crate::reply::{Answer, Reply};
use crate::resp::{self, Request};
use crate::scripts::Scripts;
use crate::state::{Caller, Run, State};

/// What the server does with its connections, in the order in which it does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// It writes.
    Bytes(ConnectionId, Vec<u8>),
    /// It ends the connection.
    Close(ConnectionId),
}

/// How long a key lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// There is no such key.
    Absent,
    /// It lives until it is removed.
    Endless,
    /// It lives for so many microseconds. A key is there until its last millisecond is over.
    Micros(i64),
}

/// Shown each request of a connection before it is run, and again with its reply.
pub type Observer = Box<dyn FnMut(&Master, &[&[u8]], Option<&Reply>)>;

/// A server. It knows the time only by [`set_time`](Self::set_time).
pub struct Master {
    state: State,
    scripts: Scripts,
    seed: u64,
    runs: u64,
    commands: u64,
    observer: Option<Observer>,
    /// The places of the words of a request, kept for the next one.
    ranges: Vec<Range<usize>>,
}

impl fmt::Debug for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Master")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Master {
    /// An empty server that starts at this time of the wall clock, in microseconds since 1970.
    ///
    /// # Panics
    ///
    /// When the interpreter has no memory.
    #[must_use]
    pub fn new(now_micros: u64) -> Self {
        Self::with_seed(now_micros, 0)
    }

    /// As [`new`](Self::new). Servers of different seeds have different run ids.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    #[must_use]
    pub fn with_seed(now_micros: u64, seed: u64) -> Self {
        let mut master = Self {
            state: State::default(),
            scripts: Scripts::new().expect("memory for an interpreter"),
            seed,
            runs: 0,
            commands: 0,
            observer: None,
            ranges: Vec::new(),
        };
        master.state.keyspace.set_time(now_micros);
        master.start();
        master
    }

    fn start(&mut self) {
        self.runs += 1;
        self.state.run = Run {
            id: run_id(self.seed, self.runs),
            since_micros: self.state.keyspace.now_micros(),
        };
    }

    /// The time of everything until the next call.
    pub fn set_time(&mut self, now_micros: u64) {
        self.state.keyspace.set_time(now_micros);
    }

    /// A connection was made.
    pub fn connect(&mut self, id: ConnectionId) {
        self.state.forget(id);
        self.state.connections.open(id);
    }

    /// A connection is gone. What it asked for before was done.
    pub fn disconnect(&mut self, id: ConnectionId) {
        self.state.forget(id);
    }

    /// Bytes came from a connection; the rest of a request may come later. All requests that are whole are run before
    /// anything is written, as a server does that reads them at once.
    pub fn receive(&mut self, id: ConnectionId, bytes: &[u8]) -> Vec<Output> {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return Vec::new();
        };
        if connection.unread.is_empty() {
            let read = self.run_all(id, bytes);
            if let Some(connection) = self.state.connections.get_mut(id) {
                connection.unread.extend_from_slice(&bytes[read..]);
            }
        } else {
            let mut all = std::mem::take(&mut connection.unread);
            all.extend_from_slice(bytes);
            let read = self.run_all(id, &all);
            all.drain(..read);
            if let Some(connection) = self.state.connections.get_mut(id) {
                connection.unread = all;
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> Vec<Output> {
        let (outputs, closed) = self.state.connections.flush();
        for id in closed {
            self.state.forget(id);
        }
        outputs
    }

    /// Runs the requests that are whole; how many bytes they took.
    fn run_all(&mut self, id: ConnectionId, bytes: &[u8]) -> usize {
        let mut read = 0;
        let mut ranges = std::mem::take(&mut self.ranges);
        while read < bytes.len() && self.state.connections.get(id).is_some_and(|c| !c.closing) {
            let rest = &bytes[read..];
            match resp::read(rest, &mut ranges) {
                Request::Whole(length) => {
                    read += length;
                    if !ranges.is_empty() {
                        self.run_one(id, rest, &ranges);
                    }
                }
                Request::Unfinished => break,
                Request::Broken(why) => {
                    self.state.connections.write(id, &Reply::Error(why.into()));
                    if let Some(connection) = self.state.connections.get_mut(id) {
                        connection.closing = true;
                    }
                }
            }
        }
        self.ranges = ranges;
        read
    }

    fn run_one(&mut self, id: ConnectionId, bytes: &[u8], ranges: &[Range<usize>]) {
        let words: Vec<&[u8]> = ranges.iter().map(|range| &bytes[range.clone()]).collect();
        let mut observer = self.observer.take();
        if let Some(observer) = &mut observer {
            observer(self, &words, None);
        }
        let reply = self
            .answer(&words, Caller::Connection(id))
            .unwrap_or_else(Reply::Error);
        if let Some(observer) = &mut observer {
            observer(self, &words, Some(&reply));
        }
        self.observer = observer;
        self.state.connections.write(id, &reply);
    }

    fn answer(&mut self, words: &[&[u8]], caller: Caller) -> Answer {
        self.state.keyspace.read_only = self.state.faults.read_only;
        self.commands += 1;
        let command = self.state.admit(words, caller)?;
        match command.action {
            Action::Script(which) => self.scripts.serve(which, words, &mut self.state),
            _ => self.state.run_command(command, words, caller),
        }
    }

    /// Runs a command of a client outside the simulation, and what it makes the server write to others.
    pub fn execute(&mut self, words: &[&[u8]]) -> (Reply, Vec<Output>) {
        let reply = match words {
            [] => Reply::Error("ERR no command".into()),
            words => self
                .answer(words, Caller::Foreign)
                .unwrap_or_else(Reply::Error),
        };
        (reply, self.flush())
    }

    /// The server ends and starts anew: all connections are gone, the scripts are forgotten, and the run id is another. The
    /// data are kept, as by an append-only file: ttls go on; or they are lost.
    pub fn restart(&mut self, keep_data: bool) {
        self.state.connections.clear();
        self.state.channels = crate::pubsub::Channels::default();
        self.state.shard_channels = crate::pubsub::Channels::default();
        self.scripts.forget();
        if !keep_data {
            self.state.keyspace.clear();
        }
        self.start();
    }

    /// Shows the requests to an observer from now on.
    pub fn observe(&mut self, observer: Option<Observer>) {
        self.observer = observer;
    }

    /// What is wrong with the server. A restart does not mend it.
    pub fn faults(&mut self) -> &mut Faults {
        &mut self.state.faults
    }

    /// Forgets all scripts.
    pub fn flush_scripts(&mut self) {
        self.scripts.forget();
    }

    /// Removes all keys.
    pub fn flush_all(&mut self) {
        self.state.keyspace.clear();
    }

    /// A copy of all keys.
    #[must_use]
    pub fn data(&self) -> Data {
        self.state.keyspace.data()
    }

    /// Puts a copy in the place of all keys: what has expired by now is not there. Connections and scripts stay.
    pub fn replace(&mut self, data: Data) {
        self.state.keyspace.replace(data);
    }

    /// The string at a key.
    #[must_use]
    pub fn string(&self, key: &[u8]) -> Option<&[u8]> {
        self.peek::<Vec<u8>>(key).map(Vec::as_slice)
    }

    /// The list at a key; empty where there is none.
    #[must_use]
    pub fn list(&self, key: &[u8]) -> Vec<Vec<u8>> {
        self.peek::<VecDeque<_>>(key)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// The hash at a key, in the order in which its fields came; empty where there is none.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.peek(key)
            .map(Fields::pairs)
            .unwrap_or_default()
            .to_vec()
    }

    fn peek<T: Kind>(&self, key: &[u8]) -> Option<&T> {
        T::of(&self.state.keyspace.peek(key)?.value)
    }

    /// How long a key lives.
    #[must_use]
    pub fn ttl(&self, key: &[u8]) -> Ttl {
        let Some(entry) = self.state.keyspace.peek(key) else {
            return Ttl::Absent;
        };
        entry.deadline.map_or(Ttl::Endless, |deadline| {
            let now = i64::try_from(self.state.keyspace.now_micros()).unwrap_or(i64::MAX);
            let end = deadline.saturating_add(1).saturating_mul(1000);
            Ttl::Micros(end.saturating_sub(now))
        })
    }

    /// As [`ttl`](Self::ttl), in microseconds; nothing where the key is absent or lives until it is removed.
    #[must_use]
    pub fn ttl_micros(&self, key: &[u8]) -> Option<i64> {
        match self.ttl(key) {
            Ttl::Micros(micros) => Some(micros),
            Ttl::Absent | Ttl::Endless => None,
        }
    }

    /// The keys that have not expired, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.state
            .keyspace
            .keys()
            .into_iter()
            .map(<[u8]>::to_vec)
            .collect()
    }

    /// Connections that are subscribed to a channel.
    #[must_use]
    pub fn listeners(&self, channel: &[u8]) -> usize {
        self.state.channels.listeners(channel).len()
    }

    /// The time of the wall clock, in microseconds.
    #[must_use]
    pub fn now_micros(&self) -> u64 {
        self.state.keyspace.now_micros()
    }

    /// What is wrong with the server at the moment.
    #[must_use]
    pub fn wrong(&self) -> &Faults {
        &self.state.faults
    }

    /// The names of the channels that a connection is subscribed to.
    #[must_use]
    pub fn channels(&self, id: ConnectionId) -> Vec<Vec<u8>> {
        self.state.channels.channels(id)
    }

    /// Channels that a connection is subscribed to.
    #[must_use]
    pub fn subscriptions(&self, id: ConnectionId) -> usize {
        self.state.channels.count(id) + self.state.shard_channels.count(id)
    }

    /// Commands of clients so far.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Calls of one command so far, those of scripts included. A name in small letters; a refused call is none.
    #[must_use]
    pub fn calls(&self, command: &str) -> u64 {
        self.state.counts.of(command)
    }

    /// Calls of one script so far, by the hash of its text.
    #[must_use]
    pub fn script_calls(&self, hash: &str) -> u64 {
        self.scripts.calls(hash)
    }
}

/// Forty digits that look as if drawn by lot.
fn run_id(seed: u64, run: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ run.rotate_left(32);
    let mut digits = String::new();
    while digits.len() < 40 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // To memory: it does not fail.
        let _ = write!(digits, "{:016x}", mixed ^ (mixed >> 31));
    }
    digits.truncate(40);
    digits
}
