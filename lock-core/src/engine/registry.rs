//! The registry of an engine: its acquisitions, its lines, and their scheduled checks.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::acquisition::Acquisition;
use super::line::Line;
use super::line_state::LineCheck;
use super::released::{LastReleases, ReleasedLately};
use super::yield_turn::{PAUSE, YieldTurn};
use crate::base::key::LockKey;
use crate::base::owner::Owner;
use crate::base::time::Moment;

#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) acquisitions: HashMap<u64, Arc<Acquisition>, BuildHasherDefault<OneWord>>,
    /// Only locks that have a waiter or a holder in this process, so that nothing grows with the keys ever used.
    locks: HashMap<Arc<LockKey>, LocalUse, BuildHasherDefault<OneWord>>,
    /// Lines by the moment of their next check, which asks for their acquisition.
    checks: BTreeMap<(Moment, u64), Weak<Line>>,
    next_check: u64,
    /// Knowledge about other processes that want a lock which a task of this process released a moment ago, and its expiry.
    yields: HashMap<Arc<LockKey>, (Moment, YieldTurn), BuildHasherDefault<OneWord>>,
    /// Tokens that hold a lock without a guard, because the lock must be kept for a while, and until when.
    kept: HashMap<u64, Moment>,
    /// Tokens whose locks no task releases any more, because its runtime has ended, and until when the locks stay.
    stranded: HashMap<u64, Moment>,
    /// Locks whose release the task has yet to send or to hear of, and the acquisition that is released.
    releasing: HashMap<Arc<LockKey>, u64, BuildHasherDefault<OneWord>>,
    last_releases: LastReleases,
    pub(super) closing: bool,
}

/// The use of a lock in this process.
#[derive(Debug)]
enum LocalUse {
    /// A guard has the lock, and nothing else here needs it: there may be thousands of these.
    Holder(Arc<Acquisition>),
    Line(Arc<Line>),
}

impl LocalUse {
    fn is(&self, line: &Arc<Line>) -> bool {
        matches!(self, Self::Line(known) if Arc::ptr_eq(known, line))
    }

    /// Removes the acquisition. Returns true if nothing is left.
    fn is_over_without(&self, acquisition: &Arc<Acquisition>) -> bool {
        match self {
            Self::Line(line) => {
                line.gone(acquisition);
                line.is_idle()
            }
            // Other guards of the same owner may still have the lease.
            Self::Holder(holder) => {
                holder.shares_lease_with(acquisition) && acquisition.is_lease_over()
            }
        }
    }
}

/// Hashes sequence numbers, which this process makes itself, and keys, which bring an unpredictable hash.
///
/// The table takes the bucket from the low bits of a hash and tells entries apart by the high bits. A short run of sequence
/// numbers gets adjacent buckets, so that an iteration over all acquisitions is about in the order of memory (see
/// [`sweep`](super::task)). Runs are short, so that acquisitions held for long do not block the buckets of later ones.
#[derive(Default)]
pub(super) struct OneWord(u64);

/// Number of low bits of a sequence number that give its place within a run.
const RUN_BITS: u32 = 6;

impl Hasher for OneWord {
    fn write_u64(&mut self, word: u64) {
        // Knuth's multiplicative hash: 2^64 over the golden ratio.
        let spread = |word: u64| word.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let run = spread(word >> RUN_BITS);
        let place = ((run ^ (run >> 32)) << RUN_BITS) | (word & ((1 << RUN_BITS) - 1));
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
    /// All acquisitions, to be looked at without the lock of the registry.
    pub(super) fn all(&self) -> Vec<Arc<Acquisition>> {
        self.acquisitions.values().cloned().collect()
    }

    /// The line of a lock, made if there is none.
    pub(super) fn line(&mut self, key: &Arc<LockKey>) -> Arc<Line> {
        match self.locks.entry(Arc::clone(key)) {
            Entry::Occupied(mut entry) => {
                let line = match entry.get() {
                    LocalUse::Line(line) => return Arc::clone(line),
                    LocalUse::Holder(holder) => Line::behind(Arc::clone(key), holder),
                };
                entry.insert(LocalUse::Line(Arc::clone(&line)));
                line
            }
            Entry::Vacant(entry) => {
                let yield_turn = self.yields.remove(key).map(|(_, yield_turn)| yield_turn);
                let line = Line::new(Arc::clone(key), yield_turn.unwrap_or_default());
                entry.insert(LocalUse::Line(Arc::clone(&line)));
                line
            }
        }
    }

    /// A task has released and may come back at once: it then yields the turn to other processes.
    pub(super) fn keep_yield(&mut self, key: &Arc<LockKey>, now: Moment, yield_turn: YieldTurn) {
        self.yields.retain(|_, (until, _)| *until > now);
        self.yields
            .insert(Arc::clone(key), (now + PAUSE, yield_turn));
    }

    /// The remaining time for which other processes have the turn to ask for this lock.
    pub(super) fn yields(&self, key: &LockKey, now: Moment) -> Option<Duration> {
        match self.existing_line(key) {
            Some(line) => line.yields(now),
            None => self.yields.get(key)?.1.pause(now),
        }
    }

    pub(super) fn existing_line(&self, key: &LockKey) -> Option<&Arc<Line>> {
        match self.locks.get(key) {
            Some(LocalUse::Line(line)) => Some(line),
            _ => None,
        }
    }

    /// The acquisition that has the lock for this owner in this process.
    pub(super) fn holder_for(&self, key: &LockKey, owner: &Owner) -> Option<Arc<Acquisition>> {
        match self.locks.get(key)? {
            LocalUse::Line(line) => line.holder_for(owner),
            LocalUse::Holder(holder) => holder.is_for(owner).then(|| Arc::clone(holder)),
        }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &Arc<Line>> {
        self.locks.values().filter_map(|local_use| match local_use {
            LocalUse::Line(line) => Some(line),
            LocalUse::Holder(_) => None,
        })
    }

    /// Replaces a line that only its holder needs for now by the holder.
    pub(super) fn rest(&mut self, line: &Arc<Line>) {
        if let Some(holder) = line.lone_holder()
            && let Some(local_use) = self.locks.get_mut(&*line.key)
            && local_use.is(line)
        {
            let gone = std::mem::replace(local_use, LocalUse::Holder(holder));
            self.uncheck(&gone);
        }
    }

    /// This acquisition does not have the lock any more, or will not get it. The first waiter asks anew, in the line of the key,
    /// which may differ from the line of the acquisition.
    pub(super) fn gone(&mut self, acquisition: &Arc<Acquisition>) {
        if let Entry::Occupied(entry) = self.locks.entry(Arc::clone(&acquisition.key))
            && entry.get().is_over_without(acquisition)
        {
            let gone = entry.remove();
            self.uncheck(&gone);
        }
    }

    /// Forgets an acquisition that needs no more work. Returns false if it was forgotten before.
    pub(super) fn forget(&mut self, acquisition: &Arc<Acquisition>) -> bool {
        self.gone(acquisition);
        let known = self.acquisitions.remove(&acquisition.sequence);
        self.last_releases.add(acquisition);
        known.is_some()
    }

    /// The last releases whose leases may still last on a server that has not heard of them.
    pub(super) fn last_releases(&self, now: Moment) -> Vec<ReleasedLately> {
        let lasting = self.last_releases.lasting(now);
        let gone = lasting.filter(|released| !self.is_kept(released.sequence, now));
        gone.cloned().collect()
    }

    pub(super) fn has_released_lately(&self, now: Moment) -> bool {
        self.last_releases.lasting(now).next().is_some()
    }

    /// Forgets a line without waiters whose lock is not held in this process.
    pub(super) fn tidy(&mut self, line: &Arc<Line>) {
        if line.is_idle()
            && let Entry::Occupied(entry) = self.locks.entry(Arc::clone(&line.key))
            && entry.get().is(line)
        {
            let gone = entry.remove();
            self.uncheck(&gone);
        }
    }

    /// Removes the check of a line without waiters.
    fn uncheck(&mut self, gone: &LocalUse) {
        if let LocalUse::Line(line) = gone
            && let Some(check) = line.take_check()
        {
            self.checks.remove(&check);
        }
    }

    /// Schedules a check of this line at `moment` or earlier. Returns the moment of the next check of any line if one was
    /// scheduled.
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

    /// Returns the lines whose check is due, and the work for each.
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

    /// The task will release this acquisition.
    pub(super) fn release_queued(&mut self, acquisition: &Acquisition) {
        self.releasing
            .insert(Arc::clone(&acquisition.key), acquisition.sequence);
    }

    /// The release of this acquisition was answered or has failed. Returns false if none was queued.
    pub(super) fn release_tried(&mut self, acquisition: &Acquisition) -> bool {
        let queued = self.releasing.get(&acquisition.key) == Some(&acquisition.sequence);
        if queued {
            self.releasing.remove(&acquisition.key);
        }
        queued
    }

    pub(super) fn is_releasing(&self, key: &LockKey) -> bool {
        self.releasing.contains_key(key)
    }

    /// This token holds its lock until then, and no task is left to release it.
    pub(super) fn strand(&mut self, sequence: u64, until: Moment) {
        self.stranded.insert(sequence, until);
    }

    /// Number of acquisitions whose locks may stay on the server.
    pub(super) fn unfinished(&self, now: Moment) -> usize {
        let stranded = self.stranded.values().filter(|until| **until > now);
        self.acquisitions.len() + stranded.count()
    }

    /// This token continues to hold its lock until then.
    pub(super) fn keep(&mut self, sequence: u64, now: Moment, until: Moment) {
        self.kept.retain(|_, until| *until > now);
        self.kept.insert(sequence, until);
    }

    pub(super) fn is_kept(&self, sequence: u64, now: Moment) -> bool {
        self.kept.get(&sequence).is_some_and(|until| *until > now)
    }
}
