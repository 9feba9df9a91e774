//! Keys, arguments and messages on the wire, beside the scripts and their replies. `docs/wire.md` describes all of it.

use std::fmt;
use std::time::Duration;

use super::kinds::{exclusive_grant, shared_grant};
use crate::base::beside::Beside;
use crate::base::key::{LockKey, RESERVED};
use crate::base::token::ClientId;
use crate::store::{Events, Renewal};

/// A name on the server, in parts that are joined when it is written: the namespace, a name of ours, and the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Name<'a>(pub(super) [&'a str; 3]);

impl<'a> Name<'a> {
    /// A name of the library itself.
    pub(in crate::store) const fn ours(namespace: &'a str, name: &'static str) -> Self {
        Self([namespace, name, ""])
    }

    /// A name of the library beside a lock.
    pub(super) fn beside(key: &'a LockKey, name: &'static str, end: &'a str) -> Self {
        Self([key.namespace(), name, end])
    }

    /// The part that is not ours.
    pub(super) const fn of_user(self) -> &'a str {
        let [_, _, end] = self.0;
        end
    }

    /// The pattern of an ACL for names of its kind: for a lock without the prefix, its own name.
    pub(super) fn pattern(self, prefix: &str) -> String {
        match self.0 {
            ["", "", name] if !prefix.is_empty() && name.starts_with(prefix) => {
                beginning_with(prefix)
            }
            ["", "", name] => exactly(name),
            [namespace, ours, _] if ours.starts_with(RESERVED) => {
                beginning_with(&[namespace, RESERVED].concat())
            }
            [namespace, ours, _] => beginning_with(&[namespace, ours].concat()),
        }
    }

    pub(super) fn len(self) -> usize {
        self.0.map(str::len).iter().sum()
    }
}

/// The pattern of the names that begin so.
pub(super) fn beginning_with(prefix: &str) -> String {
    exactly(prefix) + "*"
}

/// The pattern of this name.
pub(super) fn exactly(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len() + 1);
    for c in name.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// A name of the user's.
impl<'a> From<&'a str> for Name<'a> {
    fn from(name: &'a str) -> Self {
        Self(["", "", name])
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| f.write_str(part))
    }
}

/// The list of the waiting tokens of a lock.
pub(in crate::store) fn queue(key: &LockKey) -> Name<'_> {
    Name::beside(key, "lock-core:queue:", key.tagged())
}

/// The hash of the data of the waiters.
pub(in crate::store) fn waiters(key: &LockKey) -> Name<'_> {
    Name::beside(key, "lock-core:waiters:", key.tagged())
}

/// The key of what is announced beside a lock, and its channel.
pub(in crate::store) fn announced(key: &LockKey, what: Beside) -> Name<'_> {
    Name::beside(key, what.0, key.tagged())
}

/// One counter for the whole database: a counter for each lock would stay for ever.
pub(super) fn fence(namespace: &str) -> Name<'_> {
    Name::ours(namespace, "lock-core:fence")
}

/// Prefix of the channel of a client, behind the namespace. The client id follows.
const CHANNELS: &str = "lock-core:client:";

/// The channel of a client.
pub(super) fn channel(namespace: &str, client: &ClientId) -> String {
    [namespace, CHANNELS, client.as_str()].concat()
}

/// Whether this is the channel of the client.
pub(super) fn is_channel_of(channel: &str, namespace: &str, client: &ClientId) -> bool {
    let name = channel.strip_prefix(namespace);
    name.and_then(|name| name.strip_prefix(CHANNELS)) == Some(client.as_str())
}

/// An argument of a script. Numbers are written without an allocation each.
#[derive(Clone, Copy)]
pub(in crate::store) enum Arg<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Millis(Duration),
    /// With a minus: the ttl of a lease that may end earlier than before.
    AlsoEarlier(Duration),
    Number(u64),
    /// What only a waiter needs, in one argument: each costs the server as much as a small command.
    Waits {
        mode: &'static str,
        alive_for: Duration,
        channel: &'a str,
    },
}

/// How a script of the user finds out that the lock is held.
pub(super) struct Guard<'a> {
    /// Pairs in Lua: a read of the lock, and its result if the lock is held. The reads remove the keys and the arguments in front
    /// of the script's own.
    pub(super) check: &'static str,
    pub(super) keys: Vec<Name<'a>>,
    pub(super) args: Vec<Arg<'a>>,
}

/// The keys and the arguments of `extend`. One call renews hundreds of leases, most of them with the same ttl.
pub(in crate::store) fn renewed<'a>(renewals: &[Renewal<'a>]) -> (Vec<Name<'a>>, Vec<Arg<'a>>) {
    let keys = renewals.iter().map(|r| r.key.lock().into()).collect();
    let mut args = Vec::with_capacity(renewals.len() + 1);
    args.extend(renewals.iter().map(|r| Arg::Bytes(r.token.as_bytes())));
    let ttl = |renewal: &Renewal<'_>| (renewal.ttl, renewal.shortens);
    match renewals.split_first() {
        Some((first, others)) if others.iter().all(|other| ttl(other) == ttl(first)) => {
            args.push(lease(first));
        }
        _ => args.extend(renewals.iter().map(lease)),
    }
    (keys, args)
}

/// The ttl of a renewal.
pub(super) fn lease<'a>(renewal: &Renewal<'_>) -> Arg<'a> {
    if renewal.shortens {
        Arg::AlsoEarlier(renewal.ttl)
    } else {
        Arg::Millis(renewal.ttl)
    }
}

/// Delivers a message of a script. Any other client can publish one as well, so an unknown message is ignored. A later version may
/// append words, and in `granted`, which ends with the name of the lock, to the word `0` or `1`, behind a comma.
///
/// - `granted`, `permit`: a grant, in the words of its kind
/// - `contended <token>`
/// - `revoked <token>`
/// - `free <token>`: ask now. From a node of a quorum, or where a waiter that polls, and may be dead, was granted the lock
/// - `behind`: carries nothing. It makes the server write to the client that was granted a lock before it writes to this one
pub(super) fn deliver(events: &dyn Events, serves: impl Fn(&str) -> bool, message: &str) {
    let (word, rest) = message.split_once(' ').unwrap_or((message, ""));
    let token = rest.split(' ').next().filter(|token| !token.is_empty());
    let grant = match word {
        "granted" => exclusive_grant::read(rest),
        "permit" => shared_grant::read(rest),
        _ => None,
    };
    let understood = match (word, grant, token) {
        (_, Some((token, grant, lock)), _) => {
            if serves(lock) {
                events.granted(token, grant, lock);
            }
            true
        }
        ("contended", _, Some(token)) => {
            events.contended(token);
            true
        }
        ("revoked", _, Some(token)) => {
            events.revoked(token);
            true
        }
        ("free", _, Some(token)) => {
            events.freed(token);
            true
        }
        (word, ..) => word == "behind",
    };
    if !understood {
        tracing::debug!("a message on our channel is not understood");
    }
}
