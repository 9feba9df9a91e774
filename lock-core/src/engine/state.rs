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
//! The [`Inbox`] tells a waiting acquisition that was asked for from one that has a place in the queue, or a grant. A request
//! may take effect in every state, also in the last one: [`Action::CleanUp`] follows each time.

use std::time::Duration;

use super::inbox::{Granted, Inbox, Next};
use crate::base::terms::Terms;
use crate::base::time::Moment;
use crate::store::{Grant, Released, StoreError};

/// The state of one acquisition.
#[derive(Debug, Clone)]
pub(super) struct State {
    stage: Stage,
    inbox: Inbox,
    clean_up: CleanUp,
    /// The moment until which the lock must be kept although no client needs it.
    keep_until: Moment,
    /// Number of guarded scripts that were sent with this token and got no answer: they may still run.
    scripts: u32,
    /// Number of requests without a clear answer, which may still take effect. The count stops at its maximum: it only matters
    /// whether there are none, one, or more.
    outstanding: u8,
    /// Number of requests that are under way.
    under_way: u16,
    /// A request was made, and no answer says that the server has nothing of it.
    perhaps_on_server: bool,
    /// A request was answered with the lock, or with a place in the queue, which brings the lock later.
    served: bool,
    /// Another process is known to wait for the granted lock. A message may say so right after the grant, before a waiter takes
    /// the grant.
    contended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No grant was taken.
    Waiting,
    /// A guard has its lease.
    Held {
        /// End of the guard's hold as limited by `max_hold`.
        cap: Moment,
        /// A local hand-over gave it to a waiter that may not have run since.
        handed: bool,
    },
    /// No client of this process needs it any more: whatever an answer brings is released.
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
    /// Wake the first waiter of the line.
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
    /// Its guard has ended, and its client has not released it.
    Unreleased,
    /// Its client has not released it at two sweeps in a row, and does not run.
    CleanUp,
    /// It has no lease, or the task cleans up already.
    Nothing,
}

/// Why a grant may not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAdmitted {
    /// The lock was released by force.
    Revoked,
    ShutDown,
    Over,
}

/// Requests and their answers.
impl State {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            stage: Stage::Waiting,
            inbox: Inbox::new(terms),
            clean_up: CleanUp::ByClient,
            keep_until: Moment(0),
            scripts: 0,
            outstanding: 0,
            under_way: 0,
            perhaps_on_server: false,
            served: false,
            contended: false,
        }
    }

    /// The terms of the last request.
    pub(super) fn terms(&self) -> Terms {
        self.inbox.terms()
    }

    /// Upper bound of the time for which the server may keep the lock.
    pub(super) fn lasts(&self) -> Duration {
        self.inbox.lasts()
    }

    /// A request on these terms will be made.
    pub(super) fn asking(&mut self, terms: Terms) {
        self.inbox.asking(terms);
    }

    /// A request is made: from now on the server may have something of it.
    pub(super) fn requested(&mut self) {
        self.perhaps_on_server = true;
        self.under_way = self.under_way.saturating_add(1);
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

    /// A client that does not run has a request under way. It may still take effect, and no waiter will read the answer.
    pub(super) fn count_outstanding(&mut self) {
        self.outstanding = self.outstanding.saturating_add(1);
    }

    /// A request was answered "granted".
    pub(super) fn granted(&mut self, granted: Granted, now: Moment) {
        self.served = true;
        self.if_waiting(|inbox| inbox.answered(granted, now));
    }

    /// A request on these terms, sent at `sent_at`, was answered "queued".
    pub(super) fn queued(&mut self, sent_at: Moment, terms: Terms, floor: u64) {
        self.served = true;
        self.if_waiting(|inbox| inbox.queued(sent_at, terms, floor));
    }

    /// A refresh was answered "queued".
    pub(super) fn refreshed(&mut self, sent_at: Moment, terms: Terms, floor: u64) {
        self.served = true;
        self.if_waiting(|inbox| inbox.refreshed(sent_at, terms, floor));
    }

    /// A request was answered "busy" where the server keeps no queue.
    pub(super) fn parked(&mut self) {
        self.if_waiting(Inbox::parked);
    }

    /// The only request was answered "busy": unless an earlier one is outstanding, the server has nothing of it.
    pub(super) fn refused(&mut self) {
        self.perhaps_on_server = self.outstanding > 0;
    }

    /// A request failed.
    pub(super) fn failed(&mut self, now: Moment, error: StoreError) {
        self.if_waiting(|inbox| inbox.failed(now, error));
    }

    /// The error of the last request, if it failed at `since` or later.
    pub(super) fn trouble(&self, since: Moment) -> Option<StoreError> {
        self.inbox.trouble(since)
    }

    /// The error that makes further waiting pointless.
    pub(super) fn hopeless(&self, now: Moment, patience: Option<Duration>) -> Option<StoreError> {
        self.inbox.hopeless(now, patience)
    }

    /// Only a waiter gets news. For a held lock news is dropped: there may be thousands.
    fn if_waiting(&mut self, news: impl FnOnce(&mut Inbox)) {
        if self.stage == Stage::Waiting {
            news(&mut self.inbox);
        }
    }
}

/// Messages of the server, and the end of the manager.
impl State {
    /// A message says that the lock was granted.
    pub(super) fn pushed(&mut self, grant: Grant) -> Action {
        self.contended |= grant.contended;
        match self.stage {
            Stage::Waiting => {
                self.inbox.pushed(grant);
                Action::Wake
            }
            // The message came twice.
            Stage::Held { .. } => Action::Nothing,
            // The grant comes from a late request.
            Stage::Over => self.clean_up_again(),
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
        match self.stage {
            Stage::Waiting => {
                self.inbox.revoked(now);
                Action::Wake
            }
            Stage::Held { .. } => Action::Lose,
            Stage::Over => Action::Nothing,
        }
    }

    /// A message says that the lock is free.
    pub(super) fn freed(&mut self) -> Action {
        self.interrupted();
        Action::Wake
    }

    /// Messages may have been missed, or a request came to nothing: another request finds out.
    pub(super) fn interrupted(&mut self) {
        self.if_waiting(Inbox::interrupted);
    }

    /// The manager acquires nothing any more.
    pub(super) fn shut_down(&mut self) {
        self.inbox.shut_down();
    }
}

/// The waiter and the guards.
impl State {
    /// The next step of the waiter that wants these terms.
    pub(super) fn next(&mut self, now: Moment, wanted: Terms) -> Next {
        self.inbox.next(now, wanted)
    }

    /// Whether there is a grant that is not taken yet.
    pub(super) fn has_grant(&self) -> bool {
        self.inbox.has_grant()
    }

    /// Whether later news forbids to take a grant whose lease counts from `sent_at`.
    pub(super) fn admit(&self, sent_at: Moment) -> Result<(), NotAdmitted> {
        match self.stage {
            _ if self.inbox.is_shut_down() => Err(NotAdmitted::ShutDown),
            Stage::Waiting if self.inbox.is_revoked(sent_at) => Err(NotAdmitted::Revoked),
            Stage::Waiting => Ok(()),
            Stage::Held { .. } | Stage::Over => Err(NotAdmitted::Over),
        }
    }

    /// A guard has the lease from now on, until `cap` at most.
    pub(super) fn taken(&mut self, cap: Moment) {
        self.served = true;
        self.inbox.clear();
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
            Stage::Waiting | Stage::Over => Moment::NEVER,
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

    /// The guard has ended, and the lock must be kept until then.
    pub(super) fn keep_until(&mut self, moment: Moment) {
        self.keep_until = moment;
    }

    /// Whether the next guard of this process may have the lease. The server tells guards apart by the token alone, so not while
    /// a guarded script may still run.
    pub(super) fn may_be_handed_over(&self, now: Moment) -> bool {
        self.keep_for(now).is_none() && self.scripts == 0
    }

    /// Time for which the lock must still be kept although no client needs it, in whole milliseconds.
    pub(super) fn keep_for(&self, now: Moment) -> Option<Duration> {
        let left = now.until(self.keep_until).as_millis() as u64;
        (left > 0).then(|| Duration::from_millis(left))
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// No guard will have its lease any more. Returns true the first time.
    pub(super) fn let_go(&mut self) -> bool {
        let before = std::mem::replace(&mut self.stage, Stage::Over);
        before != Stage::Over
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

    /// A sweep found it released by its guard, and not by its client. Two in a row mean that the client does not run.
    pub(super) fn found_unreleased(&mut self) -> Swept {
        match self.clean_up {
            CleanUp::ByClient => {
                self.clean_up = CleanUp::Overdue;
                Swept::Unreleased
            }
            CleanUp::Overdue => {
                self.clean_up = CleanUp::Due;
                Swept::CleanUp
            }
            CleanUp::Due | CleanUp::ByTask { .. } | CleanUp::Done => Swept::Nothing,
        }
    }

    /// The client that should release it does not run.
    pub(super) fn client_stands_still(&mut self) -> Action {
        self.clean_up_again()
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

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
