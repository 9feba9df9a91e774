//! The exclusive kind in memory: one holder, and a queue of waiters.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::base::key::{LockKey, Prefix};
use crate::base::kind::Kind;
use crate::base::time::Moment;
use crate::base::token::{Bearer, Token};
use crate::store::memory::common::{Common, Message};
use crate::store::{
    Answer, Attempt, Forced, Grant, Mode, Passed, QueuePlace, Released, Renewal, Snapshot,
    SnapshotState,
};

/// Minimum reserved tokens of a queued waiter: other waiters may join its waiting line before the grant.
const RESERVE_IF_QUEUED: u64 = 7;

#[derive(Default)]
pub(crate) struct Exclusive {
    locks: HashMap<Box<str>, Slot>,
    /// The number of locks at which stale entries are swept out.
    sweep_at: usize,
}

#[derive(Default)]
struct Slot {
    holder: Option<Holder>,
    queue: VecDeque<QueuedWaiter>,
    /// The time until which each client counts as alive.
    alive: HashMap<Box<str>, Moment>,
}

struct Holder {
    token: Token,
    expires: Moment,
}

struct QueuedWaiter {
    token: Token,
    ttl: Duration,
    reserve: u64,
}

/// The waiter that was granted a lock.
enum Promotion {
    ToTheOneThatAsks { fence: u64 },
    ToAnother,
}

impl Slot {
    fn expire(&mut self, now: Moment) {
        self.holder.take_if(|holder| holder.expires <= now);
    }

    fn held_by(&self, token: &Token) -> bool {
        self.holder.as_ref().is_some_and(|h| h.token == *token)
    }
}

impl Exclusive {
    /// The type of its key on a server, if a lock of this kind with this name is held.
    pub(super) fn held_as(&mut self, name: &str, now: Moment) -> Option<String> {
        let slot = self.locks.get_mut(name)?;
        slot.expire(now);
        slot.holder.as_ref().map(|_| "string".to_owned())
    }

    pub(crate) fn acquire(&mut self, common: &mut Common, attempt: Attempt<'_>) -> Answer {
        let (key, token, now) = (attempt.key, attempt.token, common.now);
        let reserve = attempt.reserve;
        let granted = |fence| Answer::Granted { fence, reserve };
        let slot = self.slot(key, now);
        if slot.holder.is_none() {
            match self.grant_next(common, key, Some(&attempt)) {
                Some(Promotion::ToTheOneThatAsks { fence }) => return granted(fence),
                Some(Promotion::ToAnother) => {}
                None => {
                    self.slot(key, now).holder = Some(Holder {
                        token: *token,
                        expires: now + attempt.ttl,
                    });
                    self.tidy(key);
                    return granted(common.mint(reserve));
                }
            }
        } else if let Some(holder) = slot.holder.as_mut().filter(|h| h.token == *token) {
            // Never shorter: a delayed request may be older than the grant that its client relies on.
            holder.expires = holder.expires.max(now + attempt.ttl);
            return granted(common.mint(reserve));
        }
        match attempt.mode {
            Mode::Try => {
                let holder = self.slot(key, now).holder.as_ref();
                Answer::Busy {
                    remaining: holder.map_or(Duration::ZERO, |holder| now.until(holder.expires)),
                    holder: holder.map(|holder| holder.token.name().into()),
                }
            }
            Mode::Wait => Answer::Queued(self.enqueue(common, attempt)),
        }
    }

    fn enqueue(&mut self, common: &mut Common, attempt: Attempt<'_>) -> QueuePlace {
        let (token, now) = (attempt.token, common.now);
        let slot = self.slot(attempt.key, now);
        let waiter = QueuedWaiter {
            token: *token,
            ttl: attempt.ttl,
            reserve: attempt.reserve.max(RESERVE_IF_QUEUED),
        };
        match slot.queue.iter_mut().find(|known| known.token == *token) {
            Some(known) => *known = waiter,
            None => slot.queue.push_back(waiter),
        }
        slot.alive
            .insert(token.client().into(), now + attempt.alive_for);
        let holder = slot.holder.as_ref();
        let ours = holder.filter(|holder| holder.token.client() == token.client());
        // Each request of the first waiter notifies the holder that the lock is contended.
        let is_first = slot
            .queue
            .front()
            .is_some_and(|first| first.token == *token);
        if let Some(holder) = holder.filter(|_| is_first && ours.is_none()) {
            common.outbox.push(Message::Contended(holder.token));
        }
        QueuePlace {
            remaining: holder.map_or(Duration::ZERO, |holder| now.until(holder.expires)),
            last_fence: common.fence,
            holder: holder.map(|holder| holder.token.name().into()),
            own_holder: ours.map(|holder| holder.token.number()),
            is_foreign: false,
        }
    }

    pub(crate) fn pass(
        &mut self,
        common: &mut Common,
        attempt: Attempt<'_>,
        from: &Token,
    ) -> Passed {
        let slot = self.slot(attempt.key, common.now);
        if !slot.held_by(from) {
            self.tidy(attempt.key);
            return Passed::Lost;
        }
        slot.holder = None;
        Passed::On(self.acquire(common, attempt))
    }

    pub(crate) fn release(
        &mut self,
        common: &mut Common,
        key: &LockKey,
        token: &Token,
        _owner: Option<&str>,
    ) -> Released {
        let slot = self.slot(key, common.now);
        let released = if slot.held_by(token) {
            slot.holder = None;
            match self.grant_next(common, key, None) {
                Some(_) => Released::HandedOver,
                None => Released::Free,
            }
        } else {
            slot.queue.retain(|waiter| waiter.token != *token);
            Released::NotHeld
        };
        self.tidy(key);
        released
    }

    pub(crate) fn extend(&mut self, common: &Common, renewal: &Renewal<'_>) -> bool {
        let Some(slot) = self.locks.get_mut(renewal.key.lock()) else {
            return false;
        };
        slot.expire(common.now);
        let holder = slot.holder.as_mut().filter(|h| h.token == *renewal.token);
        let Some(holder) = holder else { return false };
        let end = common.now + renewal.ttl;
        if end > holder.expires || (renewal.shortens && !renewal.ttl.is_zero()) {
            holder.expires = end;
        }
        true
    }

    pub(crate) fn inspect(&mut self, common: &Common, key: &LockKey) -> Snapshot {
        let slot = self.slot(key, common.now);
        let queue = slot.queue.iter().take(100);
        let snapshot = Snapshot {
            waiting: slot.queue.len() as u64,
            queue: queue
                .map(|waiter| Bearer::parse(waiter.token.bearer()))
                .collect(),
            fence: common.fence,
            nodes: Vec::new(),
            state: match &slot.holder {
                None => SnapshotState::Free,
                Some(holder) => SnapshotState::Held {
                    remaining: common.now.until(holder.expires),
                    client: holder.token.client().to_owned(),
                    holder: Bearer::parse(holder.token.bearer()),
                    holds: 1,
                    owner: None,
                },
            },
        };
        self.tidy(key);
        snapshot
    }

    pub(crate) fn force_release(&mut self, common: &mut Common, key: &LockKey) -> Forced {
        let Some(holder) = self.slot(key, common.now).holder.take() else {
            self.tidy(key);
            return Forced::NotHeld;
        };
        // The old holder is notified first, as by the server.
        common.outbox.push(Message::Revoked(holder.token));
        self.grant_next(common, key, None);
        self.tidy(key);
        Forced::TakenAway
    }

    pub(crate) fn listed<'a>(&'a self, prefix: Prefix<'a>) -> impl Iterator<Item = LockKey> + 'a {
        let names = self.locks.keys();
        names.filter_map(move |name| LockKey::named(prefix, name, Kind::Exclusive))
    }

    /// The slot of a lock, without a holder whose lease has expired.
    fn slot(&mut self, key: &LockKey, now: Moment) -> &mut Slot {
        if !self.locks.contains_key(key.lock()) {
            self.sweep(now);
        }
        let slot = self.locks.entry(key.lock().into()).or_default();
        slot.expire(now);
        slot
    }

    fn sweep(&mut self, now: Moment) {
        if self.locks.len() < self.sweep_at {
            return;
        }
        self.locks.retain(|_, slot| {
            slot.expire(now);
            slot.holder.is_some() || slot.alive.values().any(|until| *until > now)
        });
        self.sweep_at = (self.locks.len() * 2).max(64);
    }

    /// Grants the lock to the first live waiter. Sends it a message, unless it sent the request `asking`.
    fn grant_next(
        &mut self,
        common: &mut Common,
        key: &LockKey,
        asking: Option<&Attempt<'_>>,
    ) -> Option<Promotion> {
        let (slot, now) = (self.locks.get_mut(key.lock())?, common.now);
        loop {
            let waiter = slot.queue.pop_front()?;
            let ours = asking.filter(|attempt| *attempt.token == waiter.token);
            let client = waiter.token.client();
            let alive = slot.alive.get(client).is_some_and(|until| *until > now)
                && common.clients.contains_key(client);
            if !(ours.is_some() || alive) {
                continue;
            }
            let contended = !slot.queue.is_empty();
            // The queue has the terms of an earlier request.
            let asked = (waiter.ttl, waiter.reserve);
            let (ttl, reserve) = ours.map_or(asked, |attempt| (attempt.ttl, attempt.reserve));
            let fence = common.mint(reserve);
            slot.holder = Some(Holder {
                token: waiter.token,
                expires: now + ttl,
            });
            if ours.is_some() {
                if contended {
                    common.outbox.push(Message::Contended(waiter.token));
                }
                return Some(Promotion::ToTheOneThatAsks { fence });
            }
            let grant = Grant {
                kind: key.kind(),
                order: fence,
                fence,
                reserve,
                contended,
                ttl,
            };
            let message = Message::Granted(waiter.token, grant, key.lock().into());
            common.outbox.push(message);
            return Some(Promotion::ToAnother);
        }
    }

    /// Forgets a lock without holder and waiters.
    fn tidy(&mut self, key: &LockKey) {
        if let Some(slot) = self.locks.get_mut(key.lock())
            && slot.queue.is_empty()
        {
            slot.alive.clear();
            if slot.holder.is_none() {
                self.locks.remove(key.lock());
            }
        }
    }
}
