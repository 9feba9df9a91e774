//! The state machine of an acquisition: events in, actions out. No clock, no I/O, and no knowledge of its line or of its guard.
//!
//! ```text
//!              taken                      let go
//!   Waiting -----------> Held -------------------> Over
//!      |                |    ^                      ^
//!      |                +----+ handed over          |
//!      +--------------------------------------------+
//!                        let go
//! ```
//! A waiting acquisition also knows its last request, the answers and messages since, and its next check. A request may take
//! effect in every state, also in the last one: [`Action::CleanUp`] follows each time.
//!
//! # Callers that do not run
//!
//! A future that is alive and not polled reads no answer, takes no grant and confirms no release. It is *stalled*:
//!
//! | What it does not do | What follows |
//! |---|---|
//! | read the answer to its request in time | at the next check another waiter of its line asks |
//! | run after it was woken, at two checks in a row | the same; an untaken grant is not refreshed, so the server's ttl ends it |
//! | take a lock that was handed to it | its lease is not renewed, and ends with its ttl |
//! | confirm the release of its lock, at two sweeps in a row | [`Swept::CleanUp`]: the task releases it |

use std::time::Duration;

use crate::base::refusal::Refusal;
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::store::{Answer, Grant, Released, StoreError};

/// Maximum interval between two requests for a lock during a wait.
pub(super) const REFRESH: Duration = Duration::from_secs(3);

/// The state of one acquisition.
#[derive(Debug, Clone)]
pub(super) struct State {
    stage: Stage,
    /// Longest ttl of any request, in milliseconds, as the exponent of the next power of two: one byte per lock.
    longest: u8,
    clean_up: CleanUp,
    /// Number of guarded scripts that were sent with this token and got no answer: they may still run.
    scripts: u32,
    /// Number of requests that are under way.
    under_way: u16,
    /// Number of requests without a clear answer, which may still take effect. The count stops at its maximum: it only matters
    /// whether there are none, one, or more.
    outstanding: u8,
    /// A request was made, and no answer says that the server has nothing of it.
    perhaps_on_server: bool,
    /// A request was answered with the lock, or with a place in the queue, which brings the lock later.
    served: bool,
    /// Another process is known to wait for the granted lock. A message may say so right after the grant, before a waiter takes
    /// the grant.
    contended: bool,
}

#[derive(Debug, Clone)]
enum Stage {
    /// No grant was taken. Boxed: there may be thousands of held locks.
    Waiting(Box<Received>),
    /// A guard has its lease.
    Held {
        /// End of the guard's hold as limited by `max_hold`.
        cap: Moment,
        /// A local hand-over gave it to a waiter that may not have run since.
        handed: bool,
    },
    /// No client of this process needs it any more: whatever an answer brings is released.
    Over {
        /// The moment until which the lock must be kept all the same.
        keep_until: Moment,
    },
}

/// What a waiting acquisition was answered and told, in any order.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each stands for itself")]
struct Received {
    /// The terms of the last request.
    terms: Terms,
    /// The last request that was answered "queued".
    queued: Option<Queued>,
    /// A grant by an answer, and when it was heard.
    answered: Option<(Granted, Moment)>,
    pushed: Option<Grant>,
    trouble: Option<Failures>,
    /// When the lock was last released by force. The answers to earlier requests may still be under way.
    revoked_at: Option<Moment>,
    /// The lock was released by force, and no request was made since.
    revoked: bool,
    ask_again: bool,
    /// The caller that makes a request, and since when.
    caller: Option<(Asker, Moment)>,
    /// The task's refresh is under way.
    refreshing: bool,
    /// When the task next checks it.
    check_at: Moment,
    /// The name of the client that holds the lock, as the server said last.
    holder: Option<Box<str>>,
    /// That client is of another kind, and no message announces its release.
    is_foreign: bool,
}

/// A request that was answered "queued".
#[derive(Debug, Clone, Copy)]
struct Queued {
    sent_at: Moment,
    terms: Terms,
    /// Every grant made after that answer has a larger number.
    floor: u64,
}

/// Consecutive failures of requests.
#[derive(Debug, Clone)]
struct Failures {
    last: StoreError,
    at: Moment,
    since: Moment,
}

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The waiter itself.
    Waiter,
    /// The task, for the waiter.
    Refresh,
    /// The release of the previous holder, for the waiter, in the same command.
    Release,
}

/// A request that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentRequest {
    /// The moment before it was sent, on the lease clock.
    pub(super) at: Moment,
    pub(super) terms: Terms,
    pub(super) by: Asker,
}

/// A grant, and the moment from which its lease counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) fence: u64,
    /// Number of reserved tokens after the first token.
    pub(super) reserve: u64,
    /// The moment before the request from which the lease counts, and the terms of that request.
    pub(super) sent_at: Moment,
    pub(super) terms: Terms,
    /// The grant came as a message, so the lease is older than the grant.
    pub(super) pushed: bool,
}

/// The next step of the waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    Ask,
    /// The waiter takes this grant. From an acquisition: it has taken it, and holds the lock.
    Take(Granted),
    /// From an acquisition: the grant came later than its lease lasts.
    TooLate,
    /// The acquisition was let go.
    Over,
}

/// Who cleans up after the acquisition on the server, and how far that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CleanUp {
    /// Its client, if it is over.
    ByClient,
    /// Its client, which had not done so at the last sweep of the leases.
    Overdue,
    /// The task, which has been told to. The client's own release may come second and find nothing.
    Due,
    /// The task, which has begun.
    ByTask {
        /// A request may have taken effect since the last release was sent.
        again: bool,
    },
    /// The task has released it.
    Done,
}

/// What an event asks of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Action {
    Nothing,
    /// Wake its waiter.
    Wake,
    /// The lock was released by force: its guard loses it.
    Lose,
    /// Release what it may have on the server.
    CleanUp,
    /// Tell the task, which cleans up, that a request has ended.
    GoOn,
    /// Nothing of it is left on the server.
    Forget,
}

/// What a sweep of the leases finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swept {
    Held {
        /// End of the guard's hold as limited by `max_hold`.
        cap: Moment,
    },
    /// The lock is lost, and is to be released from that moment on.
    Lost { clean_up_at: Moment },
    /// Its guard has ended, and its client has not confirmed the release.
    Unreleased,
    /// The same at two sweeps in a row: its client does not run.
    CleanUp,
    /// It has no lease, or the task cleans up already.
    Nothing,
}

/// Requests and their answers.
impl State {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            stage: Stage::Waiting(Box::new(Received {
                terms,
                queued: None,
                answered: None,
                pushed: None,
                trouble: None,
                revoked_at: None,
                revoked: false,
                // No request has been made yet.
                ask_again: true,
                caller: None,
                refreshing: false,
                check_at: Moment::NEVER,
                holder: None,
                is_foreign: false,
            })),
            longest: exponent(terms),
            clean_up: CleanUp::ByClient,
            scripts: 0,
            under_way: 0,
            outstanding: 0,
            perhaps_on_server: false,
            served: false,
            contended: false,
        }
    }

    /// The terms of the last request, while it waits.
    pub(super) fn terms(&self) -> Option<Terms> {
        match &self.stage {
            Stage::Waiting(waiting) => Some(waiting.terms),
            Stage::Held { .. } | Stage::Over { .. } => None,
        }
    }

    /// Upper bound of the time for which the server may keep the lock: it may know an earlier request than the last one.
    pub(super) fn lasts(&self) -> Duration {
        Duration::from_millis(1 << self.longest)
    }

    /// A request on these terms will be made.
    pub(super) fn on(&mut self, terms: Terms) {
        self.longest = self.longest.max(exponent(terms));
    }

    /// This caller begins a request on these terms. Earlier revocations and missed messages do not concern its answer.
    pub(super) fn asks(&mut self, by: Asker, now: Moment, terms: Terms) {
        self.on(terms);
        if let Some(waiting) = self.waiting() {
            waiting.terms = terms;
            waiting.revoked = false;
            waiting.ask_again = false;
            waiting.caller = Some((by, now));
        }
    }

    /// The caller goes on with a second request, which may take as long as the first one.
    pub(super) fn asks_on(&mut self, now: Moment) {
        if let Some(Received {
            caller: Some((_, since)),
            ..
        }) = self.waiting()
        {
            *since = now;
        }
    }

    /// The request of this caller has ended, with an answer or without.
    pub(super) fn asked(&mut self, by: Asker) {
        if let Some(waiting) = self.waiting() {
            waiting.caller.take_if(|(caller, _)| *caller == by);
        }
    }

    /// Whether this caller makes a request.
    pub(super) fn is_asked_by(&self, by: Asker) -> bool {
        matches!(&self.stage, Stage::Waiting(waiting) if waiting.caller.is_some_and(|(caller, _)| caller == by))
    }

    /// A request is sent: from now on the server may have something of it.
    pub(super) fn requested(&mut self) {
        self.perhaps_on_server = true;
        self.under_way = self.under_way.saturating_add(1);
    }

    /// The answer to a request, which may have come late.
    pub(super) fn answered(
        &mut self,
        sent: SentRequest,
        answer: &Result<Answer, StoreError>,
        now: Moment,
    ) -> Action {
        self.served |= matches!(answer, Ok(Answer::Granted { .. } | Answer::Queued(_)));
        if let Some(waiting) = self.waiting() {
            waiting.answered(sent, answer, now);
        }
        self.settled(!matches!(answer, Err(StoreError::Ambiguous(_))))
    }

    /// Whether the server has answered with the lock, or with a place in the queue.
    pub(super) fn was_served(&self) -> bool {
        self.served
    }

    /// Whether each request has a clear answer, and none of them brought the lock or a place.
    pub(super) fn was_refused(&self) -> bool {
        !self.served && self.outstanding == 0 && self.under_way == 0
    }

    /// A request has ended. Without a clear answer it may still take effect. A clean-up may have come before it.
    pub(super) fn settled(&mut self, clear: bool) -> Action {
        self.under_way = self.under_way.saturating_sub(1);
        if !clear {
            self.count_outstanding();
        }
        if self.is_over() {
            self.clean_up_again()
        } else {
            Action::Nothing
        }
    }

    /// No caller will read the answer to a request that is under way and may still take effect.
    pub(super) fn count_outstanding(&mut self) {
        self.outstanding = self.outstanding.saturating_add(1);
    }

    /// The only request was answered "busy": unless an earlier one is outstanding, the server has nothing of it.
    pub(super) fn refused(&mut self) {
        self.perhaps_on_server = self.outstanding > 0;
    }

    /// A request that began at that moment failed before it was sent, or its caller waited for the answer no longer.
    pub(super) fn failed(&mut self, began: Moment, now: Moment, error: StoreError) {
        if let Some(waiting) = self.waiting() {
            waiting.failed(began, now, error);
            waiting.ask_again = true;
        }
    }

    /// The error of the last request, if it failed at `since` or later. A waiter that has not asked again since then does not
    /// run, and knows nothing of the server.
    pub(super) fn trouble(&self, since: Moment) -> Option<StoreError> {
        let Stage::Waiting(waiting) = &self.stage else {
            return None;
        };
        let trouble = waiting.trouble.as_ref()?;
        (trouble.at >= since).then(|| trouble.last.clone())
    }

    /// The first of the requests that failed one after the other, and the error of the last.
    pub(super) fn failing(&self) -> Option<(Moment, StoreError)> {
        let Stage::Waiting(waiting) = &self.stage else {
            return None;
        };
        let trouble = waiting.trouble.as_ref()?;
        Some((trouble.since, trouble.last.clone()))
    }

    /// The error that makes further waiting pointless: a permanent one, or one that has lasted for `patience`.
    pub(super) fn hopeless(
        &self,
        now: impl FnOnce() -> Moment,
        patience: Option<Duration>,
    ) -> Option<StoreError> {
        let (since, last) = self.failing()?;
        let lasted = patience.is_some_and(|patience| now() >= since + patience);
        (lasted || matches!(last, StoreError::Misconfigured(_))).then_some(last)
    }

    /// The name of the client that holds the lock, as the server said last.
    pub(super) fn holder(&self) -> Option<&str> {
        match &self.stage {
            Stage::Waiting(waiting) => waiting.holder.as_deref(),
            Stage::Held { .. } | Stage::Over { .. } => None,
        }
    }

    fn waiting(&mut self) -> Option<&mut Received> {
        match &mut self.stage {
            Stage::Waiting(waiting) => Some(waiting),
            // Held and over, it needs no news.
            Stage::Held { .. } | Stage::Over { .. } => None,
        }
    }
}

impl Received {
    fn answered(&mut self, sent: SentRequest, answer: &Result<Answer, StoreError>, now: Moment) {
        if answer.is_ok() {
            self.trouble = None;
        }
        match answer {
            Ok(Answer::Granted { fence, reserve }) => {
                let granted = Granted {
                    fence: *fence,
                    reserve: *reserve,
                    sent_at: sent.at,
                    terms: sent.terms,
                    pushed: false,
                };
                self.answered = Some((granted, now));
            }
            Ok(Answer::Queued(place)) => {
                self.queued(sent, place.last_fence);
                self.held_by(place.holder.clone(), place.is_foreign);
            }
            // There is no queue: the waiter waits for a message or for the end of the lease.
            Ok(Answer::Busy { holder, .. }) => self.held_by(holder.clone(), false),
            // The waiter learns the reason from a request of its own. This reason may be over soon.
            Ok(Answer::Refused(refusal)) => {
                let by_waiter = sent.by != Asker::Refresh;
                self.ask_again |= !(by_waiter && matches!(refusal, Refusal::Foreign(_)));
            }
            Err(error) => {
                self.failed(sent.at, now, error.clone());
                // The task repeats a refresh by itself.
                self.ask_again |= sent.by != Asker::Refresh;
            }
        }
    }

    /// Answers may come out of order: the newest request counts. A grant that is not taken yet keeps the floor by which it was
    /// judged, also after a refresh.
    fn queued(&mut self, sent: SentRequest, floor: u64) {
        let judged = sent.by == Asker::Refresh && self.pushed.is_some();
        if !judged && self.queued.is_none_or(|queued| queued.sent_at < sent.at) {
            self.queued = Some(Queued {
                sent_at: sent.at,
                terms: sent.terms,
                floor,
            });
        }
    }

    fn held_by(&mut self, name: Option<Box<str>>, is_foreign: bool) {
        (self.holder, self.is_foreign) = (name, is_foreign);
    }

    fn failed(&mut self, began: Moment, now: Moment, error: StoreError) {
        let since = match (&error, &self.trouble) {
            #[cfg(feature = "quorum")]
            (StoreError::NotYet(_), _) => now,
            (_, None) => began,
            (_, Some(trouble)) => trouble.since,
        };
        self.trouble = Some(Failures {
            last: error,
            at: now,
            since,
        });
    }

    /// Sets the moment of the next check, unless there is one before it.
    fn check_at(&mut self, moment: Moment) -> Option<Moment> {
        let earlier = moment < self.check_at;
        earlier.then(|| {
            self.check_at = moment;
            moment
        })
    }

    fn has_grant(&self) -> bool {
        self.answered.is_some() || self.pushed.is_some()
    }

    /// Whether a grant whose lease counts from `sent_at` may have been revoked by force.
    fn is_revoked(&self, sent_at: Moment) -> bool {
        self.revoked || self.revoked_at.is_some_and(|at| sent_at < at)
    }

    /// The grant that the waiter may take. A message may be old: it counts only if its number is newer than the last
    /// answer, and its lease counts from the request of that answer. If that request is older than a third of the ttl, or the
    /// lease has other terms than wanted, another request confirms the grant and starts a fresh lease. So it is with an answer
    /// that lay for a third of the ttl: the waiter for which it came did not run, and the lease may be nearly over.
    fn grant(&mut self, now: Moment, wanted: Terms) -> Next {
        let (granted, counted_from) = if let Some((granted, heard_at)) = self.answered.take() {
            (granted, heard_at)
        } else if let (Some(grant), Some(queued)) = (self.pushed, self.queued) {
            self.pushed = None;
            if grant.order <= queued.floor {
                return Next::Wait;
            }
            // The ttl of the grant is that of the request that the server knew: perhaps an earlier one, or one whose answer was
            // lost.
            let shorter = grant.ttl < queued.terms.ttl();
            if shorter {
                return Next::Ask;
            }
            let granted = Granted {
                fence: grant.fence,
                reserve: grant.reserve,
                sent_at: queued.sent_at,
                terms: queued.terms,
                pushed: true,
            };
            (granted, queued.sent_at)
        } else {
            return Next::Wait;
        };
        let old = now > counted_from + wanted.third();
        if old || !granted.terms.serve(wanted) || self.is_revoked(granted.sent_at) {
            return Next::Ask;
        }
        Next::Take(granted)
    }
}

/// Messages of the server.
impl State {
    /// A message says that the lock was granted.
    pub(super) fn pushed(&mut self, grant: Grant) -> Action {
        self.contended |= grant.contended;
        match &mut self.stage {
            Stage::Waiting(waiting) => {
                if waiting.pushed.is_none_or(|known| known.order < grant.order) {
                    waiting.pushed = Some(grant);
                }
                Action::Wake
            }
            // The message came twice.
            Stage::Held { .. } => Action::Nothing,
            // The grant comes from a late request.
            Stage::Over { .. } => self.clean_up_again(),
        }
    }

    /// A message says that another process waits.
    pub(super) fn contended(&mut self) {
        self.contended = true;
    }

    pub(super) fn is_contended(&self) -> bool {
        self.contended
    }

    /// A message says that the lock was released by force.
    pub(super) fn revoked(&mut self, now: Moment) -> Action {
        match &mut self.stage {
            Stage::Waiting(waiting) => {
                waiting.pushed = None;
                waiting.answered = None;
                waiting.revoked_at = Some(now);
                waiting.revoked = true;
                waiting.ask_again = true;
                Action::Wake
            }
            Stage::Held { .. } => Action::Lose,
            Stage::Over { .. } => Action::Nothing,
        }
    }

    /// A message says that the lock is free.
    pub(super) fn freed(&mut self) -> Action {
        self.interrupted();
        Action::Wake
    }

    /// Messages may have been missed, or a request came to nothing: another request finds out.
    pub(super) fn interrupted(&mut self) {
        if let Some(waiting) = self.waiting() {
            waiting.ask_again = true;
        }
    }
}

/// The waiter and the guards.
impl State {
    /// The next step of the waiter that wants these terms.
    pub(super) fn next(&mut self, now: Moment, wanted: Terms) -> Next {
        let Some(waiting) = self.waiting() else {
            return Next::Over;
        };
        if waiting.caller.is_some() {
            return Next::Wait;
        }
        match waiting.grant(now, wanted) {
            Next::Wait if waiting.ask_again => Next::Ask,
            next => next,
        }
    }

    /// Whether there is a grant that is not taken yet.
    pub(super) fn has_grant(&self) -> bool {
        matches!(&self.stage, Stage::Waiting(waiting) if waiting.has_grant())
    }

    /// The limit of the waiter has ended, and the lock may be free without a message: one more request finds out, if none is under
    /// way.
    pub(super) fn ask_once_more(&mut self) {
        if let Some(waiting) = self.waiting() {
            waiting.ask_again |= waiting.caller.is_none() && !waiting.refreshing;
        }
    }

    /// Whether a check is due some time.
    #[cfg(test)]
    pub(super) fn is_checked(&self) -> bool {
        matches!(&self.stage, Stage::Waiting(waiting) if waiting.check_at < Moment::NEVER)
    }

    /// When the task asks again: after the refresh interval, or after about `poll`, unless a message tells of the grant, and just
    /// after the end of the holder's lease, which is in `remaining`. `None` if it is checked earlier.
    pub(super) fn refresh_at(
        &mut self,
        now: Moment,
        is_told: bool,
        poll: Duration,
        remaining: Duration,
    ) -> Option<Moment> {
        let waiting = self.waiting()?;
        let interval = if waiting.is_foreign {
            // Clients of another kind announce no release, ask often, and have no queue: a waiter that asks less often hardly
            // ever gets the lock.
            poll.mul_f64(0.25 + fastrand::f64() / 2.0)
        } else if is_told {
            waiting.terms.third().min(REFRESH)
        } else {
            poll.mul_f64(0.5 + fastrand::f64())
        };
        // The spread separates processes that wait for the same lease.
        let spread = Duration::from_micros(2_000 + fastrand::u64(..3_000));
        waiting.check_at(now + interval.min(remaining.saturating_add(spread)))
    }

    /// When the task checks whether the waiter runs. `None` if it is checked earlier.
    pub(super) fn watch_at(&mut self, now: impl FnOnce() -> Moment) -> Option<Moment> {
        let waiting = self.waiting()?;
        // Without a look at the clock where a check is due some time.
        if waiting.check_at < Moment::NEVER {
            return None;
        }
        waiting.check_at(now() + waiting.terms.third().min(REFRESH))
    }

    /// A check is due, unless an earlier one has replaced it.
    pub(super) fn is_due(&mut self, now: Moment) -> bool {
        match self.waiting() {
            Some(waiting) if waiting.check_at <= now => {
                waiting.check_at = Moment::NEVER;
                true
            }
            _ => false,
        }
    }

    /// The caller that does not run, if any: its request has been under way for longer than `limit`, or its waiter is `unheeding`.
    pub(super) fn stalled_caller(
        &self,
        now: Moment,
        limit: Duration,
        unheeding: impl FnOnce() -> bool,
    ) -> Option<Asker> {
        let Stage::Waiting(waiting) = &self.stage else {
            return None;
        };
        match waiting.caller {
            Some((by, since)) => (now > since + limit).then_some(by),
            None => unheeding().then_some(Asker::Waiter),
        }
    }

    /// The caller is stalled: it will not read the answer to its request, if one is under way, and another caller asks.
    pub(super) fn stalled(&mut self) {
        if let Some(waiting) = self.waiting()
            && waiting.caller.take().is_some()
        {
            waiting.ask_again = true;
            self.count_outstanding();
        }
    }

    /// The task asks on behalf of the waiter, if no request is under way. A grant that the waiter does not take is not prolonged:
    /// the server grants the lock to the next one after the ttl.
    pub(super) fn begins_refresh(&mut self) -> bool {
        match self.waiting() {
            Some(waiting)
                if waiting.caller.is_none() && !waiting.refreshing && !waiting.has_grant() =>
            {
                waiting.refreshing = true;
                true
            }
            _ => false,
        }
    }

    /// The task's refresh has ended.
    pub(super) fn refreshed(&mut self) {
        if let Some(waiting) = self.waiting() {
            waiting.refreshing = false;
        }
    }

    /// A guard has the lease from now on, until `cap` at most.
    pub(super) fn taken(&mut self, cap: Moment) {
        self.served = true;
        self.stage = Stage::Held { cap, handed: false };
    }

    /// The next guard of this process has the lease, and its waiter has not run yet.
    pub(super) fn handed_over(&mut self, cap: Moment) {
        self.stage = Stage::Held { cap, handed: true };
    }

    /// Whether the lease was handed to a waiter that was not seen to run since.
    pub(super) fn is_handed(&self) -> bool {
        matches!(self.stage, Stage::Held { handed: true, .. })
    }

    /// The waiter to which the lease was handed runs.
    pub(super) fn seen(&mut self) {
        if let Stage::Held { handed, .. } = &mut self.stage {
            *handed = false;
        }
    }

    /// When `max_hold` ends the guard's hold.
    pub(super) fn cap(&self) -> Moment {
        match self.stage {
            Stage::Held { cap, .. } => cap,
            Stage::Waiting(_) | Stage::Over { .. } => Moment::NEVER,
        }
    }

    /// A guarded script is about to be sent.
    pub(super) fn script_sent(&mut self) {
        self.scripts += 1;
    }

    /// The server has answered a guarded script: it has run, or never will.
    pub(super) fn script_answered(&mut self) {
        self.scripts -= 1;
    }

    /// Whether the next guard of this process may have the lease, if the lock need not be kept until `keep_until`. The server
    /// tells guards apart by the token alone, so not while a guarded script may still run.
    pub(super) fn may_be_handed_over(&self, now: Moment, keep_until: Moment) -> bool {
        in_millis(now, keep_until).is_none() && self.scripts == 0
    }

    /// Time for which the lock must still be kept although no client needs it, in whole milliseconds.
    pub(super) fn keep_for(&self, now: Moment) -> Option<Duration> {
        match self.stage {
            Stage::Over { keep_until } => in_millis(now, keep_until),
            Stage::Waiting(_) | Stage::Held { .. } => None,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over { .. })
    }

    /// No guard will have its lease any more. The lock is kept until then all the same. Returns true the first time.
    pub(super) fn let_go(&mut self, keep_until: Moment) -> bool {
        let first = !self.is_over();
        if first {
            self.stage = Stage::Over { keep_until };
        }
        first
    }
}

/// The clean-up.
impl State {
    /// Its client has left.
    pub(super) fn abandoned(&self) -> Action {
        if self.perhaps_on_server {
            Action::CleanUp
        } else {
            Action::Forget
        }
    }

    /// The server has confirmed a release by its client. A request without an answer may still take effect.
    pub(super) fn released_by_client(&mut self) -> Action {
        self.perhaps_on_server = self.outstanding > 0 || self.under_way > 0;
        self.abandoned()
    }

    /// Called if a sweep finds that its guard has released it, but that its client has not sent the release.
    pub(super) fn found_unreleased(&mut self) -> Swept {
        match self.clean_up {
            CleanUp::ByClient => {
                self.clean_up = CleanUp::Overdue;
                Swept::Unreleased
            }
            CleanUp::Overdue => Swept::CleanUp,
            CleanUp::Due | CleanUp::ByTask { .. } | CleanUp::Done => Swept::Nothing,
        }
    }

    /// A late request may have taken effect, perhaps after the last release.
    fn clean_up_again(&mut self) -> Action {
        if let CleanUp::ByTask { again } = &mut self.clean_up {
            *again = true;
            return Action::GoOn;
        }
        self.clean_up = CleanUp::Due;
        Action::CleanUp
    }

    /// The task received the command to clean up, and begins unless it has begun already. It may have begun: the sender of the
    /// command may have registered the acquisition after it was forgotten.
    pub(super) fn begin_clean_up(&mut self) -> Action {
        match self.clean_up {
            CleanUp::ByTask { .. } => Action::Nothing,
            CleanUp::Done => Action::Forget,
            CleanUp::ByClient | CleanUp::Overdue | CleanUp::Due => {
                self.clean_up = CleanUp::ByTask { again: false };
                Action::CleanUp
            }
        }
    }

    /// Whether the task cleans up, or has done so.
    pub(super) fn is_cleaned_up_by_task(&self) -> bool {
        !matches!(self.clean_up, CleanUp::ByClient | CleanUp::Overdue)
    }

    /// The server has answered a release by the task. Returns true if requests without an answer may still be under way, on a
    /// connection that broke: another release must follow after a pause.
    pub(super) fn released(&mut self, released: Released) -> bool {
        // If the lock was held and no answer has brought it or will do so, one of these requests acquired it.
        let unexplained = !self.served && self.under_way == 0;
        let acquired = released != Released::NotHeld && unexplained;
        let again = std::mem::take(&mut self.outstanding) > u8::from(acquired);
        // From here on it may also be one of those that are not counted any more.
        self.served |= again;
        again
    }

    /// Whether the clean-up has to wait for the end of a request: it may reach the server after the release.
    pub(super) fn awaits_request(&self) -> bool {
        self.under_way > 0 && self.clean_up == CleanUp::ByTask { again: false }
    }

    /// The clean-up has ended.
    pub(super) fn cleaned_up(&mut self) -> Action {
        if let CleanUp::ByTask { again: true } = self.clean_up {
            self.clean_up = CleanUp::ByTask { again: false };
            return Action::CleanUp;
        }
        self.clean_up = CleanUp::Done;
        self.perhaps_on_server = false;
        Action::Forget
    }
}

fn exponent(terms: Terms) -> u8 {
    let millis = terms.ttl().as_millis() as u64;
    millis.next_power_of_two().trailing_zeros() as u8
}

fn in_millis(now: Moment, until: Moment) -> Option<Duration> {
    let left = now.until(until).as_millis() as u64;
    (left > 0).then(|| Duration::from_millis(left))
}
