//! Elections: the terms that were granted, the record of the leader on the server, and what observers show.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_master::Ttl;

use super::Weather;
use super::beliefs::{AHEAD, Leads};
use crate::server::EPOCH;
use crate::world::World;

/// One who observes, by its number in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObserverId(u64);

/// An observer that does not hear of a change reads the record, and has an answer, within this time after the end of the lease it
/// knows of.
const SHOWN_WITHIN: Duration = Duration::from_secs(3);

/// How long a record may stay after a release in a calm.
const REMOVED_WITHIN: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
struct Election {
    /// The value of the candidate of each term.
    terms: BTreeMap<u64, String>,
    /// The value of each term that was seen. The script that grants a lock names the leader, which learns of it later, or never: it may
    /// have withdrawn.
    seen: BTreeMap<u64, String>,
    /// The longest of those who have something to do with it.
    ttl: Duration,
    /// The term of the leader, or that there is none; `None` where that is not sure. And since when.
    leads: Option<Leads>,
    since: Duration,
    /// Since when the lock is free.
    free_since: Option<Duration>,
}

#[derive(Debug)]
struct Observer {
    name: String,
    process: usize,
    /// Since when it is polled whenever it wants to be, and connected.
    runs: Option<Duration>,
    /// The last that it has shown, if it has shown anything, and since when: it may learn of a leader before the leader does.
    shown: Option<Leads>,
    shown_at: Duration,
    highest: u64,
}

#[derive(Debug, Default)]
pub(super) struct Elections {
    all: BTreeMap<String, Election>,
    observers: BTreeMap<ObserverId, Observer>,
    next: u64,
}

/// Whether this is the name of the lock of an election.
pub(super) fn is_election(name: &str) -> bool {
    name.starts_with("lock:e")
}

/// When a number was made, by the clock that is its floor.
fn made(term: u64) -> Duration {
    Duration::from_micros(term.saturating_sub(EPOCH))
}

impl Elections {
    pub(super) fn uses(&mut self, name: &str, ttl: Duration) {
        let election = self.all.entry(name.to_owned()).or_default();
        election.ttl = election.ttl.max(ttl);
    }

    /// A term has begun. The order of those that were under way when the lock was taken away is not known.
    pub(super) fn begins(
        &mut self,
        world: &World,
        (name, term, value): (&str, u64, &str),
        is_excused: bool,
        data_loss: Option<Duration>,
    ) {
        let election = self.all.entry(name.to_owned()).or_default();
        let last = election.terms.last_key_value().map_or(0, |(term, _)| *term);
        // A server that loses its counter needs longer to start again than its counter is ahead of its clock. Not so here.
        let is_excused_by = |before| data_loss.is_some_and(|at| at.abs_diff(made(before)) <= AHEAD);
        if let Some(other) = election.terms.get(&term)
            && !is_excused_by(term)
        {
            let what = format!("{name}: {term} is the term of {other} and of {value}");
            world.find("one leader", what);
        }
        if term < last && !is_excused && !is_excused_by(last) {
            world.find(
                "term",
                format!("{name}: {last}, and then {term} of {value}"),
            );
        }
        if let Some(seen) = election.seen.get(&term)
            && seen != value
            && !is_excused_by(term)
        {
            let what = format!("{name}: {seen} was said to lead in {term}, the term of {value}");
            world.find("observed", what);
        }
        election.terms.insert(term, value.to_owned());
    }

    pub(super) fn observes(&mut self, name: &str, process: usize, now: Duration) -> ObserverId {
        self.next += 1;
        let observer = Observer {
            name: name.to_owned(),
            process,
            runs: Some(now),
            shown: None,
            shown_at: now,
            highest: 0,
        };
        self.observers.insert(ObserverId(self.next), observer);
        ObserverId(self.next)
    }

    pub(super) fn is_observing(&mut self, id: ObserverId, runs: Option<Duration>) {
        if let Some(observer) = self.observers.get_mut(&id) {
            observer.runs = runs;
        }
    }

    pub(super) fn observed(&mut self, id: ObserverId) {
        self.observers.remove(&id);
    }

    pub(super) fn crashed(&mut self, process: usize) {
        self.observers.retain(|_, it| it.process != process);
    }

    pub(super) fn shows(&mut self, world: &World, id: ObserverId, leader: Option<(u64, &str)>) {
        let Some(observer) = self.observers.get_mut(&id) else {
            return;
        };
        observer.shown = Some(Leads::of(leader.map(|(term, _)| term)));
        observer.shown_at = world.now();
        let name = observer.name.clone();
        if let Some((term, _)) = leader {
            let highest = observer.highest;
            observer.highest = term.max(highest);
            if term < highest {
                world.find("observed", format!("{name}: {highest}, and then {term}"));
            }
        }
        if let Some((term, value)) = leader {
            self.sees(world, &name, term, value);
        }
    }

    /// The leader that a caller was told of is the one with this term.
    pub(super) fn sees(&mut self, world: &World, name: &str, term: u64, value: &str) {
        let election = self.all.entry(name.to_owned()).or_default();
        let known = election.terms.get(&term);
        let known = known.or(election.seen.get(&term));
        if let Some(known) = known.filter(|known| *known != value) {
            let what = format!("{name}: {value} is said to lead in {term}, which {known} has");
            world.find("observed", what);
        }
        election.seen.insert(term, value.to_owned());
    }

    /// `leads` says who leads an election: see [`Election::leads`].
    pub(super) fn look(
        &mut self,
        world: &World,
        weather: &Weather,
        data_loss: Option<Duration>,
        now: Duration,
        leads: impl Fn(&str) -> Option<Leads>,
    ) {
        let calm = weather.calm(now);
        let names: Vec<_> = self.all.keys().cloned().collect();
        for name in names {
            self.look_at_record(world, &name, calm, now);
            let leads = leads(&name);
            let election = self.all.entry(name).or_default();
            if leads != election.leads {
                (election.leads, election.since) = (leads, now);
            }
        }
        for observer in self.observers.values_mut() {
            let Some(election) = self.all.get(&observer.name) else {
                continue;
            };
            if !weather.is_there(observer.process) {
                observer.runs = observer.runs.map(|_| now);
            }
            let (Some(leads), Some(runs)) = (election.leads, observer.runs) else {
                continue;
            };
            // A lease that has ended is not believed in, and what the server has lost not for longer than that. Who leads is written with each renewal, and read once in a ttl at the least.
            let (since, rest) = match (leads, election.free_since) {
                (Leads::NoLeader, Some(since)) => {
                    let lost = data_loss.map_or(since, |at| at + election.ttl);
                    (since.max(lost), Duration::ZERO)
                }
                (Leads::NoLeader, None) => (election.since, election.ttl * 2),
                (Leads::In(_), _) => (election.since, election.ttl),
            };
            let began = runs.max(since).max(observer.shown_at);
            let lasts = now.saturating_sub(began).min(calm);
            if lasts > rest + SHOWN_WITHIN && observer.shown != Some(leads) {
                let Observer {
                    name,
                    process,
                    shown,
                    ..
                } = observer;
                let what = format!(
                    "{name}: p{process} shows {shown:?}, and for {lasts:?} of calm it is {leads:?}"
                );
                world.find("observed", what);
            }
        }
    }

    /// What is written of a leader is true, and does not outlive the lease by which it was written.
    fn look_at_record(&mut self, world: &World, name: &str, calm: Duration, now: Duration) {
        let key = format!("lock-core:leader:{{{name}}}");
        let (record, lives, lock, left) = world.server().with(|master| {
            let text = |key: &str| {
                let value = master.string(key.as_bytes());
                value.map(|it| String::from_utf8_lossy(it).into_owned())
            };
            let left = master.ttl_micros(name.as_bytes());
            (text(&key), master.ttl(key.as_bytes()), text(name), left)
        });
        let find = |what: String| world.find("record", format!("{name}: {what}"));
        let election = self.all.entry(name.to_owned()).or_default();
        let since = election.free_since.filter(|_| lock.is_none());
        election.free_since = lock.is_none().then(|| since.unwrap_or(now));
        let Some(record) = record else { return };
        let Ttl::Micros(lives) = lives else {
            return find(format!("`{record}` has no ttl"));
        };
        // In a calm that has begun before: an end that could not be announced is left to the ttl. A holder without messages learns
        // of a forced release when it renews its lease.
        let is_free_for = since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let limit = election.ttl / 3 + REMOVED_WITHIN;
        if is_free_for > limit && calm > is_free_for + REMOVED_WITHIN {
            let what = format!("`{record}` is there, and the lock is free for {is_free_for:?}");
            find(what);
        }
        let mut words = record.splitn(3, ' ');
        if lock.is_none() || words.next() != lock.as_deref() {
            return;
        }
        if left.is_none_or(|left| lives > left) {
            find(format!(
                "`{record}` is there for {lives} µs, its lock for {left:?}"
            ));
        }
        let term = words.next().and_then(|it| it.parse().ok()).unwrap_or(0);
        self.sees(world, name, term, words.next().unwrap_or_default());
    }
}
