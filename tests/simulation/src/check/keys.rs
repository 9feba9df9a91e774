//! What is on the server: P4, P7, P14, `at_least`, and locks that are free while a waiter is there.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_master::Ttl;

use super::{Excuse, Weather, permits};
use crate::world::World;

/// A caller that waits, by its number in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaiterId(u64);

/// What is not given back by its holder is given back by its ttl, and the next one needs as long as this to hear of it.
const SLACK: Duration = Duration::from_secs(5);

/// A free lock is asked for by its waiters within this time of a calm: a lost message costs one refresh.
const REFRESH: Duration = Duration::from_secs(4);

/// A caller that does not run is passed over within this time.
const PASSED_OVER: Duration = Duration::from_secs(30);

/// How long a calm must last before a lock that nobody wants is seen to be given back.
const GIVEN_BACK: Duration = Duration::from_secs(6);

/// P7: all waiters of a lock that have gone keep it from the others for a ttl, and for as long as this at the most; then one of
/// those has to hear of it, or to ask.
const GONE: Duration = Duration::from_millis(1_500);

/// A waiter counts as alive for as long after its last request.
const ALIVE: Duration = Duration::from_secs(9);

#[derive(Debug)]
struct Waiter {
    names: Vec<String>,
    /// Whether it wants all of them, and may hold some while it waits for the others.
    wants_all: bool,
    /// Since when all of them are free at the same time, where it wants all.
    all_free_since: Option<Duration>,
    process: usize,
    /// Since when it is polled whenever it wants to be.
    attentive: Option<Duration>,
}

impl Waiter {
    /// Since when it has to ask for what is free. Who wants all waits for one after the other.
    fn asks_since(&self) -> Option<Duration> {
        if !self.wants_all {
            return self.attentive;
        }
        Some(self.attentive?.max(self.all_free_since?))
    }
}

#[derive(Debug, Default)]
struct Key {
    /// For how long it may be free while a waiter is there.
    idle: Duration,
    free_since: Option<Duration>,
    /// Since when it is held under this token, and nobody believes that it is his.
    for_nobody_since: Option<(Duration, Option<Vec<u8>>)>,
    /// The most callers that did not run at the same time since then.
    most_asleep: u32,
    /// Until when something holds it that is no guard.
    kept_until: Duration,
    at_least_until: Duration,
    excused: bool,
    /// When its queue was last lost with the data. Those who waited are in it again after a refresh.
    forgotten_at: Option<Duration>,
    /// When a guard last believed in it, or something else kept it.
    used_at: Duration,
}

impl Key {
    /// For how long it may be free beside a waiter, where callers may not run (`held_up`).
    fn may_be_idle(&self, held_up: bool, longest_ttl: Duration) -> Duration {
        match (held_up, self.excused) {
            (false, false) => self.idle,
            // What has gone behind the back of all is found out by asking.
            (false, true) => self.idle.max(REFRESH + Duration::from_secs(1)),
            (true, false) => PASSED_OVER,
            // A caller that does not run may have taken over what has gone, and looks only when it renews.
            (true, true) => longest_ttl.max(PASSED_OVER),
        }
    }
}

#[derive(Debug)]
pub(super) struct Keys {
    longest_ttl: Duration,
    /// Whether the server can know of each waiter that has gone, or that one polls.
    none_vanishes: bool,
    all: BTreeMap<String, Key>,
    waiters: BTreeMap<WaiterId, Waiter>,
    next: u64,
    /// When a process was last kept from cleaning up behind itself.
    hindered_at: Option<Duration>,
    /// When a caller last did not run.
    inattentive_at: Duration,
    /// Callers that do not run, waiting or not.
    asleep: usize,
}

impl Keys {
    pub(super) fn new(longest_ttl: Duration, none_vanishes: bool) -> Self {
        Self {
            longest_ttl,
            none_vanishes,
            all: BTreeMap::new(),
            waiters: BTreeMap::new(),
            next: 0,
            hindered_at: None,
            inattentive_at: Duration::ZERO,
            asleep: 0,
        }
    }

    pub(super) fn uses(&mut self, name: &str, idle: Duration) {
        let key = self.all.entry(name.to_owned()).or_default();
        key.idle = idle.max(key.idle);
    }

    pub(super) fn look(
        &mut self,
        world: &World,
        weather: &Weather,
        now: Duration,
        is_believed: impl Fn(&str) -> bool,
    ) {
        let calm = weather.calm(now);
        if weather.is_any_absent() || self.asleep > 0 {
            self.inattentive_at = now;
        }
        let attended = now.saturating_sub(self.inattentive_at);
        self.look_for_free(world, now, &is_believed);
        for (name, key) in &mut self.all {
            let there = world.server().with(|master| permits::ttl(master, name));
            let may_be_part = self
                .waiters
                .values()
                .any(|it| it.wants_all && it.names.contains(name));
            if is_believed(name) || may_be_part || now < key.kept_until || key.excused {
                key.used_at = now;
            }
            let waiting = self.waiters.values().filter(|waiter| {
                waiter.names.len() == 1
                    && waiter.names[0] == *name
                    && weather.is_there(waiter.process)
            });
            if self.none_vanishes
                && let Some(attentive) = waiting.filter_map(|waiter| waiter.attentive).min()
            {
                // However many tokens it was given to: those that have gone keep it for a ttl together, and not for one each.
                let lasts = now.saturating_sub(key.used_at.max(attentive));
                let lasts = lasts.min(calm).min(attended);
                let refresh = (self.longest_ttl / 3).min(REFRESH);
                if there != Ttl::Absent && lasts > self.longest_ttl + GONE + refresh {
                    let what =
                        format!("{name} is given to those who have gone, for {lasts:?} of calm");
                    world.find("dead", what);
                }
            }
            match there {
                Ttl::Endless => {
                    world.find("ttl", format!("{name} is there without a ttl"));
                }
                Ttl::Absent => {
                    key.for_nobody_since = None;
                    let since = *key.free_since.get_or_insert(now);
                    if is_believed(name) {
                        // It was taken away: those behind the holder wait until that hears of it.
                        key.free_since = None;
                        continue;
                    }
                    let waiting = self.waiters.values().filter(|waiter| {
                        waiter.names.contains(name) && weather.is_there(waiter.process)
                    });
                    let asks = waiting.filter_map(Waiter::asks_since);
                    let Some(attentive) = asks.min() else {
                        continue;
                    };
                    let asked = key.forgotten_at.map_or(Duration::ZERO, |at| at + REFRESH);
                    let known = since.max(attentive).max(asked);
                    let idle = now.saturating_sub(known).min(calm);
                    // The others of a process wait for the first in line, until it is passed over.
                    let held_up = self.asleep > 0;
                    let idle = if held_up { idle } else { idle.min(attended) };
                    let limit = key.may_be_idle(held_up, self.longest_ttl);
                    if idle > limit {
                        world.find(
                            "idle",
                            format!("{name} is free for {idle:?} of calm, and is waited for"),
                        );
                    }
                }
                Ttl::Micros(_) => {
                    key.free_since = None;
                    if is_believed(name) || may_be_part || now < key.kept_until {
                        key.for_nobody_since = None;
                        continue;
                    }
                    let token = world.server().with(|master| permits::holders(master, name));
                    let since = match &key.for_nobody_since {
                        Some((since, before)) if *before == token => *since,
                        _ => now,
                    };
                    key.for_nobody_since = Some((since, token));
                    let lasts = now.saturating_sub(since);
                    // A process asks for all its callers with one token, and each may leave its grant untaken for a ttl.
                    let sleepers = self
                        .waiters
                        .values()
                        .filter(|waiter| waiter.attentive.is_none() && waiter.names.contains(name));
                    let callers = u32::try_from(sleepers.count().max(1)).unwrap_or(u32::MAX);
                    let most = if since == now { 0 } else { key.most_asleep };
                    key.most_asleep = callers.max(most);
                    let hindered = self
                        .hindered_at
                        .map_or(Duration::MAX, |at| now.saturating_sub(at));
                    let healthy = hindered > self.longest_ttl * 2 + SLACK * 4;
                    // In a calm: a question whose answer is held back may prolong what nobody takes.
                    if lasts.min(calm) > self.longest_ttl * key.most_asleep + SLACK
                        || healthy && lasts.min(calm).min(attended) > GIVEN_BACK
                    {
                        world.find(
                            "unclaimed",
                            format!("{name} is held for {lasts:?}, by no guard"),
                        );
                    }
                }
            }
        }
    }

    /// Looks at what those who want several locks may take.
    fn look_for_free(&mut self, world: &World, now: Duration, is_believed: impl Fn(&str) -> bool) {
        for waiter in self.waiters.values_mut().filter(|it| it.wants_all) {
            let is_free = |name: &String| {
                let there = world.server().with(|master| permits::ttl(master, name));
                there == Ttl::Absent && !is_believed(name)
            };
            let all_free = waiter.names.iter().all(is_free);
            waiter.all_free_since = all_free.then(|| waiter.all_free_since.unwrap_or(now));
        }
    }

    /// A process has the lock: `at_least` of the holder before must be over.
    pub(super) fn granted(&mut self, world: &World, name: &str, is_held: bool, now: Duration) {
        if let Some(key) = self.all.get_mut(name) {
            if now < key.at_least_until && !key.excused && is_held {
                let until = key.at_least_until;
                world.find("at_least", format!("{name} granted before {until:?}"));
            }
            key.excused = false;
            key.at_least_until = Duration::ZERO;
        }
    }

    pub(super) fn kept(&mut self, name: &str, until: Duration) {
        let key = self.all.entry(name.to_owned()).or_default();
        key.kept_until = key.kept_until.max(until);
    }

    /// The server has older data, in which each lock may be held, or given to those that have gone, while these count as alive.
    pub(super) fn went_back(&mut self, now: Duration) {
        for key in self.all.values_mut() {
            let until = now + self.longest_ttl + ALIVE + SLACK;
            key.kept_until = key.kept_until.max(until);
        }
    }

    pub(super) fn at_least(&mut self, name: &str, until: Duration) {
        self.kept(name, until + SLACK);
        let key = self.all.entry(name.to_owned()).or_default();
        key.at_least_until = until;
    }

    pub(super) fn excuse(&mut self, excuse: Excuse<'_>, now: Duration) {
        let one = match excuse {
            Excuse::Forced(name) | Excuse::Foreign(name) | Excuse::Shortened(name) => Some(name),
            Excuse::DataLoss => None,
        };
        for (name, key) in &mut self.all {
            if one.is_none_or(|one| one == name) {
                key.excused = true;
                key.for_nobody_since = None;
                if one.is_none() {
                    key.forgotten_at = Some(now);
                }
            }
        }
    }

    pub(super) fn crashed(&mut self, process: usize, now: Duration) {
        self.waiters.retain(|_, waiter| waiter.process != process);
        self.hindered(now);
        for key in self.all.values_mut() {
            key.for_nobody_since = None;
        }
    }

    /// What is left now is given back by its ttl.
    pub(super) fn hindered(&mut self, now: Duration) {
        self.hindered_at = Some(now);
    }

    pub(super) fn waits(
        &mut self,
        names: Vec<String>,
        process: usize,
        wants_all: bool,
        now: Duration,
    ) -> WaiterId {
        self.next += 1;
        let waiter = Waiter {
            names,
            wants_all,
            all_free_since: None,
            process,
            attentive: Some(now),
        };
        self.waiters.insert(WaiterId(self.next), waiter);
        WaiterId(self.next)
    }

    pub(super) fn is_polled(&mut self, waiter: WaiterId, polled: bool, now: Duration) {
        if let Some(waiter) = self.waiters.get_mut(&waiter) {
            waiter.attentive = polled.then_some(now);
        }
    }

    /// Whether one of these processes has waited for this exclusive lock, and for nothing else, so long that its holder has heard
    /// of it.
    pub(super) fn is_awaited_by(
        &self,
        name: &str,
        processes: impl Fn(usize) -> bool,
        calm: Duration,
        now: Duration,
    ) -> bool {
        let is_long = |since: Duration| now.saturating_sub(since) > REFRESH + SLACK;
        let is_heard = |waiter: &Waiter| {
            waiter.names.len() == 1
                && waiter.names[0] == name
                && waiter.attentive.is_some_and(is_long)
                && processes(waiter.process)
        };
        name.starts_with("lock:")
            && calm > REFRESH + SLACK
            && is_long(self.inattentive_at)
            && self.asleep == 0
            && self.waiters.values().any(is_heard)
    }

    /// For how long a caller of this process has waited for an exclusive lock that its process did not hold, and run.
    pub(super) fn waits_since(
        &self,
        process: usize,
        held_at: &dyn Fn(&str) -> Option<Duration>,
        now: Duration,
    ) -> Duration {
        let waiters = self.waiters.values().filter(|waiter| {
            waiter.process == process
                && waiter.names.len() == 1
                && waiter.names[0].starts_with("lock:")
        });
        let since = waiters.filter_map(|waiter| {
            let held_at = held_at(&waiter.names[0]).unwrap_or_default();
            Some(waiter.attentive?.max(held_at))
        });
        let since = since.min().map(|since| since.max(self.inattentive_at));
        since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Whether some caller has not run all the time since then.
    pub(super) fn is_held_up_since(&self, moment: Duration) -> bool {
        self.asleep > 0 || self.inattentive_at >= moment
    }

    /// A caller does not run from now on.
    pub(super) fn falls_asleep(&mut self) {
        self.asleep += 1;
    }

    /// A caller that did not run runs again, or has ended.
    pub(super) fn wakes(&mut self, now: Duration) {
        self.asleep = self.asleep.saturating_sub(1);
        self.inattentive_at = now;
    }

    pub(super) fn waited(&mut self, waiter: WaiterId) {
        let Some(waiter) = self.waiters.remove(&waiter) else {
            return;
        };
        if waiter.attentive.is_none() {
            // What it has not taken is another's now.
            for name in waiter.names {
                self.all.entry(name).or_default().for_nobody_since = None;
            }
        }
    }
}

/// How long a segment may be free while a waiter of its handle is there, where round trips take as long as `delay`.
#[must_use]
pub fn idle_segment_limit(delay: Duration) -> Duration {
    Duration::from_secs(1) + delay * 8
}

/// How long a lock may be free while a waiter is there.
#[must_use]
pub fn idle_limit(ttl: Duration) -> Duration {
    REFRESH
        .max(ttl / 3 + Duration::from_secs(1))
        .min(REFRESH + Duration::from_secs(1))
}

/// What a lock leaves behind, or a queue, or the holds of an owner.
pub(super) fn leftovers(world: &World) -> Vec<String> {
    let keys = world.server().with(|master| master.keys());
    let names = keys
        .iter()
        .map(|key| String::from_utf8_lossy(key).into_owned());
    let expected = |name: &String| {
        name.starts_with("lock-core:fence")
            || name == "lock-core:format"
            || name.starts_with("effects:")
            || name.starts_with("foreign:")
    };
    names.filter(|name| !expected(name)).collect()
}
