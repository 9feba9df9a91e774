//! The order in which the server has granted each exclusive lock, and the fencing tokens that clients were told: P10.
//!
//! Other checkers go by guards, which are returned some time after the grant, or never. Here a grant is a script after which the lock
//! has another token. So the order is known as well of grants that were under way when a lock was taken away or data were lost.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_master::Master;

use super::permits::is_shared;
use crate::request::script;
use crate::world::World;

/// The counter of fencing tokens.
pub const COUNTER: &str = "lock-core:fence";

/// For how long a client may believe that the counter has been raised to the clock.
const BELIEVED: Duration = Duration::from_secs(5);

/// A grant, by its number in the run.
#[derive(Debug)]
struct Granted {
    number: u64,
    token: Vec<u8>,
    at: Duration,
    /// The counter before it, and behind it: it has the tokens in between.
    from: u64,
    counter: u64,
    told: Vec<Told>,
    /// Grants up to this one may have larger tokens.
    excused_up_to: u64,
}

/// A fencing token that a client was told.
#[derive(Debug, Clone, Copy)]
struct Told {
    fence: u64,
    at: Duration,
    /// The process that knows it, while that lives, and tells each server to which it connects.
    known_to: Option<usize>,
}

/// The counter was lost, or set back.
#[derive(Debug)]
struct Loss {
    /// The last grant before.
    number: u64,
    /// The clock of the server.
    clock: u64,
    at: Duration,
    /// Whether each client connects before it is granted anything, and tells the server the largest token that it knows.
    reconnects: bool,
}

/// The data under open connections are older than what was granted.
#[derive(Debug)]
struct Replaced {
    /// The last grant before.
    number: u64,
    /// The largest token that may have been minted before.
    counter: u64,
    until: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Order {
    last: u64,
    locks: BTreeMap<Vec<u8>, Vec<Granted>>,
    /// The tokens of the locks of a request when it came.
    before: Vec<Option<Vec<u8>>>,
    /// And the counter.
    from: u64,
    /// The largest value of the counter so far.
    largest: u64,
    losses: Vec<Loss>,
    replaced: Option<Replaced>,
}

/// Whether this is the name of an exclusive lock.
fn is_exclusive(key: &[u8]) -> bool {
    key.starts_with(b"lock:") && !is_shared(&String::from_utf8_lossy(key))
}

fn counter(master: &Master) -> u64 {
    let text = master.string(COUNTER.as_bytes()).unwrap_or_default();
    String::from_utf8_lossy(text).parse().unwrap_or(0)
}

impl Order {
    /// A request is about to be run, or was answered.
    pub(super) fn look(&mut self, now: Duration, master: &Master, words: &[&[u8]], done: bool) {
        let [verb, which, count, rest @ ..] = words else {
            return;
        };
        if script(verb, which).is_none() {
            return;
        }
        let count = String::from_utf8_lossy(count).parse().unwrap_or(0);
        let locks = rest.iter().take(count).filter(|key| is_exclusive(key));
        let tokens = locks
            .clone()
            .map(|key| master.string(key).map(<[u8]>::to_vec));
        let before = std::mem::replace(&mut self.before, tokens.collect());
        let counter = counter(master);
        self.largest = self.largest.max(counter);
        if !done {
            self.from = counter;
            return;
        }
        let is_over = |it: &Replaced| counter > it.counter || now > it.until;
        if self.replaced.as_ref().is_some_and(is_over) {
            self.replaced = None;
        }
        for (place, key) in locks.enumerate() {
            let Some(token) = self.before[place].clone() else {
                continue;
            };
            let was_there = before.get(place) == Some(&Some(token.clone()));
            let last = self
                .locks
                .get_mut(*key)
                .and_then(|grants| grants.last_mut());
            match last.filter(|last| was_there && last.token == token) {
                // A repeated request has another fencing token.
                Some(last) => last.counter = last.counter.max(counter),
                None => self.granted(key, token, now, (self.from, counter)),
            }
        }
    }

    fn granted(&mut self, key: &[u8], token: Vec<u8>, at: Duration, (from, counter): (u64, u64)) {
        self.last += 1;
        self.locks.entry(key.to_vec()).or_default().push(Granted {
            number: self.last,
            token,
            at,
            from,
            counter,
            told: Vec::new(),
            excused_up_to: self.replaced.as_ref().map_or(0, |it| it.number),
        });
    }

    /// The counter is lost, or set back, from now on.
    pub(super) fn loses_counter(&mut self, world: &World) {
        let clock = world.server().with(|master| master.now_micros());
        self.losses.push(Loss {
            number: self.last,
            clock,
            at: world.now(),
            reconnects: false,
        });
    }

    /// Another server has the data that were lost: each client has to connect.
    pub(super) fn reconnects(&mut self, now: Duration) {
        for loss in self.losses.iter_mut().filter(|loss| loss.at == now) {
            loss.reconnects = true;
        }
    }

    /// The server has older data from now on: what is held there was granted before, or is granted anew.
    pub(super) fn goes_back(&mut self, world: &World) {
        let counter = world.server().with(|master| counter(master));
        let keys: Vec<_> = self.locks.keys().cloned().collect();
        for key in keys {
            let token = world
                .server()
                .with(|master| master.string(&key).map(<[u8]>::to_vec));
            if let Some(token) = token {
                self.granted(&key, token, world.now(), (counter, counter));
            }
        }
    }

    /// So it is under connections that are there. Tokens may decrease until a script has raised the counter to the clock, and on a
    /// connection for which that was done before no longer than it counts. A request is under way for `delay` at the most.
    pub(super) fn is_replaced(&mut self, now: Duration, delay: Duration) {
        self.replaced = Some(Replaced {
            number: self.last,
            counter: self.largest,
            until: now + BELIEVED + delay,
        });
    }

    /// A process has gone, and with it the tokens that it knew.
    pub(super) fn forgets(&mut self, process: usize) {
        let grants = self.locks.values_mut().flatten();
        for told in grants.flat_map(|grant| &mut grant.told) {
            told.known_to = told.known_to.filter(|it| *it != process);
        }
    }

    /// A client was told the fencing token of a grant. Says when the server has granted it. `known_to` is none if the process does not
    /// know when it connects.
    pub(super) fn told(
        &mut self,
        world: &World,
        (name, token): (&str, &str),
        fence: u64,
        known_to: Option<usize>,
    ) -> Option<Duration> {
        let grants = self.locks.get_mut(name.as_bytes())?;
        let is_it = |it: &&mut Granted| {
            it.token == token.as_bytes() && it.from < fence && fence <= it.counter
        };
        let grant = grants.iter_mut().rfind(is_it)?;
        let new = Told {
            fence,
            at: world.now(),
            known_to,
        };
        grant.told.push(new);
        let grant = Granted {
            token: Vec::new(),
            told: vec![new],
            ..*grant
        };
        let pairs = grants.iter().filter(|other| other.number != grant.number);
        for other in pairs {
            let (before, after) = if other.number < grant.number {
                (other, &grant)
            } else {
                (&grant, other)
            };
            if let Some((before, after)) = decrease(&self.losses, before, after) {
                let what = format!("{name}: the server has granted {before}, and then {after}");
                world.find("fence", what);
            }
        }
        Some(grant.at)
    }
}

/// Tokens of two grants, of which the later is not larger, though it has to be.
fn decrease(losses: &[Loss], before: &Granted, after: &Granted) -> Option<(u64, u64)> {
    if before.number <= after.excused_up_to {
        return None;
    }
    let between = |loss: &&Loss| (before.number..after.number).contains(&loss.number);
    let losses: Vec<_> = losses.iter().filter(between).collect();
    let pairs = before
        .told
        .iter()
        .flat_map(|one| after.told.iter().map(move |other| (one, other)));
    let wrong = |(one, other): &(&Told, &Told)| {
        // A server starts again from its clock, and a client that connects tells it what it knows.
        let is_lost = |loss: &&Loss| {
            let is_known = loss.reconnects && one.at < loss.at && one.known_to == other.known_to;
            one.fence >= loss.clock && !(is_known && one.known_to.is_some())
        };
        other.fence <= one.fence && !losses.iter().any(is_lost)
    };
    let found = pairs.into_iter().find(wrong)?;
    Some((found.0.fence, found.1.fence))
}
