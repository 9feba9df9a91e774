//! The network between the processes and the server: one queue of events, in virtual time.
//!
//! A connection is two pipes. Each is FIFO: bytes arrive after a delay of their own, but not before those that went ahead.
//! All faults can be switched at any time.

mod driver;
mod faults;
mod state;
mod stream;
mod wire;

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

pub(crate) use self::driver::Driver;
pub(crate) use self::state::Up;
pub(crate) use self::wire::Wire;

/// A connection, by its number in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// What a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// All connections, also those to come.
    All,
    /// The connections of a process, also those to come.
    Process(usize),
    /// One connection.
    Connection(ConnectionId),
    /// The connections to a server, also those to come.
    Server(usize),
    /// The connections of a process to a server, also those to come: the process first.
    Link(usize, usize),
}

/// Which of the two pipes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// What the process sends.
    ToServer,
    /// What the server sends.
    ToClient,
    /// Either.
    Both,
}

impl Way {
    pub(crate) fn to_server(self) -> bool {
        self != Self::ToClient
    }

    pub(crate) fn to_client(self) -> bool {
        self != Self::ToServer
    }
}

/// How long bytes are under way, in whole milliseconds. Zero means: later in this millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// In so many of a hundred cases there is none.
    pub none_percent: u8,
}

impl Delay {
    /// Later in this millisecond.
    pub const NONE: Self = Self {
        least: 0,
        most: 0,
        none_percent: 100,
    };

    /// Evenly between two numbers of milliseconds.
    #[must_use]
    pub const fn between(least: u64, most: u64) -> Self {
        Self {
            least,
            most,
            none_percent: 0,
        }
    }

    /// The same, but none at all in so many of a hundred cases.
    #[must_use]
    pub const fn or_none(mut self, percent: u8) -> Self {
        self.none_percent = percent;
        self
    }

    fn draw(self, rng: &mut Rng) -> u64 {
        if self.most == 0 || (self.none_percent > 0 && rng.u8(..100) < self.none_percent) {
            return 0;
        }
        rng.u64(self.least..=self.most.max(self.least))
    }
}

/// Where a connection breaks. Both ends know it: the client sees a reset, the server that it has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The next bytes to the server do not reach it.
    BeforeRequest,
    /// The next request is done, and only so many bytes of its reply arrive; at least one is missing.
    InsideReply(usize),
    /// The next request is done and its reply arrives.
    AfterReply,
}

/// What becomes of attempts to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connects {
    /// They succeed after a round trip.
    Open,
    /// They are refused after a round trip.
    Refused,
    /// They succeed after this time.
    Slow(Duration),
    /// Nothing, until this changes.
    Hang,
}

/// What a process has to do with the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sockets that are open in the process, whether their server knows them or not.
    pub open: u64,
    /// Attempts to connect that are under way.
    pub connecting: u64,
    /// The most that were ever under way at the same time.
    pub most_connecting: u64,
    /// Attempts to connect until now.
    pub attempts: u64,
    /// Those of them that succeeded.
    pub made: u64,
}

/// The network. Cheap to clone; clones are the same network.
#[derive(Debug, Clone)]
pub struct Network(pub(crate) Wire);

impl Network {
    /// How long bytes are under way, in both directions. A connection goes before its link, that before its server, that before
    /// its process, and that before all.
    pub fn delay(&self, target: Target, delay: Delay) {
        self.0.fault(
            target,
            format_args!(
                "delay {}..{} none {}%",
                delay.least, delay.most, delay.none_percent
            ),
        );
        self.0.with(|state| state.set_delay(target, delay));
    }

    /// In so many of a hundred cases, bytes that were sent together arrive in two parts.
    pub fn split(&self, percent: u8) {
        self.0.fault(Target::All, format_args!("split {percent}%"));
        self.0.with(|state| state.split = percent);
    }

    /// Holds all bytes back from now on. Connects are held back as well, unless the target is a connection.
    pub fn stall(&self, target: Target, way: Way) {
        self.0.fault(target, format_args!("stall {way:?}"));
        self.0.with(|state| state.set_stall(target, way, true));
    }

    /// Ends a [`stall`](Self::stall): what was held back arrives, in the order in which it was sent.
    pub fn lift(&self, target: Target, way: Way) {
        self.0.fault(target, format_args!("lift {way:?}"));
        self.0.with(|state| state.set_stall(target, way, false));
    }

    /// Loses every byte of this connection from now on, and its end: neither side is told.
    pub fn half_open(&self, connection: ConnectionId) {
        self.0
            .fault(Target::Connection(connection), format_args!("half-open"));
        self.0.with(|state| state.half_open(connection));
    }

    /// Breaks a connection for its client. What it has sent is held back, and arrives after a [`lift`](Self::lift) of this connection.
    pub fn break_late(&self, connection: ConnectionId) {
        self.0
            .fault(Target::Connection(connection), format_args!("breaks"));
        self.0.with(|state| state.break_late(connection));
    }

    /// The server learns that a connection has gone, as by a keep-alive: a half-open one, or one of a process that has
    /// crashed silently.
    pub fn notice(&self, connection: ConnectionId) {
        self.0
            .fault(Target::Connection(connection), format_args!("noticed"));
        self.0.with(|state| state.notice(connection));
    }

    /// Breaks connections now: bytes under way are lost in both directions. Returns how many.
    #[expect(clippy::must_use_candidate, reason = "it is done for what it does")]
    pub fn reset(&self, target: Target) -> usize {
        self.0.fault(target, format_args!("reset"));
        self.0.with(|state| state.reset_all(target))
    }

    /// Breaks the first connection that comes to this point, once.
    pub fn cut(&self, target: Target, cut: Cut) {
        self.0.fault(target, format_args!("cut {cut:?}"));
        self.0.with(|state| state.cuts.push((target, cut)));
    }

    /// Forgets all [`cut`](Self::cut)s that have not happened.
    pub fn forget_cuts(&self) {
        self.0.fault(Target::All, format_args!("no cuts"));
        self.0.with(|state| state.cuts.clear());
    }

    /// What becomes of attempts to connect from now on. The worst of what is set for all, a process, a server and a link counts, in
    /// the order of [`Connects`].
    pub fn connects(&self, target: Target, connects: Connects) {
        self.0.fault(target, format_args!("connects {connects:?}"));
        self.0.with(|state| state.set_connects(target, connects));
    }

    /// Takes back everything but resets: no stall, no cut to come, connects succeed. Half-open connections stay so.
    pub fn heal(&self) {
        self.0.fault(Target::All, format_args!("heal"));
        self.0.with(state::State::heal);
    }

    /// An address leads to another server from now on. The connections that are there stay.
    pub fn leads(&self, address: usize, server: usize) {
        let what = format_args!("address {address} leads to server {server}");
        self.0.fault(Target::All, what);
        self.0.with(|state| state.leads[address] = server);
    }

    /// The connections that a process has open, oldest first.
    #[must_use]
    pub fn connections(&self, process: usize) -> Vec<ConnectionId> {
        self.0.with(|state| state.open_of(process))
    }

    /// Those of them that lead to a server.
    #[must_use]
    pub fn connections_to(&self, process: usize, server: usize) -> Vec<ConnectionId> {
        self.0.with(|state| {
            let mut open = state.open_of(process);
            open.retain(|id| state.server_of(*id) == Some(server));
            open
        })
    }

    /// The connections that the first server knows.
    #[must_use]
    pub fn known_to_server(&self) -> Vec<ConnectionId> {
        self.0.with(|state| state.known_to(0))
    }

    /// What a process has to do with the network.
    #[must_use]
    pub fn counts(&self, process: usize) -> Counts {
        self.0.with(|state| state.counts(process))
    }
}
