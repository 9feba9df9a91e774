//! Locks that several may hold, as the server has them: semaphores and read-write locks. Looked at before and after each of their
//! scripts.

use std::collections::{BTreeMap, BTreeSet};

use lock_master::{Master, Reply, Ttl};

use crate::request::script;
use crate::world::World;

/// The length of a client id, with which each token begins.
const CLIENT: usize = 36;

/// What the scripts of such locks have in their names.
const FAMILY: &str = "permits ";

/// Scripts that leave the queue as it is.
const QUIET: [&str; 2] = ["permits extend", "permits inspect"];

/// What holds permits: until when by the clock of the server, in milliseconds, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    ends: u64,
    weight: u64,
}

/// What is noted in the lock about all of its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Noted {
    earliest: u64,
    used: u64,
    max: u64,
}

impl Noted {
    fn read(fields: &[(Vec<u8>, Vec<u8>)]) -> Option<Self> {
        let (_, value) = fields.iter().find(|(field, _)| field == b"lock")?;
        match numbers(value)[..] {
            [earliest, _, used, _, max, ..] => Some(Self {
                earliest,
                used,
                max,
            }),
            _ => None,
        }
    }
}

/// Such a lock at a moment.
#[derive(Debug, PartialEq, Eq)]
struct Stored {
    /// All of its hash, also what has expired.
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    members: BTreeMap<Vec<u8>, Member>,
    noted: Option<Noted>,
    queue: Vec<Vec<u8>>,
    waiters: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct Permits {
    before: Option<Stored>,
    /// Those that held each lock of a renewal when it came.
    held: Vec<BTreeMap<Vec<u8>, Member>>,
    /// Locks whose noted sum may be too large since a step was refused.
    doubtful: BTreeSet<Vec<u8>>,
}

/// Whether this is the name of a lock that several may hold.
pub(super) fn is_shared(name: &str) -> bool {
    name.starts_with("lock:s") || name.starts_with("lock:w")
}

/// How long a lock is held, if it is not released; of one that several may hold, until the last deadline. After a step that was
/// refused, permits may count as held until the earliest deadline that is noted.
pub(super) fn ttl(master: &Master, name: &str) -> Ttl {
    if !is_shared(name) {
        return master.ttl(name.as_bytes());
    }
    let stored = Noted::read(&master.hash(name.as_bytes()));
    let members = members(master, name.as_bytes());
    let used: u64 = members.values().map(|member| member.weight).sum();
    let ends = members.values().map(|member| member.ends).max();
    let ends = ends.max(stored.filter(|it| it.used > used).map(|it| it.earliest));
    let left = ends.map_or(0, |ends| left(master, ends));
    if left == 0 {
        Ttl::Absent
    } else {
        Ttl::Micros(left)
    }
}

/// For how many microseconds a member has its permits, unless it is renewed.
pub(super) fn left_of(master: &Master, name: &str, token: &str) -> Option<i64> {
    let members = members(master, name.as_bytes());
    let member = members.get(token.as_bytes())?;
    Some(left(master, member.ends).min(master.ttl_micros(name.as_bytes())?))
}

/// A text for those that hold a lock: a token, or all of them.
pub(super) fn holders(master: &Master, name: &str) -> Option<Vec<u8>> {
    if is_shared(name) {
        let members = members(master, name.as_bytes());
        return Some(members.into_keys().flatten().collect());
    }
    master.string(name.as_bytes()).map(<[u8]>::to_vec)
}

fn left(master: &Master, ends: u64) -> i64 {
    let left = (ends * 1000).saturating_sub(master.now_micros());
    i64::try_from(left).unwrap_or(i64::MAX)
}

/// The members whose deadline is not over.
fn members(master: &Master, name: &[u8]) -> BTreeMap<Vec<u8>, Member> {
    let now = master.now_micros() / 1000;
    let fields = master.hash(name).into_iter();
    let members = fields.filter_map(|(token, value)| {
        let [ends, weight, ..] = numbers(&value)[..] else {
            return None;
        };
        (token.len() > CLIENT && ends > now).then_some((token, Member { ends, weight }))
    });
    members.collect()
}

/// The words of a value, with 0 for what is no number.
fn numbers(value: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(value);
    let words = text.split(' ');
    words.map(|word| word.parse().unwrap_or(0)).collect()
}

impl Stored {
    fn read(master: &Master, keys: &[&[u8]]) -> Self {
        let [lock, queue, _, waiters] = keys else {
            unreachable!("a script that changes the queue has its keys")
        };
        let fields = master.hash(lock);
        Self {
            members: members(master, lock),
            noted: Noted::read(&fields),
            fields,
            queue: master.list(queue),
            waiters: master.hash(waiters).into_iter().collect(),
        }
    }

    fn used(&self) -> u64 {
        self.members.values().map(|member| member.weight).sum()
    }

    fn weight(&self, token: &[u8]) -> Option<u64> {
        numbers(self.waiters.get(token)?).get(1).copied()
    }

    /// Whether a waiter counts as alive, and hears of its grant, as far as the scripts may know.
    fn is_live(&self, master: &Master, token: &[u8]) -> bool {
        let Some(client) = self.waiters.get(&token[..CLIENT]) else {
            return false;
        };
        let until = numbers(client)[0];
        let channel = client.split(|byte| *byte == b' ').nth(1);
        let channel = channel.unwrap_or_default();
        until > master.now_micros() / 1000
            && (channel.is_empty() || master.listeners(channel) > 0 || master.wrong().no_channels)
    }
}

impl Permits {
    /// A request is about to be run, or was answered.
    pub(super) fn look(
        &mut self,
        world: &World,
        master: &Master,
        words: &[&[u8]],
        reply: Option<&Reply>,
    ) {
        let [verb, which, count, rest @ ..] = words else {
            return;
        };
        let Some(script) = script(verb, which).filter(|name| name.starts_with(FAMILY)) else {
            return;
        };
        let count = String::from_utf8_lossy(count).parse().unwrap_or(0);
        let keys = &rest[..rest.len().min(count)];
        if QUIET.contains(&script) {
            let held = keys.iter().map(|lock| members(master, lock)).collect();
            let before = std::mem::replace(&mut self.held, held);
            if reply.is_some() {
                let locks = keys.iter().zip(before.iter().zip(&self.held));
                for (lock, (before, now)) in locks {
                    check_key(world, master, lock);
                    check_gone(world, lock, before, now);
                }
            }
            return;
        }
        let now = Stored::read(master, keys);
        let Some(reply) = reply else {
            self.before = Some(now);
            return;
        };
        let Some(before) = self.before.take() else {
            return;
        };
        check_key(world, master, keys[0]);
        for key in [keys[1], keys[3]] {
            if master.ttl(key) == Ttl::Endless {
                world.find("member ttl", format!("{} has none", shown(key)));
            }
        }
        check_order(world, script, keys[0], &before, &now);
        if self.is_sure(master, keys[0], &now, reply) && now != before {
            check_places(world, script, keys[0], &before, &now);
            check_served(world, master, script, keys[0], &before, &now);
        }
    }

    /// Whether the noted sum is what a script goes by: a refused step may leave one that is too large.
    fn is_sure(&mut self, master: &Master, lock: &[u8], now: &Stored, reply: &Reply) -> bool {
        let faults = master.wrong();
        let is_free = faults.denied.is_empty() && faults.denied_keys.is_empty();
        if !is_free || faults.read_only || matches!(reply, Reply::Error(_)) {
            self.doubtful.insert(lock.to_vec());
        } else if now.noted.is_none_or(|noted| noted.used == now.used()) {
            self.doubtful.remove(lock);
        }
        !self.doubtful.contains(lock)
    }
}

/// The noted sum is never too small, and the key lives for as long as its members.
fn check_key(world: &World, master: &Master, lock: &[u8]) {
    let members = members(master, lock);
    let used: u64 = members.values().map(|member| member.weight).sum();
    let noted = Noted::read(&master.hash(lock)).map_or(0, |noted| noted.used);
    if noted < used {
        let what = format!("{}: {noted} is noted, and {used} are held", shown(lock));
        world.find("sum", what);
    }
    let longest = members
        .values()
        .map(|member| left(master, member.ends))
        .max();
    let lives = master.ttl(lock);
    if lives == Ttl::Endless || master.ttl_micros(lock) < longest {
        let (lock, longest) = (shown(lock), longest.unwrap_or(0));
        let what = format!("{lock} lives for {lives:?}, a member for {longest} µs");
        world.find("member ttl", what);
    }
}

/// A renewal does not revive a member that has expired.
fn check_gone(
    world: &World,
    lock: &[u8],
    before: &BTreeMap<Vec<u8>, Member>,
    now: &BTreeMap<Vec<u8>, Member>,
) {
    if let Some(token) = now.keys().find(|token| !before.contains_key(*token)) {
        let what = format!("{}: {} had expired", shown(lock), shown(token));
        world.find("revived", what);
    }
}

/// No request is granted permits ahead of a waiter that still waits.
fn check_order(world: &World, script: &str, lock: &[u8], before: &Stored, now: &Stored) {
    let granted = now.members.keys();
    for token in granted.filter(|token| !before.members.contains_key(*token)) {
        let mut ahead = before.queue.iter().take_while(|waiter| *waiter != token);
        let waits =
            |waiter: &&Vec<u8>| now.queue.contains(*waiter) && !now.members.contains_key(*waiter);
        if let Some(waiter) = ahead.find(waits) {
            let (token, waiter, lock) = (shown(token), shown(waiter), shown(lock));
            let what = format!("{lock}: [{script}] grants {token} ahead of {waiter}");
            world.find("overtaken", what);
        }
    }
}

/// Those that still wait have the order that they had.
fn check_places(world: &World, script: &str, lock: &[u8], before: &Stored, now: &Stored) {
    let place = |token| now.queue.iter().position(|waiter| waiter == token);
    if !before.queue.iter().filter_map(place).is_sorted() {
        let what = format!("{}: [{script}] changes the order of the queue", shown(lock));
        world.find("overtaken", what);
    }
}

/// A script that has changed something leaves no first living waiter that fits into what is free.
fn check_served(
    world: &World,
    master: &Master,
    script: &str,
    lock: &[u8],
    before: &Stored,
    now: &Stored,
) {
    let Some(Noted { max, .. }) = now.noted.or(before.noted) else {
        return;
    };
    let mut live = now.queue.iter().filter(|token| now.is_live(master, token));
    if let Some(head) = live.next()
        && let Some(weight) = now.weight(head)
        && now.used() + weight <= max
    {
        let (lock, head, used) = (shown(lock), shown(head), now.used());
        let what = format!(
            "{lock}: [{script}] leaves {head}, which waits for {weight}: {used} of {max} are held"
        );
        world.find("unserved", what);
    }
}

fn shown(bytes: &[u8]) -> String {
    crate::request::shown(bytes, 80)
}
