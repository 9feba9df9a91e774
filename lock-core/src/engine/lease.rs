//! A lease: a grant of the server, judged by the local clock alone.
//!
//! A lease outlives the guards that use it: local hand-over passes it from guard to guard, and the guards of one owner share one.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::futures::Notified;

use super::extension::Extension;
use crate::base::error::LossReason;
use crate::base::signal::Signal;
use crate::base::sync::{lock, when_unlocked};
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::store::StoreError;

/// The grant that starts a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    /// The moment before the request was sent, on the lease clock.
    pub(crate) sent_at: Moment,
    /// The grant came as a message, so the lease is older than the grant.
    pub(crate) pushed: bool,
    /// Whether the watchdog renews it.
    pub(crate) renew: bool,
    /// The fencing token, which an owner keeps for as long as it has the lock.
    pub(crate) fence: u64,
}

/// The effect of a grant on the lease that its owner has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    Shares,
    /// The lease is over. The times of the grant decide whether the grant is good.
    Over,
    /// The grant is older than the lease, and was over before the lease began: its client has not run since.
    Outdated,
}

/// The status of a hold or a lease at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Pending,
    Held,
    Released,
    Lost(LossReason),
}

const HELD: u8 = 0;
const RELEASED: u8 = 1;
/// The codes of the reasons follow.
const LOST: u8 = 2;
const REASONS: [LossReason; 5] = [
    LossReason::Expired,
    LossReason::Gone,
    LossReason::ForceReleased,
    LossReason::MaxHold,
    LossReason::ShutDown,
];

/// A reason in one byte.
pub(super) fn loss_code(reason: LossReason) -> u8 {
    REASONS
        .iter()
        .position(|known| *known == reason)
        .unwrap_or(0) as u8
}

pub(super) fn loss_of(code: u8) -> LossReason {
    REASONS[usize::from(code)]
}

/// The last renewal was confirmed.
const FINE: u8 = 0;
/// Renewals fail.
const FAILING: u8 = 1;
/// Renewals fail, and the log has named the lock.
const NAMED: u8 = 2;
/// The lease was lost while renewals failed, and is counted.
const COUNTED: u8 = 3;

/// How long before its end a lease that is not renewed is named.
const BEFORE_END: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Lease {
    /// `HELD`, `RELEASED`, or `LOST` and a reason. Nothing leads out of the last two.
    phase: AtomicU8,
    /// The fencing token with which the lease began.
    fence: u64,
    /// End of the lease as confirmed by the server.
    deadline: AtomicU64,
    renew_at: AtomicU64,
    users: Mutex<Users>,
    /// The single renewal of a fixed lease that was granted by a message is still due.
    owed: AtomicBool,
    /// An extension to an earlier end was sent, and is not confirmed yet.
    shortens: AtomicBool,
    /// Number of renewals under way.
    under_way: AtomicU8,
    /// What the log has to say, one of `FINE` to `COUNTED`.
    trouble: AtomicU8,
    /// Made by the first watcher: few leases have one.
    watched: OnceLock<Arc<Watched>>,
}

/// The part of a lease that its watchers need.
#[derive(Debug, Default)]
struct Watched {
    changed: Signal,
    extension: Mutex<Extension>,
}

/// The users of a lease.
#[derive(Debug)]
struct Users {
    all: u32,
    /// Number of users with renewal.
    renewing: u32,
    /// The longest terms that any user asked for.
    terms: Terms,
}

impl Lease {
    /// Begins a lease with its first user. Returns `None` if the grant came later than the lease lasts.
    pub(crate) fn begin(now: Moment, terms: Terms, start: Start) -> Option<Self> {
        let deadline = terms.deadline(start.sent_at);
        if deadline <= now {
            return None;
        }
        let renew_at = if start.renew {
            first_renewal(terms, start.sent_at)
        } else if start.pushed {
            // The lease began before the grant. One renewal gives the holder the ttl that was asked for.
            now
        } else {
            Moment::NEVER
        };
        Some(Self {
            phase: AtomicU8::new(HELD),
            fence: start.fence,
            deadline: AtomicU64::new(deadline.0),
            renew_at: AtomicU64::new(renew_at.0),
            users: Mutex::new(Users {
                all: 1,
                renewing: u32::from(start.renew),
                terms,
            }),
            owed: AtomicBool::new(start.pushed && !start.renew),
            shortens: AtomicBool::new(false),
            under_way: AtomicU8::new(0),
            trouble: AtomicU8::new(FINE),
            watched: OnceLock::new(),
        })
    }

    /// Adds a user: the same owner has acquired again. This is not possible if the lease is over, or if the owner got a newer
    /// fencing token, and thus the lock anew.
    pub(crate) fn join(&self, now: Moment, terms: Terms, start: Start) -> Joined {
        let mut users = lock(&self.users);
        if start.fence < self.fence {
            return Joined::Outdated;
        }
        if start.fence > self.fence {
            self.lose(LossReason::Gone);
        }
        if self.status(now) != Status::Held {
            return Joined::Over;
        }
        users.all += 1;
        let longer = terms.ttl() > users.terms.ttl();
        if longer {
            users.terms = terms;
        }
        if start.renew {
            users.renewing += 1;
            if users.renewing == 1 || longer {
                self.renew_at
                    .fetch_min(first_renewal(terms, start.sent_at).0, Ordering::SeqCst);
            }
        }
        self.deadline
            .fetch_max(terms.deadline(start.sent_at).0, Ordering::SeqCst);
        Joined::Shares
    }

    /// Removes a user. Returns true if it was the last one: the lease is then over.
    pub(crate) fn leave(&self, renewing: bool) -> bool {
        let mut users = lock(&self.users);
        users.all = users.all.saturating_sub(1);
        users.renewing = users.renewing.saturating_sub(u32::from(renewing));
        if users.renewing == 0 {
            self.renew_at.store(Moment::NEVER.0, Ordering::SeqCst);
        }
        if users.all == 0 {
            self.ends(RELEASED);
        }
        users.all == 0
    }

    /// A confirmed renewal. It never shortens a lease and never revives one.
    fn prolong(&self, now: Moment, deadline: Moment) {
        if self.status(now) == Status::Held {
            self.deadline.fetch_max(deadline.0, Ordering::SeqCst);
        }
    }

    /// The status at `now`. The first call after the end makes the loss final, whatever a renewal in flight brings.
    pub(crate) fn status(&self, now: Moment) -> Status {
        if now >= self.end() && !self.is_over() {
            self.lose(LossReason::Expired);
        }
        match self.phase.load(Ordering::SeqCst) {
            HELD => Status::Held,
            RELEASED => Status::Released,
            lost => Status::Lost(loss_of(lost - LOST)),
        }
    }

    /// Whether the lease was released, or a loss was seen.
    pub(crate) fn is_over(&self) -> bool {
        self.phase.load(Ordering::SeqCst) != HELD
    }

    /// End of the lease if the server confirms nothing more.
    pub(crate) fn end(&self) -> Moment {
        Moment(self.deadline.load(Ordering::SeqCst))
    }

    /// Ends the lease as lost, for all its users. Returns false if it was over already.
    pub(crate) fn lose(&self, reason: LossReason) -> bool {
        let lost = self.ends(LOST + loss_code(reason));
        if lost {
            self.announce();
        }
        lost
    }

    fn ends(&self, as_what: u8) -> bool {
        let order = Ordering::SeqCst;
        let ended = self.phase.compare_exchange(HELD, as_what, order, order);
        ended.is_ok()
    }

    /// Wakes all watchers of the lease and of its holds.
    pub(crate) fn announce(&self) {
        // Either this thread sees the watcher, or the watcher sees the announced state when it looks.
        fence(Ordering::SeqCst);
        if let Some(watched) = self.watched.get() {
            let watched = Arc::clone(watched);
            when_unlocked(move || watched.changed.notify_waiters());
        }
    }

    /// Resolves with the next loss, or the next end of an extension, that is announced after this call. The caller must watch the
    /// deadline itself. It must also look for an earlier announcement, after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        let watched = self.watched.get_or_init(Arc::default);
        fence(Ordering::SeqCst);
        watched.changed.notified()
    }

    /// The terms of all later renewals. Returns the number of this call. The task must sweep now.
    pub(crate) fn extend(&self, now: Moment, terms: Terms) -> u64 {
        let users = lock(&self.users);
        let watched = self.watched.get_or_init(Arc::default);
        let number = lock(&watched.extension).ask(terms);
        if self.under_way.load(Ordering::SeqCst) == 0 {
            self.confirm_at(now);
        }
        drop(users);
        number
    }

    /// How the extension with this number ended, if it has.
    pub(crate) fn extended(&self, number: u64) -> Option<Result<(), StoreError>> {
        let watched = self.watched.get()?;
        lock(&watched.extension).outcome(number)
    }

    /// Number of users.
    pub(crate) fn users(&self) -> u32 {
        lock(&self.users).all
    }

    pub(crate) fn terms(&self) -> Terms {
        lock(&self.users).terms
    }

    /// The lock was handed to a waiter that has not run since, so its lease is not renewed for now.
    pub(crate) fn renews_later(&self, now: Moment) {
        let later = now + self.terms().ttl() / 12;
        self.renew_at.store(later.0, Ordering::SeqCst);
    }

    /// When it is renewed or ends.
    pub(super) fn due(&self) -> Moment {
        self.renew_at().min(self.end())
    }

    /// Moment of the next renewal.
    pub(crate) fn renew_at(&self) -> Moment {
        Moment(self.renew_at.load(Ordering::SeqCst))
    }

    /// Messages may have been missed: by `moment` the task asks the server whether it still has the lease.
    pub(crate) fn confirm_at(&self, moment: Moment) {
        self.renew_at.fetch_min(moment.0, Ordering::SeqCst);
    }

    /// A renewal starts. Returns its terms, and false if a fixed lease is confirmed, not prolonged. Returns `None` if it has to wait
    /// for another one, because an extension comes next.
    pub(crate) fn renewing(&self, now: Moment) -> Option<(Terms, bool)> {
        let mut users = lock(&self.users);
        self.renew_at.store(Moment::NEVER.0, Ordering::SeqCst);
        let alone = self.under_way.load(Ordering::SeqCst) == 0;
        if !alone && self.is_extension_wanted() {
            return None;
        }
        self.count_under_way(|count| count.saturating_add(1));
        if let Some(watched) = self.watched.get()
            && let Some(terms) = lock(&watched.extension).send()
        {
            // Other guards of the same owner keep the ttl that they asked for.
            if users.all == 1 || terms.ttl() > users.terms.ttl() {
                users.terms = terms;
            }
            self.owed.store(true, Ordering::SeqCst);
            // Before the server may shorten the lease.
            let deadline = users.terms.deadline(now);
            self.shortens
                .fetch_or(deadline < self.end(), Ordering::SeqCst);
            self.deadline.fetch_min(deadline.0, Ordering::SeqCst);
        }
        let prolongs = users.renewing > 0 || self.owed.load(Ordering::SeqCst);
        Some((users.terms, prolongs))
    }

    /// Whether a renewal may make the end on the server earlier.
    pub(crate) fn shortens(&self) -> bool {
        self.shortens.load(Ordering::SeqCst)
    }

    /// Whether an extension was asked for that no renewal was sent with.
    pub(crate) fn is_extension_wanted(&self) -> bool {
        let extension = self.watched.get().map(|watched| lock(&watched.extension));
        extension.is_some_and(|extension| extension.is_wanted())
    }

    /// Changes the number of renewals under way, under the lock of the users. Returns the number before.
    fn count_under_way(&self, change: impl FnOnce(u8) -> u8) -> u8 {
        let count = self.under_way.load(Ordering::SeqCst);
        self.under_way.store(change(count), Ordering::SeqCst);
        count
    }

    /// A renewal has ended. Returns true if an extension waits for it: the next renewal is due at once.
    fn renewal_ended(&self, _users: &Users) -> bool {
        let before = self.count_under_way(|count| count.saturating_sub(1));
        before <= 1 && self.is_extension_wanted()
    }

    /// The server confirmed a renewal for `terms`, sent at `sent_at`. Returns the moment of the next renewal.
    pub(crate) fn renewed(&self, now: Moment, sent_at: Moment, terms: Terms) -> Moment {
        self.trouble.store(FINE, Ordering::Relaxed);
        self.prolong(now, terms.deadline(sent_at));
        self.owed.store(false, Ordering::SeqCst);
        self.shortens.store(false, Ordering::SeqCst);
        let users = lock(&self.users);
        let at = if users.renewing > 0 {
            sent_at + terms.third()
        } else {
            Moment::NEVER
        };
        let next = self.next_renewal(&users, now, at);
        drop(users);
        if let Some(watched) = self.watched.get()
            && lock(&watched.extension).confirm()
        {
            self.announce();
        }
        next
    }

    /// The server has the lease still, whose end it has not changed. Returns the moment of the next renewal.
    pub(crate) fn confirmed(&self, now: Moment) -> Moment {
        self.trouble.store(FINE, Ordering::Relaxed);
        let users = lock(&self.users);
        self.next_renewal(&users, now, self.renew_at())
    }

    /// A renewal got no answer, or a refusal: it changes no deadline, and is repeated. Returns the moment of the next one.
    pub(crate) fn failed(&self, now: Moment, error: &StoreError) -> Moment {
        self.is_doubted();
        let again = match error {
            // The refusal lasts until an operator changes the rights, so the repetitions are few.
            StoreError::Misconfigured(_) => self.again_after(now, self.terms().ttl() / 6),
            _ => self.not_renewed(now),
        };
        if let Some(watched) = self.watched.get()
            && lock(&watched.extension).fail(error)
        {
            self.announce();
        }
        again
    }

    /// The server may have lost it in an outage.
    pub(crate) fn is_doubted(&self) {
        self.changes_trouble(FINE, FAILING);
    }

    fn changes_trouble(&self, from: u8, to: u8) -> bool {
        let relaxed = Ordering::Relaxed;
        let changed = self.trouble.compare_exchange(from, to, relaxed, relaxed);
        changed.is_ok()
    }

    /// Whether the last renewal has failed.
    pub(crate) fn is_failing(&self) -> bool {
        matches!(self.trouble.load(Ordering::Relaxed), FAILING | NAMED)
    }

    /// When the log names the lock, if its renewals fail and it was not named yet.
    pub(crate) fn is_named_at(&self) -> Option<Moment> {
        let is_due = self.trouble.load(Ordering::Relaxed) == FAILING;
        is_due.then(|| Moment(self.end().0.saturating_sub(BEFORE_END.as_nanos() as u64)))
    }

    /// The log names the lock.
    pub(crate) fn name(&self) {
        self.changes_trouble(FAILING, NAMED);
    }

    /// Whether the lease was lost while renewals failed. True once.
    pub(crate) fn counts_as_lost(&self) -> bool {
        self.changes_trouble(NAMED, COUNTED) || self.changes_trouble(FAILING, COUNTED)
    }

    /// A renewal has changed nothing, and is repeated soon.
    pub(crate) fn not_renewed(&self, now: Moment) -> Moment {
        let pause = self.terms().ttl() / 20;
        self.again_after(
            now,
            pause.clamp(Duration::from_millis(5), Duration::from_millis(250)),
        )
    }

    fn again_after(&self, now: Moment, pause: Duration) -> Moment {
        let users = lock(&self.users);
        // A fixed lease that was granted by a message repeats its single renewal, too.
        self.next_renewal(&users, now, now + pause.mul_f64(0.5 + fastrand::f64()))
    }

    fn next_renewal(&self, users: &Users, now: Moment, at: Moment) -> Moment {
        let next = if self.renewal_ended(users) { now } else { at };
        self.renew_at.store(next.0, Ordering::SeqCst);
        next
    }
}

/// Spreads the first renewals, so that locks acquired together are not renewed at one instant.
fn first_renewal(terms: Terms, sent_at: Moment) -> Moment {
    let third = terms.third().as_nanos() as u64;
    sent_at + Duration::from_nanos(third - fastrand::u64(..=third / 10))
}
