//! The kinds whose waiters queue, in memory: holders with a number of permits each. An exclusive lock has one permit.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::base::beside::Beside;
use crate::base::key::{LockKey, Prefix};
use crate::base::kind::{Kind, Numbers, Reweigh};
use crate::base::refusal::Refusal;
use crate::base::share::Share;
use crate::base::time::Moment;
use crate::base::token::{Bearer, Token};
use crate::store::memory::common::{Common, Message};
use crate::store::{
    Answer, Attempt, Grant, HolderSnapshot, Mode, Passed, QueuePlace, Released, Renewal, Reweighed,
    Snapshot, SnapshotState,
};

/// Minimum reserved tokens of a queued waiter: other waiters may join its waiting line before the grant.
const RESERVE_IF_QUEUED: u64 = 7;

/// Time for which the number of permits before a resize stays known.
const KEEP: Duration = Duration::from_secs(24 * 3600);

/// The locks of one of these kinds.
pub(crate) struct Permits {
    kind: Kind,
    locks: HashMap<Box<str>, SharedSlot>,
    /// The number of locks at which stale entries are swept out.
    sweep_at: usize,
}

#[derive(Default)]
struct SharedSlot {
    max: u32,
    /// The max before the last resize, and until when an idle lock remembers it.
    before: Option<(u32, Moment)>,
    holders: Vec<ShareHolder>,
    queue: VecDeque<QueuedShare>,
    /// The time until which each client counts as alive.
    alive: HashMap<Box<str>, Moment>,
    /// Of the last grant: the fencing token, and its holder.
    fence: u64,
    last: Option<Token>,
}

/// A record beside a lock, and what it says of the holder.
type NamedBy = (Beside, Box<str>);

#[derive(Clone)]
pub(super) struct ShareHolder {
    token: Token,
    weight: u32,
    pub(super) fence: u64,
    pub(super) expires: Moment,
    /// The record that names it to others.
    pub(super) named: Option<NamedBy>,
}

struct QueuedShare {
    token: Token,
    ttl: Duration,
    weight: u32,
    reserve: u64,
    /// As of a holder.
    named: Option<NamedBy>,
}

impl SharedSlot {
    fn expire(&mut self, now: Moment) {
        self.holders.retain(|holder| holder.expires > now);
        self.before.take_if(|(_, until)| *until <= now);
        if self.queue.is_empty() {
            self.alive.clear();
        }
    }

    fn is_over(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty() && self.before.is_none()
    }

    fn used(&self) -> u32 {
        self.holders.iter().map(|holder| holder.weight).sum()
    }

    fn holder(&mut self, token: &Token) -> Option<&mut ShareHolder> {
        self.holders.iter_mut().find(|h| h.token == *token)
    }

    /// Whether this number of permits, or more, is not in use.
    fn has(&self, weight: u32) -> bool {
        self.used().saturating_add(weight) <= self.max
    }

    fn knows(&self, max: u32) -> bool {
        self.max == max || self.before.is_some_and(|(before, _)| before == max)
    }

    /// The time until a holder may expire.
    fn remaining(&self, now: Moment) -> Duration {
        let ends = self.holders.iter().map(|holder| holder.expires);
        ends.min().map_or(Duration::ZERO, |end| now.until(end))
    }
}

impl Permits {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            locks: HashMap::new(),
            sweep_at: 0,
        }
    }

    /// What a lock of this kind with this name is for the other kinds, if it is held.
    pub(super) fn held_as(&mut self, name: &str, now: Moment) -> Option<String> {
        let slot = self.locks.get_mut(name)?;
        slot.expire(now);
        let traits = self.kind.traits();
        let shown = if traits.is_shared {
            traits.name
        } else {
            "string"
        };
        (!slot.holders.is_empty()).then(|| shown.to_owned())
    }

    /// The holder of a lock that has one at the most.
    pub(super) fn holder(&mut self, key: &LockKey, now: Moment) -> Option<&ShareHolder> {
        let slot = self.locks.get_mut(key.lock())?;
        slot.expire(now);
        slot.holders.first()
    }

    pub(crate) fn acquire(&mut self, common: &mut Common, attempt: Attempt<'_>) -> Answer {
        let Attempt {
            key,
            token,
            reserve,
            ..
        } = attempt;
        let (now, Share { weight, max }) = (common.now, attempt.claim.share);
        let slot = self.slot(key, now);
        if let Some(holder) = slot.holder(token) {
            // Never shorter: a delayed request may be older than the grant that its client relies on.
            holder.expires = holder.expires.max(now + attempt.ttl);
            // A holder that is named keeps the number that others have seen.
            if key.traits().numbers == Numbers::Hold && holder.named.is_none() {
                holder.fence = common.mint(reserve);
            }
            let fence = holder.fence;
            return Answer::Granted { fence, reserve };
        }
        if !slot.knows(max) {
            // Waiters that have died keep no number.
            self.serve(common, key, None);
            let slot = self.slot(key, now);
            if !slot.is_over() {
                return Answer::Refused(Refusal::OtherMax(slot.max));
            }
            slot.max = max;
        }
        let slot = self.slot(key, now);
        if weight > slot.max {
            return Answer::Refused(Refusal::TooMany(slot.max));
        }
        self.serve(common, key, Some(&attempt));
        let slot = self.slot(key, now);
        if let Some(holder) = slot.holder(token) {
            let fence = holder.fence;
            return Answer::Granted { fence, reserve };
        }
        let waiter = QueuedShare {
            token: *token,
            ttl: attempt.ttl,
            weight,
            reserve,
            named: key
                .traits()
                .named_in
                .zip(attempt.claim.value().map(Box::from)),
        };
        if slot.queue.is_empty() && slot.has(weight) {
            let fence = self.admit(common, key, &waiter);
            return Answer::Granted { fence, reserve };
        }
        if attempt.mode == Mode::Try {
            return Answer::Busy {
                remaining: slot.remaining(now),
                holder: slot.last.map(|last| last.name().into()),
            };
        }
        Answer::Queued(self.enqueue(common, &attempt, waiter))
    }

    fn enqueue(
        &mut self,
        common: &mut Common,
        attempt: &Attempt<'_>,
        mut waiter: QueuedShare,
    ) -> QueuePlace {
        let (token, now) = (waiter.token, common.now);
        waiter.reserve = waiter.reserve.max(RESERVE_IF_QUEUED);
        let slot = self.slot(attempt.key, now);
        match slot.queue.iter_mut().find(|known| known.token == token) {
            Some(known) => *known = waiter,
            None => slot.queue.push_back(waiter),
        }
        let alive_until = now + attempt.alive_for;
        slot.alive.insert(token.client().into(), alive_until);
        let holder = slot.last.filter(|_| attempt.key.traits().hands_over);
        let ours = holder.filter(|holder| holder.client() == token.client());
        let is_first = slot.queue.front().is_some_and(|it| it.token == token);
        // Each request of the first waiter notifies the holder that the lock is contended.
        if let Some(holder) = holder.filter(|_| is_first && ours.is_none()) {
            common.outbox.push(Message::Contended(holder));
        }
        QueuePlace {
            remaining: slot.remaining(now),
            last_fence: common.last_grant,
            holder: slot.last.map(|last| last.name().into()),
            own_holder: ours.map(|holder| holder.number()),
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
        if slot.holder(from).is_none() {
            self.tidy(attempt.key, common.now);
            return Passed::Lost;
        }
        slot.holders.retain(|holder| holder.token != *from);
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
        let held = slot.holder(token).is_some();
        let named = slot.holder(token).and_then(|it| it.named.take());
        slot.holders.retain(|holder| holder.token != *token);
        slot.queue.retain(|waiter| waiter.token != *token);
        let served = self.serve(common, key, None);
        self.tidy(key, common.now);
        if let Some((record, _)) = named {
            common.announce(&key.name_of(record));
        }
        match (held, served) {
            (false, _) => Released::NotHeld,
            (true, 0) => Released::Free,
            (true, _) => Released::HandedOver,
        }
    }

    /// Only an exclusive lease may end earlier than before.
    pub(crate) fn extend(&mut self, common: &Common, renewal: &Renewal<'_>) -> bool {
        let Some(slot) = self.locks.get_mut(renewal.key.lock()) else {
            return false;
        };
        slot.expire(common.now);
        let Some(holder) = slot.holder(renewal.token) else {
            return false;
        };
        let end = common.now + renewal.ttl;
        let shortens = renewal.shortens && !renewal.key.traits().is_shared;
        if end > holder.expires || (shortens && !renewal.ttl.is_zero()) {
            holder.expires = end;
        }
        true
    }

    pub(crate) fn inspect(&mut self, common: &Common, key: &LockKey) -> Snapshot {
        let now = common.now;
        let slot = self.slot(key, now);
        let bearer = |token: &Token| Bearer::parse(token.bearer());
        let members = slot.holders.iter().take(100).map(|holder| HolderSnapshot {
            client: holder.token.client().to_owned(),
            holder: bearer(&holder.token),
            weight: holder.weight,
            remaining: now.until(holder.expires),
        });
        let queue = slot.queue.iter().take(100);
        let snapshot = Snapshot {
            waiting: slot.queue.len() as u64,
            queue: queue.map(|waiter| bearer(&waiter.token)).collect(),
            // Of an exclusive lock, an upper bound.
            fence: match key.traits().numbers {
                Numbers::Hold => common.fence,
                Numbers::Phase | Numbers::Permit => slot.fence,
            },
            nodes: Vec::new(),
            state: match slot.holders.first() {
                None => SnapshotState::Free,
                Some(_) if key.traits().is_shared => SnapshotState::Shared {
                    used: slot.used(),
                    max: slot.max,
                    members: members.collect(),
                },
                Some(holder) => SnapshotState::Held {
                    remaining: now.until(holder.expires),
                    client: holder.token.client().to_owned(),
                    holder: bearer(&holder.token),
                    holds: 1,
                    owner: None,
                },
            },
        };
        self.tidy(key, now);
        snapshot
    }

    pub(crate) fn force_release(&mut self, common: &mut Common, key: &LockKey) -> bool {
        let slot = self.slot(key, common.now);
        let revoked = std::mem::take(&mut slot.holders);
        // The old holders are notified first, as by the server.
        let messages = revoked.iter().map(|holder| Message::Revoked(holder.token));
        common.outbox.extend(messages);
        for (record, _) in revoked.iter().filter_map(|it| it.named.as_ref()) {
            common.announce(&key.name_of(*record));
        }
        self.serve(common, key, None);
        self.tidy(key, common.now);
        !revoked.is_empty()
    }

    /// Makes a reader a writer, or a writer a reader.
    pub(in crate::store) fn reweigh(
        &mut self,
        common: &mut Common,
        key: &LockKey,
        token: &Token,
        from: u64,
        to: Reweigh,
    ) -> Reweighed {
        self.serve(common, key, None);
        let slot = self.slot(key, common.now);
        let (waiting, used, max) = (!slot.queue.is_empty(), slot.used(), slot.max);
        let Some(holder) = slot.holder(token) else {
            return Reweighed::NotHeld;
        };
        let repeated = to == Reweigh::ToWriter && holder.weight == max;
        if holder.fence != from && !repeated {
            return Reweighed::NotHeld;
        }
        match to {
            Reweigh::ToReader => holder.weight = 1,
            Reweigh::ToWriter if repeated => {}
            Reweigh::ToWriter if waiting || used > 1 => return Reweighed::NotAlone,
            Reweigh::ToWriter => {
                (holder.weight, holder.fence) = (max, common.mint(0));
                slot.fence = common.fence;
            }
        }
        let fence = self.slot(key, common.now).fence;
        self.serve(common, key, None);
        Reweighed::Done { fence }
    }

    /// Changes the number of permits. False if there is none to change.
    pub(in crate::store) fn resize(
        &mut self,
        common: &mut Common,
        key: &LockKey,
        from: u32,
        to: u32,
    ) -> Result<bool, Refusal> {
        self.serve(common, key, None);
        let slot = self.slot(key, common.now);
        if slot.is_over() {
            self.tidy(key, common.now);
            return Ok(false);
        }
        if slot.max != to && slot.max != from {
            return Err(Refusal::OtherMax(slot.max));
        }
        // Also if it has this number already, and the one before is not known.
        if slot.max != to || (slot.before.is_none() && from != to) {
            slot.before = Some((from, common.now + KEEP));
            slot.max = to;
            self.serve(common, key, None);
        }
        Ok(true)
    }

    pub(crate) fn listed<'a>(&'a self, prefix: Prefix<'a>) -> impl Iterator<Item = LockKey> + 'a {
        let names = self.locks.keys();
        names.filter_map(move |name| LockKey::named(prefix, name, self.kind))
    }

    /// The slot of a lock, without holders whose leases have expired.
    fn slot(&mut self, key: &LockKey, now: Moment) -> &mut SharedSlot {
        if !self.locks.contains_key(key.lock()) {
            self.sweep(now);
            let slot = SharedSlot::default();
            self.locks.insert(key.lock().into(), slot);
        }
        let Some(slot) = self.locks.get_mut(key.lock()) else {
            unreachable!("it is there now")
        };
        slot.expire(now);
        slot
    }

    fn sweep(&mut self, now: Moment) {
        if self.locks.len() < self.sweep_at {
            return;
        }
        self.locks.retain(|_, slot| {
            slot.expire(now);
            let waits = slot.alive.values().any(|until| *until > now);
            waits || !slot.holders.is_empty() || slot.before.is_some()
        });
        self.sweep_at = (self.locks.len() * 2).max(64);
    }

    /// Forgets a lock of which nothing is left.
    fn tidy(&mut self, key: &LockKey, now: Moment) {
        if self.slot(key, now).is_over() {
            self.locks.remove(key.lock());
        }
    }

    /// Adds a holder. Returns its number.
    fn admit(&mut self, common: &mut Common, key: &LockKey, waiter: &QueuedShare) -> u64 {
        let now = common.now;
        let slot = self.slot(key, now);
        common.last_grant = (common.last_grant + 1).max(now.0 / 1000);
        match key.traits().numbers {
            Numbers::Hold => {
                slot.fence = common.mint(waiter.reserve);
                common.last_grant = common.last_grant.max(common.fence);
            }
            // A writer, and the first reader of a phase: the readers that join share it.
            Numbers::Phase if slot.holders.is_empty() => slot.fence = common.mint(0),
            Numbers::Phase => {}
            Numbers::Permit => slot.fence = common.last_grant,
        }
        slot.last = Some(waiter.token);
        slot.holders.push(ShareHolder {
            token: waiter.token,
            weight: waiter.weight,
            fence: slot.fence,
            expires: now + waiter.ttl,
            named: waiter.named.clone(),
        });
        let fence = slot.fence;
        if let Some((record, _)) = waiter.named {
            common.announce(&key.name_of(record));
        }
        fence
    }

    /// Grants permits to the head of the queue while it fits, and drops dead heads. Returns the number of grants. The waiter that
    /// makes the request `asking` is live, and its terms are those of this request; it gets no grant by a message.
    fn serve(&mut self, common: &mut Common, key: &LockKey, asking: Option<&Attempt<'_>>) -> usize {
        let now = common.now;
        let mut grants = 0;
        loop {
            let slot = self.slot(key, now);
            let Some(head) = slot.queue.front().filter(|_| slot.has(1)) else {
                return grants;
            };
            let ours = asking.filter(|attempt| *attempt.token == head.token);
            let client = head.token.client();
            let alive = slot.alive.get(client).is_some_and(|until| *until > now)
                && common.clients.contains_key(client);
            // After a resize: the waiter is told when it asks.
            let fits_never = head.weight > slot.max;
            let drops = (ours.is_none() && !alive) || fits_never;
            if !drops && !slot.has(head.weight) {
                return grants;
            }
            let Some(mut waiter) = slot.queue.pop_front() else {
                return grants;
            };
            if drops {
                if fits_never {
                    common.outbox.push(Message::Freed(waiter.token));
                }
                continue;
            }
            let contended = !slot.queue.is_empty();
            if let Some(attempt) = ours {
                (waiter.ttl, waiter.reserve) = (attempt.ttl, attempt.reserve);
            }
            let (token, ttl, reserve) = (waiter.token, waiter.ttl, waiter.reserve);
            let fence = self.admit(common, key, &waiter);
            grants += 1;
            if ours.is_none() {
                let grant = Grant {
                    kind: key.kind(),
                    order: common.last_grant,
                    fence,
                    reserve,
                    contended,
                    ttl,
                };
                let message = Message::Granted(token, grant, key.lock().into());
                common.outbox.push(message);
            } else if contended && key.traits().hands_over {
                common.outbox.push(Message::Contended(token));
            }
        }
    }
}
