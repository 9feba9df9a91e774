//! What is wrong with the world at the moment, and since when nothing is.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Which faults are there. What a checker expects of a healthy world it expects only after a calm.
#[derive(Debug, Default)]
pub struct Weather {
    active: Cell<u32>,
    calm_since: Cell<Duration>,
    /// Processes whose connection is silent, or that do not run.
    absent: RefCell<BTreeMap<usize, u32>>,
    any: Cell<bool>,
    /// As these, but for managers that are ended in order: what they promise then, they promise all the same.
    troubles: Cell<u32>,
    troubled_at: Cell<Option<Duration>>,
    /// As `active` and `calm_since`, without the faults that cost no lease its renewal.
    harsh: Cell<u32>,
    gentle_since: Cell<Duration>,
    /// Processes whose manager's runtime has ended.
    ended: RefCell<BTreeSet<usize>>,
    /// When a process first heard that its server is a replica now.
    demoted: RefCell<BTreeMap<usize, Duration>>,
}

/// A connection to a server that has become a replica is replaced within this time.
const REPLACED: Duration = Duration::from_millis(1_500);

impl Weather {
    /// Something is wrong from now on.
    pub fn begins(&self, now: Duration) {
        self.troubles.set(self.troubles.get() + 1);
        self.troubled_at.set(Some(now));
        self.closing(now);
    }

    /// One thing less is wrong.
    pub fn ends(&self, now: Duration) {
        self.troubles.set(self.troubles.get().saturating_sub(1));
        self.troubled_at.set(Some(now));
        self.closed(now);
    }

    /// Something is wrong from now on that costs no lease its renewal.
    pub fn strains(&self, now: Duration) {
        self.troubles.set(self.troubles.get() + 1);
        self.troubled_at.set(Some(now));
        self.wrong(now);
    }

    /// One thing less is.
    pub fn relents(&self, now: Duration) {
        self.troubles.set(self.troubles.get().saturating_sub(1));
        self.troubled_at.set(Some(now));
        self.right(now);
    }

    /// A manager is being ended in order, from now on.
    pub fn closing(&self, now: Duration) {
        self.harsh.set(self.harsh.get() + 1);
        self.gentle_since.set(now);
        self.wrong(now);
    }

    fn wrong(&self, now: Duration) {
        self.any.set(true);
        self.active.set(self.active.get() + 1);
        self.calm_since.set(now);
    }

    /// It has ended.
    pub fn closed(&self, now: Duration) {
        self.harsh.set(self.harsh.get().saturating_sub(1));
        self.gentle_since.set(now);
        self.right(now);
    }

    fn right(&self, now: Duration) {
        self.active.set(self.active.get().saturating_sub(1));
        self.calm_since.set(now);
    }

    /// The runtime of this process's manager has ended, and the tasks of others go on.
    pub fn runtime_ended(&self, process: usize, now: Duration) {
        self.ended.borrow_mut().insert(process);
        self.closing(now);
        self.closed(now);
    }

    /// This process has a new manager.
    pub fn begins_anew(&self, process: usize) {
        self.ended.borrow_mut().remove(&process);
    }

    /// Whether the runtime of this process's manager has ended.
    #[must_use]
    pub fn has_ended(&self, process: usize) -> bool {
        self.ended.borrow().contains(&process)
    }

    /// Whether nothing was wrong since then but that managers were ended in order.
    #[must_use]
    pub fn was_fair_since(&self, moment: Duration) -> bool {
        self.troubles.get() == 0 && self.troubled_at.get().is_none_or(|at| at < moment)
    }

    /// Something happened, and is over.
    pub fn shaken(&self, now: Duration) {
        self.begins(now);
        self.ends(now);
    }

    /// This process does not answer, which is wrong for it alone.
    pub fn leaves(&self, process: usize) {
        *self.absent.borrow_mut().entry(process).or_default() += 1;
    }

    /// It does again.
    pub fn returns(&self, process: usize) {
        if let Some(count) = self.absent.borrow_mut().get_mut(&process) {
            *count = count.saturating_sub(1);
        }
    }

    /// Another server is the master from now on.
    pub fn demoted(&self) {
        self.demoted.borrow_mut().clear();
    }

    /// Whether a process may still be told that its server is a replica.
    pub fn may_be_demoted(&self, process: usize, now: Duration) -> bool {
        let mut demoted = self.demoted.borrow_mut();
        let first = *demoted.entry(process).or_insert(now);
        now <= first + REPLACED
    }

    /// How many things keep this process from answering.
    #[must_use]
    pub fn absences(&self, process: usize) -> u32 {
        self.absent.borrow().get(&process).copied().unwrap_or(0)
    }

    /// Whether this process runs.
    #[must_use]
    pub fn is_there(&self, process: usize) -> bool {
        self.absences(process) == 0
    }

    /// Whether some process does not answer.
    #[must_use]
    pub fn is_any_absent(&self) -> bool {
        self.absent.borrow().values().any(|count| *count > 0)
    }

    /// For how long nothing has been wrong.
    #[must_use]
    pub fn calm(&self, now: Duration) -> Duration {
        if self.active.get() > 0 {
            Duration::ZERO
        } else {
            now.saturating_sub(self.calm_since.get())
        }
    }

    /// Whether every lease could be renewed since then.
    #[must_use]
    pub fn was_gentle_since(&self, moment: Duration) -> bool {
        self.harsh.get() == 0 && (!self.any.get() || self.gentle_since.get() < moment)
    }

    /// Whether anything was wrong since then.
    #[must_use]
    pub fn was_calm_since(&self, moment: Duration) -> bool {
        self.active.get() == 0 && (!self.any.get() || self.calm_since.get() < moment)
    }
}
