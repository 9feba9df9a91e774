//! Everything of a session that is under way: contenders, lines, and when to ask for whom.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::contender::Contender;
use crate::key::LockKey;
use crate::owner::Owner;
use crate::queue::{Line, LineCheck, PAUSE, Way};
use crate::time::Moment;

#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) contenders: HashMap<u64, Arc<Contender>, BuildHasherDefault<OneWord>>,
    /// Where somebody waits or holds, and nowhere else: nothing grows with the keys ever used.
    locks: HashMap<Arc<LockKey>, Presence, BuildHasherDefault<OneWord>>,
    /// Lines whose contender is to be asked for, by when.
    checks: BTreeMap<(Moment, u64), Weak<Line>>,
    next_check: u64,
    /// What is known of other processes that want a lock which a task here has let go a moment ago, and until when that matters.
    ways: HashMap<Arc<LockKey>, (Moment, Way), BuildHasherDefault<OneWord>>,
    /// Tokens that hold a lock for nobody, because it was to be kept for a while.
    kept: HashMap<u64, Moment>,
    pub(super) closing: bool,
}

/// What this process has to do with a lock.
#[derive(Debug)]
enum Presence {
    /// A guard has it, and nobody else here wants it: there may be thousands of these.
    Holder(Arc<Contender>),
    Line(Arc<Line>),
}

impl Presence {
    fn is(&self, line: &Arc<Line>) -> bool {
        matches!(self, Self::Line(known) if Arc::ptr_eq(known, line))
    }

    /// Takes the contender out. True where nobody is left.
    fn is_over_without(&self, contender: &Arc<Contender>) -> bool {
        match self {
            Self::Line(line) => {
                line.gone(contender);
                line.is_idle()
            }
            // Guards of the same owner may still have the lease.
            Self::Holder(holder) => {
                holder.shares_lease_with(contender) && contender.is_lease_over()
            }
        }
    }
}

/// Places sequence numbers, which we make ourselves, and keys, which bring a hash that nobody can foresee.
///
/// The table takes the place from the low end of a hash and tells places apart by the high end. A few sequence numbers in a row
/// have places in a row: whoever goes through all contenders finds them about in the order of memory (see
/// [`sweep`](super::task)). Only a few, so that those that are held for long are no wall before those that come after them.
#[derive(Default)]
pub(super) struct OneWord(u64);

/// So many bits of a sequence number are a place within its row.
const ROW: u32 = 6;

impl Hasher for OneWord {
    fn write_u64(&mut self, word: u64) {
        // Knuth's multiplicative hash: 2^64 over the golden ratio.
        let spread = |word: u64| word.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let row = spread(word >> ROW);
        let place = ((row ^ (row >> 32)) << ROW) | (word & ((1 << ROW) - 1));
        self.0 = place ^ (spread(word) >> 57 << 57);
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("sequence numbers and keys are one word")
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Registry {
    /// The line of a lock, made if there is none.
    pub(super) fn line(&mut self, key: &Arc<LockKey>) -> Arc<Line> {
        match self.locks.entry(Arc::clone(key)) {
            Entry::Occupied(mut entry) => {
                let line = match entry.get() {
                    Presence::Line(line) => return Arc::clone(line),
                    Presence::Holder(holder) => Line::behind(Arc::clone(key), holder),
                };
                entry.insert(Presence::Line(Arc::clone(&line)));
                line
            }
            Entry::Vacant(entry) => {
                let way = self.ways.remove(key).map(|(_, way)| way);
                let line = Line::new(Arc::clone(key), way.unwrap_or_default());
                entry.insert(Presence::Line(Arc::clone(&line)));
                line
            }
        }
    }

    /// A task has let go, and may come back at once: then it gives way to others.
    pub(super) fn keep_way(&mut self, key: &Arc<LockKey>, now: Moment, way: Way) {
        self.ways.retain(|_, (until, _)| *until > now);
        self.ways.insert(Arc::clone(key), (now + PAUSE, way));
    }

    /// For how long it is the turn of other processes to ask for this lock.
    pub(super) fn gives_way(&self, key: &LockKey, now: Moment) -> Option<Duration> {
        match self.existing_line(key) {
            Some(line) => line.gives_way(now),
            None => self.ways.get(key)?.1.pause(now),
        }
    }

    pub(super) fn existing_line(&self, key: &LockKey) -> Option<&Arc<Line>> {
        match self.locks.get(key) {
            Some(Presence::Line(line)) => Some(line),
            _ => None,
        }
    }

    /// Who has the lock for this owner in this process.
    pub(super) fn holder_for(&self, key: &LockKey, owner: &Owner) -> Option<Arc<Contender>> {
        match self.locks.get(key)? {
            Presence::Line(line) => line.holder_for(owner),
            Presence::Holder(holder) => holder.is_for(owner).then(|| Arc::clone(holder)),
        }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &Arc<Line>> {
        self.locks.values().filter_map(|presence| match presence {
            Presence::Line(line) => Some(line),
            Presence::Holder(_) => None,
        })
    }

    /// Nobody but the holder needs this line for now: only the holder is remembered.
    pub(super) fn rest(&mut self, line: &Arc<Line>) {
        if let Some(holder) = line.lone_holder()
            && let Some(presence) = self.locks.get_mut(&*line.key)
            && presence.is(line)
        {
            holder.stands_for(Weak::new());
            let gone = std::mem::replace(presence, Presence::Holder(holder));
            self.uncheck(&gone);
        }
    }

    /// This contender has the lock no longer, or will not get it. Whoever is first in line asks anew: in the line of the
    /// key, which need not be the one that the contender came from.
    pub(super) fn gone(&mut self, contender: &Arc<Contender>) {
        if let Entry::Occupied(entry) = self.locks.entry(Arc::clone(&contender.key))
            && entry.get().is_over_without(contender)
        {
            let gone = entry.remove();
            self.uncheck(&gone);
        }
    }

    /// Nothing of this contender is left to be done.
    pub(super) fn forget(&mut self, contender: &Arc<Contender>) {
        self.gone(contender);
        self.contenders.remove(&contender.sequence);
    }

    /// Forgets a line that nobody stands in and whose lock nobody here holds.
    pub(super) fn tidy(&mut self, line: &Arc<Line>) {
        if line.is_idle()
            && let Entry::Occupied(entry) = self.locks.entry(Arc::clone(&line.key))
            && entry.get().is(line)
        {
            let gone = entry.remove();
            self.uncheck(&gone);
        }
    }

    /// Nobody waits in a line any more.
    fn uncheck(&mut self, gone: &Presence) {
        if let Presence::Line(line) = gone
            && let Some(check) = line.take_check()
        {
            self.checks.remove(&check);
        }
    }

    /// Looks at this line at `moment` or before. Returns when the next look at any line is, if this changes it.
    pub(super) fn check_at(&mut self, line: &Arc<Line>, moment: Moment) -> Option<Moment> {
        if line.is_checked_by(moment) {
            return None;
        }
        self.next_check += 1;
        if let Some(replaced) = line.check_at(moment, self.next_check) {
            self.checks.remove(&replaced);
        }
        self.checks
            .insert((moment, self.next_check), Arc::downgrade(line));
        self.first_check()
    }

    /// What is to be done now for lines whose time has come.
    pub(super) fn due(
        &mut self,
        now: Moment,
        limit: Duration,
    ) -> Vec<(Arc<Line>, Option<LineCheck>)> {
        let mut due = Vec::new();
        while let Some(first) = self.checks.first_entry() {
            if first.key().0 > now {
                break;
            }
            if let Some(line) = first.remove().upgrade() {
                let what = line.due(now, limit);
                due.push((line, what));
            }
        }
        due
    }

    pub(super) fn first_check(&self) -> Option<Moment> {
        self.checks.first_key_value().map(|((at, _), _)| *at)
    }

    /// This token goes on holding its lock until then.
    pub(super) fn keep(&mut self, sequence: u64, now: Moment, until: Moment) {
        self.kept.retain(|_, until| *until > now);
        self.kept.insert(sequence, until);
    }

    pub(super) fn is_kept(&self, sequence: u64, now: Moment) -> bool {
        self.kept.get(&sequence).is_some_and(|until| *until > now)
    }
}
