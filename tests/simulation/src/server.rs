//! The server: the small master, and whether it is there.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use lock_master::{Data, Master, Observer, Output, Reply};

use crate::meter::Meter;
use crate::network::{Up, Wire};
use crate::request::Command;
use crate::trace::micros;

/// What the server's clock says when a run begins, in microseconds.
pub const EPOCH: u64 = 1_700_000_000_000_000;

/// The beginning of what is announced of leaders. No lock is told of there.
const LEADERS: &[u8] = b"lock-core:leader:";

type Watcher = Box<dyn FnMut(&Command<'_>)>;

/// A server of a world. Cheap to clone; clones are the same server.
#[derive(Clone)]
pub struct Server(Rc<Inner>);

struct Inner {
    index: usize,
    master: RefCell<Master>,
    wire: Wire,
    meter: Meter,
    commands: Cell<u64>,
    scripts: RefCell<BTreeMap<&'static str, u64>>,
    /// Connections to a server that is a replica now.
    demoted: RefCell<BTreeSet<u64>>,
    /// A replica that has none of the data yet, and whether the address leads to it; and the connections to it.
    replica: RefCell<Option<Master>>,
    is_behind: Cell<bool>,
    behind: RefCell<BTreeSet<u64>>,
    watchers: RefCell<Vec<Watcher>>,
    /// What the clock of the master says when a run begins: at the moment, and the most that that of any master has said.
    epoch: Cell<u64>,
    latest_epoch: Cell<u64>,
}

/// A command as text.
struct Words<'a>(&'a [&'a [u8]]);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|word| write!(f, "{} ", word.escape_ascii()))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// Why a process that is connected hears nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deafness {
    /// Its connection is with a server that is not the master any more, which only a write shows.
    LeftBehind,
    /// It has no channel of its own: it was refused.
    Unsubscribed,
}

impl Server {
    pub(crate) fn new(index: usize, wire: Wire, meter: Meter) -> Self {
        Self(Rc::new(Inner {
            index,
            master: RefCell::new(Master::with_seed(EPOCH, index as u64)),
            wire,
            meter,
            commands: Cell::new(0),
            scripts: RefCell::default(),
            demoted: RefCell::default(),
            replica: RefCell::default(),
            is_behind: Cell::new(false),
            behind: RefCell::default(),
            watchers: RefCell::default(),
            epoch: Cell::new(EPOCH),
            latest_epoch: Cell::new(EPOCH),
        }))
    }

    /// Looks at the master, or changes it, at this moment of its clock. For commands there is [`execute`](Self::execute).
    pub fn with<T>(&self, act: impl FnOnce(&mut Master) -> T) -> T {
        let mut master = self.0.master.borrow_mut();
        master.set_time(self.0.epoch.get() + micros());
        act(&mut master)
    }

    /// Runs a command of a client outside the simulation.
    #[expect(clippy::must_use_candidate, reason = "it is done for what it does")]
    pub fn execute(&self, words: &[&[u8]]) -> Reply {
        let (reply, outputs) = self.with(|master| master.execute(words));
        self.0
            .wire
            .trace
            .line("foreign", format_args!("{}", Words(words)));
        self.0.wire.with(|state| state.send_all(outputs));
        reply
    }

    /// Stops it, as a signal does: connections are accepted, and nothing is answered. What is sent to it waits.
    pub fn stop(&self) {
        self.set(Up::Stopped, "stopped");
    }

    /// Lets a stopped server go on.
    pub fn resume(&self) {
        if self.up() == Up::Stopped {
            self.set(Up::Yes, "goes on");
        }
    }

    /// Ends it: connections end when what was on its way has arrived, and new ones are refused until a
    /// [`restart`](Self::restart).
    pub fn crash(&self) {
        self.set(Up::No, "crashed");
        self.0.wire.with(|state| {
            for id in state.known_to(self.0.index) {
                state.close_from_server(id.0);
            }
        });
    }

    /// Starts it again after a crash, or in one go.
    pub fn restart(&self, keep_data: bool) {
        let how = if keep_data {
            "started"
        } else {
            "started empty"
        };
        self.start(how, |master| master.restart(keep_data));
    }

    /// As [`restart`](Self::restart), with a copy of its data of before.
    pub fn restart_with(&self, data: Data) {
        self.start("started with an older copy of its data", |master| {
            master.restart(true);
            master.replace(data);
        });
    }

    fn start(&self, how: &str, start: impl FnOnce(&mut Master)) {
        if self.up() != Up::No {
            self.crash();
        }
        self.with(start);
        self.set(Up::Yes, how);
    }

    /// Puts a copy of its data of before in the place of its data. Connections stay.
    pub fn replace(&self, data: Data) {
        self.note(format_args!("its data are replaced by an older copy"));
        self.with(|master| master.replace(data));
    }

    /// Another server is the master from now on, behind the same address, with the same data. The connections that are there
    /// stay with the one before, which refuses to write.
    pub fn demote(&self) {
        self.note(format_args!("demoted"));
        let there = self.0.wire.with(|state| state.known_to(self.0.index));
        self.0
            .demoted
            .borrow_mut()
            .extend(there.into_iter().map(|id| id.0));
    }

    /// Sets the clock of the master forward by this number of microseconds, or back.
    pub fn skew(&self, by: i64) {
        self.note(format_args!("its clock is another one, by {by} µs"));
        let epoch = self.0.epoch.get().saturating_add_signed(by);
        self.0.epoch.set(epoch);
        self.0
            .latest_epoch
            .set(epoch.max(self.0.latest_epoch.get()));
    }

    /// A number that was made by the clock of a master, no sooner than this in the time of the run.
    #[must_use]
    pub fn made(&self, number: u64) -> Duration {
        Duration::from_micros(number.saturating_sub(self.0.latest_epoch.get()))
    }

    /// The largest number that was made by the clock of a master until then.
    #[must_use]
    pub fn number(&self, at: Duration) -> u64 {
        let micros = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        self.0.latest_epoch.get().saturating_add(micros)
    }

    /// The address leads to a replica, which has none of the data yet, or to the master again. The connections that are there stay.
    pub fn lags(&self, lags: bool) {
        let what = if lags {
            "a replica, which lags"
        } else {
            "the master"
        };
        self.note(format_args!("its address leads to {what}"));
        let mut replica = self.0.replica.borrow_mut();
        let replica = replica.get_or_insert_with(|| Master::with_seed(EPOCH, 1));
        replica.faults().read_only = true;
        self.0.is_behind.set(lags);
    }

    /// Whether it answers.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up() == Up::Yes
    }

    fn up(&self) -> Up {
        self.0.wire.with(|state| state.up[self.0.index])
    }

    /// Shows each command to `watcher` when it arrives, before it is done.
    pub fn watch(&self, watcher: impl FnMut(&Command<'_>) + 'static) {
        self.0.watchers.borrow_mut().push(Box::new(watcher));
    }

    /// Shows each request to `observer` when it is done, before it and after it. The server must not be looked at meanwhile: the
    /// observer has the master.
    pub fn observe(&self, observer: Observer) {
        self.0.master.borrow_mut().observe(Some(observer));
    }

    /// Lets the watchers go at the end of a run: they may know the world that the server is a part of.
    pub(crate) fn is_over(&self) {
        self.0.watchers.take();
        self.0.master.borrow_mut().observe(None);
    }

    /// How many commands have arrived.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.0.commands.get()
    }

    /// How often each script has been called, by its name. A call that was repeated with the text counts twice.
    #[must_use]
    pub fn scripts(&self) -> BTreeMap<&'static str, u64> {
        self.0.scripts.borrow().clone()
    }

    /// What keeps messages from this process, though it is connected.
    #[must_use]
    pub fn deafness(&self, process: usize) -> Option<Deafness> {
        let open = self.0.wire.with(|state| state.open_of(process));
        let demoted = self.0.demoted.borrow();
        let behind = self.0.behind.borrow();
        if open
            .iter()
            .any(|id| demoted.contains(&id.0) || behind.contains(&id.0))
        {
            return Some(Deafness::LeftBehind);
        }
        let subscribed = self.with(|master| {
            let mut channels = open.iter().flat_map(|id| master.channels(id.0));
            channels.any(|channel| !channel.starts_with(LEADERS))
        });
        (!open.is_empty() && !subscribed).then_some(Deafness::Unsubscribed)
    }

    fn set(&self, up: Up, what: &str) {
        self.note(format_args!("{what}"));
        self.0.wire.with(|state| state.set_up(self.0.index, up));
    }

    fn note(&self, what: fmt::Arguments<'_>) {
        match self.0.index {
            0 => self.0.wire.trace.line("server", what),
            index => self.0.wire.trace.line(format_args!("server {index}"), what),
        }
    }

    pub(crate) fn connect(&self, id: u64) {
        if self.0.is_behind.get()
            && let Some(replica) = &mut *self.0.replica.borrow_mut()
        {
            replica.connect(id);
            self.0.behind.borrow_mut().insert(id);
            return;
        }
        self.with(|master| master.connect(id));
    }

    pub(crate) fn disconnect(&self, id: u64) {
        self.0.demoted.borrow_mut().remove(&id);
        if self.0.behind.borrow_mut().remove(&id)
            && let Some(replica) = &mut *self.0.replica.borrow_mut()
        {
            replica.disconnect(id);
            return;
        }
        self.with(|master| master.disconnect(id));
    }

    pub(crate) fn receive(&self, id: u64, bytes: &[u8]) -> Vec<Output> {
        if self.0.behind.borrow().contains(&id)
            && let Some(replica) = &mut *self.0.replica.borrow_mut()
        {
            replica.set_time(EPOCH + micros());
            return replica.receive(id, bytes);
        }
        let demoted = self.0.demoted.borrow();
        let mut outputs = self.with(|master| {
            let before = master.faults().read_only;
            master.faults().read_only |= demoted.contains(&id);
            let outputs = master.receive(id, bytes);
            master.faults().read_only = before;
            outputs
        });
        // A replica has no messages of its clients' for those of the master.
        outputs.retain(|output| {
            let (Output::Bytes(to, _) | Output::Close(to)) = output;
            *to == id || !demoted.contains(to)
        });
        outputs
    }

    pub(crate) fn saw(&self, command: &Command<'_>) {
        let commands = self.0.commands.get() + 1;
        self.0.commands.set(commands);
        self.0.meter.commands(commands);
        if let Some(script) = command.script() {
            *self.0.scripts.borrow_mut().entry(script).or_default() += 1;
        }
        for watcher in self.0.watchers.borrow_mut().iter_mut() {
            watcher(command);
        }
    }
}
