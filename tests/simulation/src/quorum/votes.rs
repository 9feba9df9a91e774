//! Votes that are left behind, and locks that are free while a caller waits.

use std::collections::BTreeMap;
use std::time::Duration;

use super::beliefs::acquisition;
use super::nodes::{Nodes, votes};
use crate::request::shown;
use crate::world::World;

/// Maximum time of a calm, besides a command deadline, until an unused vote is taken back.
const TAKEN_BACK: Duration = Duration::from_millis(3_500);

/// Maximum time of a calm until a waiter has a free lock.
const GIVEN: Duration = Duration::from_secs(12);

/// A caller that waits.
#[derive(Debug)]
struct Waiter {
    name: String,
    process: usize,
    since: Duration,
}

#[derive(Debug)]
pub(super) struct Votes {
    /// A command deadline of each process.
    deadlines: Vec<Duration>,
    /// What each server has, and since when.
    there: BTreeMap<(usize, Vec<u8>), (Vec<u8>, Duration)>,
    /// The process of each client that lives.
    clients: BTreeMap<String, usize>,
    waiters: BTreeMap<u64, Waiter>,
    next: u64,
    believed_at: BTreeMap<String, Duration>,
    /// Until then votes may stay for their ttl: their client has gone, or a request has arrived late.
    excused_until: Duration,
    /// When a caller last did not run.
    inattentive_at: Duration,
    asleep: u32,
}

/// A call for a lock, by its number in the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallId(u64);

impl Votes {
    pub(super) fn new(deadlines: Vec<Duration>) -> Self {
        Self {
            deadlines,
            there: BTreeMap::new(),
            clients: BTreeMap::new(),
            waiters: BTreeMap::new(),
            next: 0,
            believed_at: BTreeMap::new(),
            excused_until: Duration::ZERO,
            inattentive_at: Duration::ZERO,
            asleep: 0,
        }
    }

    /// A process asks with this token.
    pub(super) fn asks(&mut self, process: usize, token: &[u8]) {
        if let Some((client, _)) = acquisition(token) {
            self.clients.entry(client).or_insert(process);
        }
    }

    /// A caller asks for a lock.
    pub(super) fn begins(&mut self, name: &str, process: usize, now: Duration) -> CallId {
        self.next += 1;
        let waiter = Waiter {
            name: name.to_owned(),
            process,
            since: now,
        };
        self.waiters.insert(self.next, waiter);
        CallId(self.next)
    }

    /// It does not wait any more.
    pub(super) fn waited(&mut self, call: CallId) {
        self.waiters.remove(&call.0);
    }

    /// The managers of a process have gone, and left their votes to the ttl.
    pub(super) fn leaves(&mut self, process: usize, until: Duration) {
        self.clients.retain(|_, of| *of != process);
        self.waiters.retain(|_, waiter| waiter.process != process);
        self.excused(until);
    }

    /// Votes may stay until then.
    pub(super) fn excused(&mut self, until: Duration) {
        self.excused_until = self.excused_until.max(until);
    }

    pub(super) fn falls_asleep(&mut self) {
        self.asleep += 1;
    }

    pub(super) fn wakes(&mut self, now: Duration) {
        self.asleep = self.asleep.saturating_sub(1);
        self.inattentive_at = now;
    }

    /// Whether some caller has not run all the time since then.
    pub(super) fn is_held_up_since(&self, moment: Duration) -> bool {
        self.asleep > 0 || self.inattentive_at >= moment
    }

    /// `calm` is for how long nothing has been wrong, and `voting` for how long all nodes have voted besides.
    pub(super) fn look(
        &mut self,
        world: &World,
        nodes: &Nodes,
        (calm, voting): (Duration, Duration),
        has: impl Fn(&str, &[u8]) -> bool,
        is_believed: impl Fn(&str) -> bool,
    ) {
        let now = world.now();
        if self.asleep > 0 {
            self.inattentive_at = now;
        }
        let attended = now.saturating_sub(self.inattentive_at.max(self.excused_until));
        let mut there = BTreeMap::new();
        for node in 0..nodes.count() {
            let server = nodes.server(node);
            for (lock, value) in world.servers()[server].with(|master| votes(master)) {
                let name = String::from_utf8_lossy(&lock).into_owned();
                let place = (server, lock);
                let before = self.there.get(&place).filter(|(known, _)| *known == value);
                let since = before.map_or(now, |(_, since)| *since);
                let since = if has(&name, &value) { now } else { since };
                there.insert(place, (value, since));
            }
        }
        self.there = there;
        for ((server, lock), (value, since)) in &self.there {
            let Some(process) =
                acquisition(value).and_then(|(client, _)| self.clients.get(&client))
            else {
                continue;
            };
            let name = String::from_utf8_lossy(lock).into_owned();
            let lasts = now.saturating_sub(*since);
            // A caller that waits keeps its votes while no majority votes.
            let mut waiters = self.waiters.values();
            let waits = waiters.any(|it| it.process == *process && it.name == name);
            let calm = if waits { voting } else { calm };
            if lasts.min(calm).min(attended) > TAKEN_BACK + self.deadlines[*process] {
                let value = shown(value, 90);
                let what =
                    format!("{name}: p{process} leaves {value} on server {server} for {lasts:?}");
                world.find("left", what);
            }
        }
        self.look_for_waiters(world, voting.min(attended), is_believed);
    }

    fn look_for_waiters(
        &mut self,
        world: &World,
        calm: Duration,
        is_believed: impl Fn(&str) -> bool,
    ) {
        let now = world.now();
        for waiter in self.waiters.values() {
            let believed_at = self.believed_at.entry(waiter.name.clone()).or_default();
            if is_believed(&waiter.name) {
                *believed_at = now;
            }
            let lasts = now.saturating_sub(waiter.since.max(*believed_at)).min(calm);
            if lasts > GIVEN {
                let Waiter { name, process, .. } = waiter;
                let what =
                    format!("{name}: nobody has it for {lasts:?} of calm, and p{process} waits");
                world.find("idle", what);
            }
        }
    }
}
