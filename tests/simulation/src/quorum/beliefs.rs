//! Guards that believe in their lock.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::LockView;

use super::nodes::Nodes;
use crate::world::World;

/// A guard, by its number in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BeliefId(u64);

/// A guard that was returned.
pub(super) struct Belief {
    /// The lock on the nodes.
    pub(super) name: String,
    pub(super) process: usize,
    pub(super) view: LockView,
    /// When its call began.
    pub(super) asked: Duration,
    /// What a leader has campaigned with.
    pub(super) value: Option<String>,
    pub(super) begun: Duration,
}

#[derive(Default)]
pub(super) struct Beliefs {
    all: BTreeMap<BeliefId, Belief>,
    next: u64,
    /// The largest fencing token that a guard of each lock was given.
    fences: BTreeMap<String, u64>,
    /// When each lock was last taken from its holder.
    forced: BTreeMap<String, Duration>,
    /// When a vote was first asked for, for each acquisition: it may be passed on within its process.
    voted: BTreeMap<(String, u64), Duration>,
}

/// A leader is named within this time of a calm.
const NAMED_WITHIN: Duration = Duration::from_secs(3);

/// What a token says of its acquisition: the client, and the number without the edition.
pub(super) fn acquisition(token: &[u8]) -> Option<(String, u64)> {
    let text = std::str::from_utf8(token).ok()?;
    let mut parts = text.splitn(3, ':');
    let (client, number) = (parts.next()?, parts.next()?);
    let number: u64 = number.parse().ok()?;
    Some((client.to_owned(), number & ((1 << 48) - 1)))
}

impl Belief {
    fn fence(&self) -> u64 {
        self.view.fencing_token().get()
    }

    fn is_its(&self, value: &[u8]) -> bool {
        let token = self.view.token().unwrap_or_default();
        acquisition(value).is_some_and(|it| Some(it) == acquisition(token.as_bytes()))
    }

    /// The lock is kept by a majority for as long as it believes.
    fn check_majority(&self, world: &World, nodes: &Nodes) {
        let left = self.view.remaining().as_micros();
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        if left == 0 {
            return;
        }
        let backing = nodes.backing(world, &self.name, |value| self.is_its(value), left);
        if backing * 2 <= nodes.count() {
            let what = format!(
                "{}: p{} (fence {}) believes for another {left} µs, and {backing} nodes keep it",
                self.name,
                self.process,
                self.fence()
            );
            world.find("majority", what);
        }
    }

    /// No majority has the vote of a lease that is gone.
    fn check_gone(&self, world: &World, nodes: &Nodes) {
        let keeping = nodes.keeping(world, &self.name, |value| self.is_its(value));
        if keeping * 2 > nodes.count() {
            let (name, process) = (&self.name, self.process);
            let what = format!("{name}: p{process} has lost it, and {keeping} nodes keep it");
            world.find("gone", what);
        }
    }

    /// A majority names the leader.
    fn check_named(&self, world: &World, nodes: &Nodes) {
        let key = format!("lock-core:leader:{{{}}}", self.name);
        let is_told = |node: &usize| {
            world.servers()[nodes.server(*node)].with(|master| {
                let record = master.string(key.as_bytes()).unwrap_or_default();
                let text = String::from_utf8_lossy(record).into_owned();
                let mut words = text.splitn(3, ' ');
                let (token, term, value) = (words.next(), words.next(), words.next());
                token.is_some_and(|token| self.is_its(token.as_bytes()))
                    && term == Some(&*self.fence().to_string())
                    && value == self.value.as_deref()
            })
        };
        let named = (0..nodes.count()).filter(is_told).count();
        if named * 2 <= nodes.count() {
            let what = format!(
                "{}: p{} leads since {:?}, and {named} nodes name it",
                self.name, self.process, self.begun
            );
            world.find("leader", what);
        }
    }
}

impl Beliefs {
    /// A guard was returned. `None` if it was lost by then.
    pub(super) fn begin(&mut self, world: &World, nodes: &Nodes, new: Belief) -> Option<BeliefId> {
        if !new.view.is_held() {
            return None;
        }
        if !self.is_excused(&new) {
            let others = self.all.values().filter(|other| {
                other.name == new.name && other.view.is_held() && !self.is_excused(other)
            });
            for other in others {
                let show = |it: &Belief| {
                    let left = it.view.remaining();
                    format!("p{} (fence {}, {left:?} left)", it.process, it.fence())
                };
                let what = format!("{}: {} and {}", new.name, show(other), show(&new));
                world.find("two believers", what);
            }
            let (before, fence) = (self.fences.get(&new.name).copied(), new.fence());
            if before.is_some_and(|before| fence <= before) {
                let what = format!(
                    "{}: {before:?}, and then p{} with {fence}",
                    new.name, new.process
                );
                world.find("fence", what);
            }
            new.check_majority(world, nodes);
        }
        let largest = self.fences.entry(new.name.clone()).or_default();
        *largest = new.fence().max(*largest);
        self.next += 1;
        self.all.insert(BeliefId(self.next), new);
        Some(BeliefId(self.next))
    }

    pub(super) fn end(&mut self, id: BeliefId) {
        self.all.remove(&id);
    }

    pub(super) fn crashed(&mut self, process: usize) {
        self.all.retain(|_, belief| belief.process != process);
    }

    /// A lock may have been taken from its holder.
    pub(super) fn forced(&mut self, name: &str, now: Duration) {
        self.forced.insert(name.to_owned(), now);
    }

    /// A node is asked for a vote.
    pub(super) fn asks(&mut self, token: &[u8], now: Duration) {
        if let Some(acquisition) = acquisition(token) {
            self.voted.entry(acquisition).or_insert(now);
        }
    }

    /// Whether the lock may have been taken from this one.
    fn is_excused(&self, belief: &Belief) -> bool {
        let token = belief.view.token().unwrap_or_default();
        let voted = acquisition(token.as_bytes()).and_then(|it| self.voted.get(&it));
        let since = voted.map_or(belief.asked, |voted| belief.asked.min(*voted));
        let forced = self.forced.get(&belief.name);
        forced.is_some_and(|at| *at >= since)
    }

    pub(super) fn is_excused_by(&self, id: BeliefId) -> bool {
        self.all
            .get(&id)
            .is_none_or(|belief| self.is_excused(belief))
    }

    /// Whether a guard believes that it has this vote.
    pub(super) fn has(&self, name: &str, value: &[u8]) -> bool {
        let mut all = self.all.values();
        all.any(|it| it.name == name && it.view.is_held() && it.is_its(value))
    }

    /// Whether a guard believes in this lock.
    pub(super) fn is_believed(&self, name: &str) -> bool {
        let mut all = self.all.values();
        all.any(|it| it.name == name && it.view.is_held())
    }

    /// A guard was told that its lease is gone.
    pub(super) fn check_gone(&self, world: &World, nodes: &Nodes, id: BeliefId) {
        let belief = self.all.get(&id).filter(|it| !self.is_excused(it));
        if let Some(belief) = belief {
            belief.check_gone(world, nodes);
        }
    }

    /// Looks at every guard that is there.
    pub(super) fn look(&self, world: &World, nodes: &Nodes, calm: Duration) {
        let now = world.now();
        for belief in self.all.values() {
            if !belief.view.is_held() || self.is_excused(belief) {
                continue;
            }
            belief.check_majority(world, nodes);
            let lasts = now.saturating_sub(belief.begun).min(calm);
            if belief.value.is_some() && lasts > NAMED_WITHIN {
                belief.check_named(world, nodes);
            }
        }
    }
}
