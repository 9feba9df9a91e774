//! What each server has forgotten, and which servers a node has had.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lock_master::{Master, Reply};

use crate::request::{script, shown};
use crate::world::World;

/// Scripts that count as votes: a node that may have forgotten some gives none.
const VOTES: [&str; 2] = ["quorum acquire", "quorum heal"];

/// Scripts whose answers count for a lease.
const COUNTED: [&str; 4] = [
    "quorum acquire",
    "quorum heal",
    "quorum extend",
    "quorum raise",
];

/// The beginning of the counter of a node that votes.
const COUNTER: &[u8] = b"lock-core:quorum:fence:";

/// What a wait may end earlier by: the node measures it in milliseconds.
const EXACT: Duration = Duration::from_millis(2);

/// The votes that a server had when it lost them, by the names of the locks.
type Votes = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Default)]
struct Known {
    /// When it last lost its data, was started anew, or came to its address.
    forgot_at: Option<Duration>,
    lost: Vec<(Duration, Votes)>,
    /// Since when its address leads to another server.
    replaced_at: Option<Duration>,
    /// Its clock has jumped.
    has_jumped: bool,
}

/// What is known of all servers.
#[derive(Debug)]
pub(super) struct Nodes {
    wait: Duration,
    /// Whether requests arrive soon after they are sent.
    is_prompt: bool,
    servers: Vec<Known>,
    /// The servers that each address has led to, the last of them now.
    of_node: Vec<Vec<usize>>,
}

impl Nodes {
    pub(super) fn new(nodes: usize, servers: usize, wait: Duration, is_prompt: bool) -> Self {
        Self {
            wait,
            is_prompt,
            servers: (0..servers).map(|_| Known::default()).collect(),
            of_node: (0..nodes).map(|node| vec![node]).collect(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.of_node.len()
    }

    /// The server to which the address of a node leads.
    pub(super) fn server(&self, node: usize) -> usize {
        self.of_node[node].last().copied().unwrap_or(node)
    }

    /// A server is about to lose what it knows, or will not say that it knows it.
    pub(super) fn forgets(&mut self, world: &World, server: usize) {
        let votes = world.servers()[server].with(|master| votes(master));
        let now = world.now();
        let known = &mut self.servers[server];
        known.forgot_at = Some(now);
        known.lost.push((now, votes));
    }

    /// The address of a node leads to an empty server from now on.
    pub(super) fn replaced(&mut self, world: &World, node: usize, by: usize) {
        let now = world.now();
        let before = self.server(node);
        self.servers[before].replaced_at = Some(now);
        self.servers[by].forgot_at = Some(now);
        self.of_node[node].push(by);
    }

    pub(super) fn jumps(&mut self, server: usize) {
        self.servers[server].has_jumped = true;
    }

    /// Whether each node has the counter of one that votes.
    pub(super) fn all_vote(&self, world: &World) -> bool {
        let votes = |node| {
            let server = &world.servers()[self.server(node)];
            let keys = server.with(|master| master.keys());
            keys.iter().any(|key| key.starts_with(COUNTER))
        };
        (0..self.count()).all(votes)
    }

    /// How many nodes keep a lock for a holder for as long as it believes: they have its vote, all of one edition, or have lost it and
    /// give none meanwhile.
    pub(super) fn backing(
        &self,
        world: &World,
        lock: &str,
        is_ours: impl Fn(&[u8]) -> bool,
        for_micros: i64,
    ) -> usize {
        let (now, lock) = (world.now(), lock.as_bytes());
        // A clock that has jumped may have ended any vote.
        let (mut any, mut editions) = (0, BTreeMap::<Vec<u8>, usize>::new());
        for servers in &self.of_node {
            let known = servers.iter().map(|server| &self.servers[*server]);
            if known.clone().any(|known| known.has_jumped) {
                any += 1;
                continue;
            }
            let mut votes = BTreeSet::new();
            for (server, known) in servers.iter().zip(known) {
                if known.replaced_at.is_some_and(|at| now >= at + self.wait) {
                    continue;
                }
                votes.extend(world.servers()[*server].with(|master| {
                    let lasts = master.ttl_micros(lock) >= Some(for_micros);
                    master.string(lock).filter(|_| lasts).map(<[u8]>::to_vec)
                }));
                let lost = known.lost.iter().filter(|(at, _)| now < *at + self.wait);
                votes.extend(lost.filter_map(|(_, votes)| votes.get(lock).cloned()));
            }
            for vote in votes.into_iter().filter(|vote| is_ours(vote)) {
                *editions.entry(vote).or_default() += 1;
            }
        }
        any + editions.into_values().max().unwrap_or(0)
    }

    /// How many nodes have a vote for a lock, of those that have not forgotten any within their wait.
    pub(super) fn keeping(
        &self,
        world: &World,
        lock: &str,
        is_ours: impl Fn(&[u8]) -> bool,
    ) -> usize {
        let (now, lock) = (world.now(), lock.as_bytes());
        let keeps = |node: &usize| {
            let server = self.server(*node);
            let forgot_at = self.servers[server].forgot_at;
            let remembers = forgot_at.is_none_or(|at| now > at + self.wait);
            let has = |value: &[u8]| is_ours(value);
            remembers && world.servers()[server].with(|master| master.string(lock).is_some_and(has))
        };
        (0..self.count()).filter(keeps).count()
    }

    /// A request was answered by a server.
    pub(super) fn answered(&self, world: &World, server: usize, words: &[&[u8]], reply: &Reply) {
        let [verb, which, _, lock, ..] = words else {
            return;
        };
        let Some(script) = script(verb, which).filter(|it| COUNTED.contains(it)) else {
            return;
        };
        let (known, now) = (&self.servers[server], world.now());
        let is_vote = VOTES.contains(&script) && is_granted(reply);
        if is_vote
            && !known.has_jumped
            && let Some(at) = known.forgot_at
            && now + EXACT < at + self.wait
        {
            let what = format!(
                "server {server} votes for {} at {now:?}, and may have forgotten votes since {at:?}",
                shown(lock, 80)
            );
            world.find("forgotten", what);
        }
        // A text goes out behind the answer that the script is not there, and its caller may have slept meanwhile. What it is
        // for counts from before the first request.
        if self.is_prompt
            && *verb == b"EVALSHA"
            && let Some(at) = known.replaced_at
            && now > at + self.wait / 2
        {
            let what = format!(
                "server {server} is asked [{script}] at {now:?}, and its address leads to another one since {at:?}"
            );
            world.find("age", what);
        }
    }
}

fn is_granted(reply: &Reply) -> bool {
    match reply {
        Reply::Int(given) => *given == 1,
        Reply::Array(parts) => matches!(parts[..], [Reply::Int(_), Reply::Int(_)]),
        _ => false,
    }
}

/// The locks of a server, by their names.
pub(super) fn votes(master: &Master) -> Votes {
    let locks = master.keys().into_iter();
    let locks = locks.filter(|key| key.starts_with(b"lock:"));
    locks
        .filter_map(|key| {
            let value = master.string(&key)?.to_vec();
            Some((key, value))
        })
        .collect()
}
