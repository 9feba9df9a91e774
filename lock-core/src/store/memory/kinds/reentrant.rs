//! The reentrant kind in memory: one owner, whose acquisitions are counted.

use std::collections::HashMap;

use crate::base::key::{LockKey, Prefix};
use crate::base::kind::Kind;
use crate::base::time::Moment;
use crate::base::token::{Bearer, CLIENT_LEN, Token};
use crate::store::memory::common::{Common, Message};
use crate::store::{Answer, Attempt, Released, Renewal, Snapshot, SnapshotState};

/// The reentrant locks that are held.
#[derive(Default)]
pub(crate) struct Reentrant {
    tenures: HashMap<Box<str>, Tenure>,
    /// The number of locks at which stale entries are swept out.
    sweep_at: usize,
}

/// From the first acquisition of an owner to its last release.
struct Tenure {
    owner: Box<str>,
    fence: u64,
    /// The client that began it.
    began: Bearer,
    /// The counted acquisitions.
    counted: Vec<Token>,
    expires: Moment,
}

impl Tenure {
    fn holds(&self) -> u64 {
        self.counted.len() as u64
    }

    /// Never shortens the lease: other holds may rely on more.
    fn prolong(&mut self, until: Moment) {
        self.expires = self.expires.max(until);
    }
}

/// An acquisition without an owner is its own owner.
fn or_token<'a>(owner: Option<&'a str>, token: &'a Token) -> &'a str {
    owner.unwrap_or_else(|| token.as_str())
}

impl Reentrant {
    /// The type of its key on a server, if a lock of this kind with this name is held.
    pub(super) fn held_as(&mut self, name: &str, now: Moment) -> Option<String> {
        self.tenure(name, now).map(|_| "hash".to_owned())
    }

    /// All of them in the namespace: such locks have no prefix, or one of their own.
    pub(crate) fn listed<'a>(&'a self, prefix: Prefix<'a>) -> impl Iterator<Item = LockKey> + 'a {
        let names = self.tenures.keys();
        let whole = Prefix {
            prefix: "",
            ..prefix
        };
        names.filter_map(move |name| LockKey::named(whole, name, Kind::Reentrant))
    }

    /// The tenure of a lock, unless it has expired.
    fn tenure(&mut self, name: &str, now: Moment) -> Option<&mut Tenure> {
        if self.tenures.get(name)?.expires <= now {
            self.tenures.remove(name);
        }
        self.tenures.get_mut(name)
    }

    pub(crate) fn acquire(&mut self, common: &mut Common, attempt: Attempt<'_>) -> Answer {
        let (name, token, now) = (attempt.key.lock(), attempt.token, common.now);
        let (owner, until) = (or_token(attempt.claim.owner(), token), now + attempt.ttl);
        let reserve = attempt.reserve;
        if let Some(tenure) = self.tenure(name, now) {
            if *tenure.owner != *owner {
                let remaining = now.until(tenure.expires);
                let holder = tenure.began.name.clone();
                return Answer::Busy { remaining, holder };
            }
            if !tenure.counted.contains(token) {
                tenure.counted.push(*token);
            }
            tenure.prolong(until);
            let fence = tenure.fence;
            return Answer::Granted { fence, reserve };
        }
        self.sweep(now);
        let fence = common.mint(reserve);
        let tenure = Tenure {
            owner: owner.into(),
            fence,
            began: Bearer::parse(token.bearer()),
            counted: vec![*token],
            expires: until,
        };
        self.tenures.insert(name.into(), tenure);
        Answer::Granted { fence, reserve }
    }

    pub(crate) fn release(
        &mut self,
        common: &mut Common,
        key: &LockKey,
        token: &Token,
        owner: Option<&str>,
    ) -> Released {
        let counted = self.tenure(key.lock(), common.now).and_then(|tenure| {
            let at = tenure.counted.iter().position(|t| t == token)?;
            (*tenure.owner == *or_token(owner, token)).then(|| {
                tenure.counted.swap_remove(at);
                tenure.holds()
            })
        });
        match counted {
            None => Released::NotHeld,
            Some(0) => {
                self.tenures.remove(key.lock());
                let heard = common.announce(key.lock());
                Released::Announced { heard }
            }
            Some(holds) => Released::StillHeld { holds },
        }
    }

    pub(crate) fn extend(&mut self, common: &Common, renewal: &Renewal<'_>) -> bool {
        let owner = or_token(renewal.claim.owner(), renewal.token);
        let tenure = self
            .tenure(renewal.key.lock(), common.now)
            .filter(|tenure| *tenure.owner == *owner && tenure.counted.contains(renewal.token));
        if let Some(tenure) = tenure {
            tenure.prolong(common.now + renewal.ttl);
            return true;
        }
        false
    }

    pub(crate) fn inspect(&mut self, common: &Common, key: &LockKey) -> Snapshot {
        let tenure = self.tenure(key.lock(), common.now);
        // Waiters only subscribe: there is no queue to count.
        Snapshot {
            waiting: 0,
            queue: Vec::new(),
            fence: tenure.as_ref().map_or(0, |tenure| tenure.fence),
            nodes: Vec::new(),
            state: tenure.map_or(SnapshotState::Free, |tenure| SnapshotState::Held {
                remaining: common.now.until(tenure.expires),
                client: tenure.owner.chars().take(CLIENT_LEN).collect(),
                holder: tenure.began.clone(),
                holds: tenure.holds(),
                owner: Some(tenure.owner.clone().into()),
            }),
        }
    }

    pub(crate) fn force_release(&mut self, common: &mut Common, key: &LockKey) -> bool {
        // Removes an expired tenure.
        self.tenure(key.lock(), common.now);
        let Some(tenure) = self.tenures.remove(key.lock()) else {
            return false;
        };
        // The old holders are notified first, as by the server.
        let revoked = tenure.counted.into_iter().map(Message::Revoked);
        common.outbox.extend(revoked);
        common.announce(key.lock());
        true
    }

    fn sweep(&mut self, now: Moment) {
        if self.tenures.len() >= self.sweep_at {
            self.tenures.retain(|_, tenure| tenure.expires > now);
            self.sweep_at = (self.tenures.len() * 2).max(64);
        }
    }
}
