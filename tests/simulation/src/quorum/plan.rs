//! What a seed draws before a run over a quorum. All times are in milliseconds of virtual time.

use crate::network::{Cut, Delay, Way};
use crate::plan::{Call, Op};

/// A whole run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it was drawn from; the run draws its own random numbers from it, too.
    pub seed: u64,
    /// How many masters are asked. Behind them come those that will replace one.
    pub nodes: usize,
    /// The wait of a node that may have forgotten votes.
    pub wait: u64,
    /// Whether an operator begins the quorum, so that its first locks need not wait.
    pub begun: bool,
    /// By how much the clock of each node is another one, in microseconds.
    pub clocks: Vec<i64>,
    /// Of the network, when nothing is wrong.
    pub delay: Delay,
    /// The most milliseconds between a decision and its request; 0 for none.
    pub hesitation: u64,
    /// The slowest node, and how long bytes are under way to it and back.
    pub far: Option<(usize, Delay)>,
    /// Locks that everybody uses.
    pub keys: usize,
    /// Who uses them.
    pub processes: Vec<ProcessPlan>,
    /// What goes wrong, in the order of time.
    pub incidents: Vec<Incident>,
}

/// A process with one manager.
#[derive(Debug, Clone)]
pub struct ProcessPlan {
    /// Whether its connections have RESP2, so that its waiters poll.
    pub polls: bool,
    /// Of its manager.
    pub command_deadline: u64,
    /// What each of its tasks does, one after the other.
    pub tasks: Vec<Vec<Op>>,
}

/// A fault at its time.
#[derive(Debug, Clone)]
pub struct Incident {
    /// When it begins.
    pub at: u64,
    /// How long it lasts, where it lasts.
    pub lasts: u64,
    /// What it is.
    pub fault: Fault,
}

/// What a renewal that is under way meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Met {
    /// The end of its connection.
    Reset,
    /// An answer that is late.
    Stall,
}

/// A fault. Processes and nodes are named by their numbers; of two the process is the first.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// The connections of a process to a node break.
    Reset(usize, usize),
    /// They break, and new ones are refused while it lasts.
    Outage(usize, usize),
    /// One of them breaks at a point of the next request.
    Cut(usize, usize, Cut),
    /// Its bytes are held back.
    Stall(usize, usize, Way),
    /// They break, and what was sent on them arrives after it.
    Late(usize, usize),
    /// What is sent on them arrives later; new ones work.
    Lag(usize, usize),
    /// As `Late`, of a process to all nodes.
    AllLate(usize),
    /// They stay silent for ever; new ones work.
    HalfOpen(usize, usize),
    /// Bytes to and from a node take longer while it lasts.
    Slow(usize, Delay),
    /// The same of a majority, whose first node this is.
    MostSlow(usize, Delay),
    /// The next renewal of a process meets a link that breaks, or that holds back what the node answers while it lasts.
    AtRenewal(usize, usize, Met),
    /// The tasks of a process are not polled.
    Pause(usize),
    /// Its tasks are polled up to this number of milliseconds late, each by itself.
    Stutter(usize, u64),
    /// A process ends without a word. After a while it is started again.
    Crash(usize, bool),
    /// A manager is shut down.
    ShutDown(usize),
    /// A node answers nothing.
    Stop(usize),
    /// A node ends, and is started again with its data or without.
    Restart(usize, bool),
    /// The address of a node leads to an empty server. The old one ends after a while.
    Replace(usize),
    /// As that, and a process is refused by the new one while the old one is there.
    Hide(usize, usize),
    /// A node forgets all.
    Flush(usize),
    /// A node forgets the scripts.
    FlushScripts(usize),
    /// A node has no memory left.
    OutOfMemory(usize),
    /// The clock of a node jumps ahead by this number of milliseconds, and stays ahead.
    Clock(usize, u64),
}

impl Fault {
    /// Whether an address leads to another server from then on.
    #[must_use]
    pub fn replaces(&self) -> bool {
        matches!(self, Self::Replace(_) | Self::Hide(..))
    }
}

impl Plan {
    /// How many servers there are: the nodes, and one for each that is replaced.
    #[must_use]
    pub fn servers(&self) -> usize {
        let replaced = self.incidents.iter().filter(|it| it.fault.replaces());
        self.nodes + replaced.count()
    }

    /// The node whose clock jumps, if one does.
    #[must_use]
    pub fn jumping(&self) -> Option<usize> {
        self.incidents.iter().find_map(|it| match it.fault {
            Fault::Clock(node, _) => Some(node),
            _ => None,
        })
    }

    /// What all tasks do.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        let tasks = self.processes.iter().flat_map(|process| &process.tasks);
        tasks.flatten()
    }

    /// Whether links break, or fall silent.
    #[must_use]
    pub fn breaks_links(&self) -> bool {
        let mut faults = self.incidents.iter();
        faults.any(|it| {
            matches!(
                it.fault,
                Fault::Reset(..)
                    | Fault::Outage(..)
                    | Fault::Cut(..)
                    | Fault::Stall(..)
                    | Fault::Late(..)
                    | Fault::AllLate(_)
                    | Fault::Lag(..)
                    | Fault::HalfOpen(..)
                    | Fault::AtRenewal(..)
                    | Fault::Stop(_)
            )
        })
    }

    /// Whether requests arrive soon after they are sent.
    #[must_use]
    pub fn is_prompt(&self) -> bool {
        self.hesitation == 0
            && !self.incidents.iter().any(|it| {
                matches!(
                    it.fault,
                    Fault::Stall(..)
                        | Fault::Late(..)
                        | Fault::AllLate(_)
                        | Fault::Lag(..)
                        | Fault::Stop(_)
                        | Fault::Pause(_)
                        | Fault::Stutter(..)
                        | Fault::Slow(..)
                        | Fault::MostSlow(..)
                )
            })
    }

    /// Whether a lock may be taken from its holder: by force, or since nodes lose votes.
    #[must_use]
    pub fn takes_locks(&self) -> bool {
        let loses = |it: &Incident| {
            matches!(
                it.fault,
                Fault::Restart(..)
                    | Fault::Replace(_)
                    | Fault::Hide(..)
                    | Fault::Flush(_)
                    | Fault::Clock(..)
            )
        };
        self.ops().any(|op| op.call == Call::Force) || self.incidents.iter().any(loses)
    }

    /// How long bytes are under way to a node and back, when nothing is wrong.
    #[must_use]
    pub fn delay_of(&self, node: usize) -> Delay {
        let far = self.far.filter(|(far, _)| *far == node);
        far.map_or(self.delay, |(_, delay)| delay)
    }

    /// The longest that bytes are under way, when nothing is wrong.
    #[must_use]
    pub fn slowest(&self) -> u64 {
        let far = self.far.map_or(0, |(_, delay)| delay.most);
        far.max(self.delay.most) + self.hesitation
    }

    /// The majority that begins with this node.
    pub fn most(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let nodes = self.nodes;
        (first..=first + nodes / 2).map(move |node| node % nodes)
    }

    /// Whether the wait is too short for what is asked for.
    #[must_use]
    pub fn is_too_long(&self, op: &Op) -> bool {
        op.ttl > self.wait / 2
    }

    /// The longest ttl that is granted.
    #[must_use]
    pub fn longest_ttl(&self) -> u64 {
        let granted = self.ops().filter(|op| !self.is_too_long(op));
        granted.map(|op| op.ttl).max().unwrap_or(0)
    }

    /// Whether the manager of a process is shut down.
    #[must_use]
    pub fn ends(&self, process: usize) -> bool {
        let ends = |it: &Incident| it.fault == Fault::ShutDown(process);
        self.incidents.iter().any(ends)
    }
}
