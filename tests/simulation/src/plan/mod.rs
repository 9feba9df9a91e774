//! What a seed draws before its run: who does what when, and what goes wrong. A plan is data, so a run can be repeated with
//! parts of it left out.

pub(crate) mod chance;
mod draw;
mod fault;
mod floor;
mod op;

pub use self::draw::draw;
pub use self::fault::{Counter, Fault, Incident};
pub use self::op::{Attention, Call, End, Kind, Op, WRITER};

use crate::network::Delay;

/// A whole run. All times are in milliseconds of virtual time.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it was drawn from; the run draws its own random numbers from it, too.
    pub seed: u64,
    /// Of the network, when nothing is wrong.
    pub delay: Delay,
    /// How often bytes that are sent together arrive in two parts, in percent.
    pub split: u8,
    /// Locks that everybody uses.
    pub keys: usize,
    /// How many owners of reentrant locks there are, which all processes share; none where each operation has its own.
    pub shared_owners: u64,
    /// Who uses them.
    pub processes: Vec<ProcessPlan>,
    /// What goes wrong, in the order of time.
    pub incidents: Vec<Incident>,
}

/// A process with one manager.
#[derive(Debug, Clone)]
pub struct ProcessPlan {
    /// How it is connected.
    pub connection: Connection,
    /// Of its manager.
    pub command_deadline: u64,
    /// Of its manager.
    pub handover_limit: u32,
    /// Of its manager, in percent.
    pub jitter: u8,
    /// Whether the tasks run on another runtime than the manager.
    pub apart: bool,
    /// What each of its tasks does, one after the other.
    pub tasks: Vec<Vec<Op>>,
}

/// How a manager is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// As by a URL: the server pushes.
    Push,
    /// With RESP2: waiters poll.
    Resp2,
    /// Over a connection of the user: waiters poll.
    User,
}

impl Plan {
    /// Whether the manager of this process is ended.
    #[must_use]
    pub fn ends(&self, process: usize) -> bool {
        let ends = |fault: &Fault| matches!(fault, Fault::ShutDown(it) | Fault::EndRuntime(it) if *it == process);
        self.incidents.iter().any(|incident| ends(&incident.fault))
    }

    /// Whether this process may go without that the server hears the end of its connections.
    #[must_use]
    pub fn vanishes(&self, process: usize) -> bool {
        let is_silent = |fault: &Fault| matches!(fault, Fault::HalfOpen(it) | Fault::Stall(it, _) if *it == process);
        let crashes = |fault: &Fault| matches!(fault, Fault::Crash(it, _) if *it == process);
        self.has(|fault| matches!(fault, Fault::Crash(it, true) if *it == process))
            || (self.ends(process) || self.has(crashes)) && self.has(is_silent)
    }

    fn has(&self, is: impl Fn(&Fault) -> bool) -> bool {
        self.incidents.iter().any(|incident| is(&incident.fault))
    }

    /// Whether it has locks that several may hold.
    #[must_use]
    pub fn has_shared(&self) -> bool {
        self.ops().any(|op| op.kind.is_shared())
    }

    /// Whether the semaphore with this number is used with several numbers of permits.
    #[must_use]
    pub fn has_other_max(&self, key: usize) -> bool {
        let max_of = |op: &Op| match op.kind {
            Kind::Semaphore { max, .. } if op.key == key => Some(max),
            _ => None,
        };
        let mut all = self.ops().filter_map(max_of);
        let first = all.next();
        all.any(|max| Some(max) != first)
    }

    /// Whether it has locks that are asked for together.
    #[must_use]
    pub fn has_all(&self) -> bool {
        self.ops().any(|op| matches!(op.kind, Kind::All(_)))
    }

    /// How many terms its elections have at the most, where nothing goes wrong.
    #[must_use]
    pub fn most_terms(&self) -> u64 {
        let campaigns = self.ops().filter_map(|op| match (op.kind, op.call) {
            (Kind::Candidate { .. }, Call::With) => Some(2),
            (Kind::Candidate { .. }, _) => Some(1),
            _ => None,
        });
        campaigns.sum()
    }

    fn ops(&self) -> impl Iterator<Item = &Op> {
        let tasks = self.processes.iter().flat_map(|process| &process.tasks);
        tasks.flatten()
    }

    /// How many operations it has.
    #[must_use]
    pub fn operations(&self) -> usize {
        let tasks = self.processes.iter().flat_map(|process| &process.tasks);
        tasks.map(Vec::len).sum()
    }

    /// The shortest ttl that is asked for.
    #[must_use]
    pub fn shortest_ttl(&self) -> u64 {
        self.ops().map(|op| op.ttl).min().unwrap_or(0)
    }

    /// The longest ttl that is asked for, with its jitter.
    #[must_use]
    pub fn longest_ttl(&self) -> u64 {
        let of = |process: &ProcessPlan| {
            let ops = process.tasks.iter().flatten();
            let longest = ops.map(|op| op.ttl.max(op.at_least)).max().unwrap_or(0);
            longest + longest * u64::from(process.jitter) / 100
        };
        self.processes.iter().map(of).max().unwrap_or(0)
    }
}
