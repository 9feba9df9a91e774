//! Turns: a process hands a lock on to its own callers only so often while another process waits for it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::world::World;

/// The guard that begins a turn, and one that was given before its process could hear of who waits.
const MORE: u32 = 2;

/// A lock that its process kept is asked for again within this time.
const LATELY: Duration = Duration::from_secs(9);

/// How a process shares a lock.
#[derive(Debug, Clone, Copy)]
pub struct Sharing {
    /// How often it may hand the lock on to its own callers.
    pub limit: u32,
    /// Whether it stands in the server's queue all the while that it waits.
    pub queues: bool,
    /// Whether the server is to push what it waits for.
    pub pushes: bool,
    /// Whether it may go, or let its turn go by, without the knowledge of the server.
    pub vanishes: bool,
}

#[derive(Debug)]
pub(super) struct Turns {
    processes: Vec<Sharing>,
    /// Who had each lock last, and how often in a row.
    rows: BTreeMap<String, (usize, u32)>,
    /// When each process was last given each lock.
    had: BTreeMap<(String, usize), Duration>,
}

impl Turns {
    pub(super) fn new(processes: Vec<Sharing>) -> Self {
        Self {
            processes,
            rows: BTreeMap::new(),
            had: BTreeMap::new(),
        }
    }

    /// Those that the server is to push to.
    pub(super) fn pushed(&self) -> impl Iterator<Item = usize> {
        let all = self.processes.iter().enumerate();
        all.filter(|(_, it)| it.pushes).map(|(index, _)| index)
    }

    /// Whether the server can know of each waiter that has gone, or that one polls.
    pub(super) fn none_vanishes(&self) -> bool {
        !self.processes.iter().any(|it| it.vanishes)
    }

    pub(super) fn queues(&self, process: usize) -> bool {
        self.processes.get(process).is_some_and(|it| it.queues)
    }

    /// Whether a process that waits for a lock has had it so lately that its waiters may still stand behind one of its own.
    pub(super) fn had_lately(&self, name: &str, process: usize, now: Duration) -> bool {
        let had = self.had.get(&(name.to_owned(), process));
        had.is_some_and(|at| now.saturating_sub(*at) < LATELY)
    }

    /// A process was given a lock. `is_awaited` is whether another one has waited for it so long, in a calm, that this one knows.
    pub(super) fn granted(
        &mut self,
        world: &World,
        name: &str,
        process: usize,
        is_awaited: bool,
        now: Duration,
    ) {
        self.had.insert((name.to_owned(), process), now);
        let row = self.rows.entry(name.to_owned()).or_insert((process, 0));
        if row.0 != process || !is_awaited {
            *row = (process, 0);
        }
        row.1 += u32::from(is_awaited);
        let limit = self.processes.get(process).map_or(0, |it| it.limit);
        if row.1 > limit.saturating_add(MORE) {
            let times = row.1;
            world.find(
                "turns",
                format!(
                    "{name}: p{process} has it for the {times}th time in a row, and another waits"
                ),
            );
        }
    }
}
