//! The registry of an engine: its acquisitions, when each is checked, and the lines of those that form one.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::acquisition::Acquisition;
use super::hold::LockRequest;
use super::line::Line;
use super::released::{LastReleases, ReleasedLately};
use super::yield_turn::{PAUSE, YieldTurn};
use crate::base::claim::Claim;
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::owner::Owner;
use crate::base::rt;
use crate::base::sync::lock;
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::base::token::sequence_at;

#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) acquisitions: HashMap<u64, Arc<Acquisition>, BuildHasherDefault<OneWord>>,
    last_sequence: u64,
    /// The moments of the next checks, each with the number of an acquisition. If that waits no more, its check finds nothing.
    checks: BTreeSet<(Moment, u64)>,
    /// Longest ttl that was asked for here with an owner.
    longest_of_owners: Duration,
    /// Only locks that have a waiter or a holder in this process, so that nothing grows with the keys ever used.
    locks: HashMap<Arc<LockKey>, LocalUse, BuildHasherDefault<OneWord>>,
    /// Knowledge about other processes that want a lock which a task of this process released a moment ago, and its expiry.
    yields: HashMap<Arc<LockKey>, (Moment, YieldTurn), BuildHasherDefault<OneWord>>,
    /// Tokens that hold a lock without a guard, because the lock must be kept for a while, and until when.
    kept: HashMap<u64, Moment>,
    /// Tokens whose locks no task releases any more, because its runtime has ended, and until when the locks stay.
    stranded: HashMap<u64, Moment>,
    /// Locks of which the task has yet to send a release or to hear of one.
    releasing: HashMap<Arc<LockKey>, Releases, BuildHasherDefault<OneWord>>,
    last_release: u64,
    last_releases: LastReleases,
    /// Places of a guard and of a wait for it in one task, of which the program was warned.
    pub(super) warned_of: HashSet<[&'static Location<'static>; 2]>,
    pub(super) closing: bool,
}

/// Maximum holders of one lock that a waiter looks at. There may be thousands of both.
const MAXIMUM_HOLDERS: usize = 100;

/// The releases of a lock that the task has yet to send or to hear of. There may be thousands of permits.
#[derive(Debug, Default)]
struct Releases {
    /// In the order in which they were queued.
    numbers: BTreeSet<u64>,
    /// The number for each acquisition that is released.
    by_sequence: HashMap<u64, u64, BuildHasherDefault<OneWord>>,
}

/// The use of a lock in this process.
#[derive(Debug)]
enum LocalUse {
    /// A guard has the lock, and nothing else here needs it: there may be thousands of these.
    Holder(Arc<Acquisition>),
    Line(Arc<Line>),
    /// Guards have it, each a share. Its waiters form no line.
    Apart(HashMap<u64, Arc<Acquisition>, BuildHasherDefault<OneWord>>),
}

impl LocalUse {
    fn is(&self, line: &Arc<Line>) -> bool {
        matches!(self, Self::Line(known) if Arc::ptr_eq(known, line))
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

    /// Creates an acquisition, before its first request is sent.
    pub(super) fn acquisition(
        &mut self,
        request: &LockRequest,
    ) -> Result<Arc<Acquisition>, LockError> {
        if self.closing {
            return Err(LockError::ShutDown);
        }
        // No smaller than that of the present time.
        self.last_sequence = (self.last_sequence + 1).max(sequence_at(rt::unix_time()));
        self.note_longest(&request.claim, request.terms);
        let acquisition = Acquisition::new(
            self.last_sequence,
            Arc::clone(&request.key),
            request.terms,
            request.claim.clone(),
        );
        let acquisition = Arc::new(acquisition);
        self.acquisitions
            .insert(self.last_sequence, Arc::clone(&acquisition));
        Ok(acquisition)
    }

    /// A request on these terms will be made, perhaps for an owner, whose acquisitions share one lease.
    pub(super) fn note_longest(&mut self, claim: &Claim, terms: Terms) {
        if claim.owner.is_some() {
            self.longest_of_owners = self.longest_of_owners.max(terms.ttl());
        }
    }

    /// How long the lock lasts after its last grant or renewal. Acquisitions of one owner share the lock, so with an owner this
    /// is the longest ttl that the manager has asked for with any owner.
    pub(super) fn lasts(&self, acquisition: &Acquisition) -> Duration {
        if acquisition.claim.owner.is_some() {
            self.longest_of_owners
        } else {
            lock(&acquisition.life).state.lasts()
        }
    }

    /// The line of a lock, made if there is none.
    pub(super) fn line(&mut self, key: &Arc<LockKey>) -> Arc<Line> {
        match self.locks.entry(Arc::clone(key)) {
            Entry::Occupied(mut entry) => {
                let line = match entry.get() {
                    LocalUse::Line(line) => return Arc::clone(line),
                    LocalUse::Holder(holder) => Line::behind(Arc::clone(key), holder),
                    LocalUse::Apart(_) => unreachable!("a kind forms lines or does not"),
                };
                entry.insert(LocalUse::Line(Arc::clone(&line)));
                line
            }
            Entry::Vacant(entry) => {
                let yield_turn = self.yields.remove(key).map(|(_, yield_turn)| yield_turn);
                let line = Line::new(Arc::clone(key), yield_turn);
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

    /// Whether this process has the lock, or waits for it, and is not about to release it.
    pub(super) fn uses(&self, key: &LockKey) -> bool {
        self.locks.contains_key(key) && !self.releasing.contains_key(key)
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
            LocalUse::Apart(_) => None,
        }
    }

    /// A guard has a share of a lock whose waiters form no line.
    pub(super) fn holds_apart(&mut self, acquisition: &Arc<Acquisition>) {
        let local_use = self.locks.entry(Arc::clone(&acquisition.key));
        let local_use = local_use.or_insert_with(|| LocalUse::Apart(HashMap::default()));
        if let LocalUse::Apart(holders) = local_use {
            holders.insert(acquisition.sequence, Arc::clone(acquisition));
        }
    }

    /// The acquisitions that have this lock, or a share of it. Not all, if there are very many.
    pub(super) fn holders(&self, key: &LockKey) -> Vec<Arc<Acquisition>> {
        match self.locks.get(key) {
            Some(LocalUse::Line(line)) => line.holder().into_iter().collect(),
            Some(LocalUse::Holder(holder)) => vec![Arc::clone(holder)],
            Some(LocalUse::Apart(holders)) => {
                holders.values().take(MAXIMUM_HOLDERS).cloned().collect()
            }
            None => Vec::new(),
        }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &Arc<Line>> {
        self.locks.values().filter_map(|local_use| match local_use {
            LocalUse::Line(line) => Some(line),
            LocalUse::Holder(_) | LocalUse::Apart(_) => None,
        })
    }

    /// Replaces a line that only its holder needs for now by the holder.
    pub(super) fn rest(&mut self, line: &Arc<Line>) {
        if let Some(holder) = line.lone_holder()
            && let Some(local_use) = self.locks.get_mut(&*line.key)
            && local_use.is(line)
        {
            *local_use = LocalUse::Holder(holder);
        }
    }

    /// This acquisition does not have the lock any more, or will not get it. Returns the line of the key, if it stays: it may
    /// differ from the line of the acquisition.
    pub(super) fn gone(&mut self, acquisition: &Arc<Acquisition>) -> Option<Arc<Line>> {
        let Entry::Occupied(mut entry) = self.locks.entry(Arc::clone(&acquisition.key)) else {
            return None;
        };
        match entry.get_mut() {
            LocalUse::Line(line) => {
                line.gone(acquisition);
                if !line.is_idle() {
                    return Some(Arc::clone(line));
                }
            }
            // Other guards of the same owner may still have the lease.
            LocalUse::Holder(holder) => {
                if !(holder.shares_lease_with(acquisition) && acquisition.is_lease_over()) {
                    return None;
                }
            }
            LocalUse::Apart(holders) => {
                holders.remove(&acquisition.sequence);
                if !holders.is_empty() {
                    return None;
                }
            }
        }
        entry.remove();
        None
    }

    /// Forgets an acquisition that needs no more work. Returns false if it was forgotten before.
    pub(super) fn forget(&mut self, acquisition: &Arc<Acquisition>) -> bool {
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
            entry.remove();
        }
    }

    /// Schedules a check of this acquisition, unless `at` is `None`. Returns the moment of the check, or a moment that never comes.
    pub(super) fn check_at(&mut self, acquisition: &Acquisition, at: Option<Moment>) -> Moment {
        let Some(at) = at else {
            return Moment::NEVER;
        };
        self.checks.insert((at, acquisition.sequence));
        at
    }

    /// The acquisitions whose check is due.
    pub(super) fn due(&mut self, now: Moment) -> Vec<Arc<Acquisition>> {
        let later = self.checks.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.checks, later);
        let due = due.iter().filter_map(|(_, sequence)| {
            let acquisition = self.acquisitions.get(sequence)?;
            let is_due = lock(&acquisition.life).state.is_due(now);
            is_due.then(|| Arc::clone(acquisition))
        });
        due.collect()
    }

    pub(super) fn first_check(&self) -> Option<Moment> {
        self.checks.first().map(|(at, _)| *at)
    }

    /// The task will release this acquisition.
    pub(super) fn release_queued(&mut self, acquisition: &Acquisition) {
        let key = Arc::clone(&acquisition.key);
        let releases = self.releasing.entry(key).or_default();
        if let Entry::Vacant(entry) = releases.by_sequence.entry(acquisition.sequence) {
            self.last_release += 1;
            releases.numbers.insert(*entry.insert(self.last_release));
        }
    }

    /// The release of this acquisition was answered or has failed. Returns false if none was queued.
    pub(super) fn release_tried(&mut self, acquisition: &Acquisition) -> bool {
        let Some(releases) = self.releasing.get_mut(&acquisition.key) else {
            return false;
        };
        let number = releases.by_sequence.remove(&acquisition.sequence);
        let was_queued = number.is_some_and(|number| releases.numbers.remove(&number));
        if releases.numbers.is_empty() {
            self.releasing.remove(&acquisition.key);
        }
        was_queued
    }

    /// The number of the last release that was queued.
    pub(super) fn last_release(&self) -> u64 {
        self.last_release
    }

    /// Whether a release of this lock with at most this number is not over.
    pub(super) fn is_releasing(&self, key: &LockKey, most: u64) -> bool {
        let releases = self.releasing.get(key);
        let oldest = releases.and_then(|releases| releases.numbers.first());
        oldest.is_some_and(|oldest| *oldest <= most)
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
