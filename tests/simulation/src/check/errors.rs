//! Errors of the right kind, at the right time: P11.

use std::time::Duration;

use lock_core::{LockError, LossReason};

use super::Weather;
use crate::plan::{Call, Connection};
use crate::world::World;

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The lock.
    pub name: String,
    /// Who asks.
    pub process: usize,
    /// How.
    pub call: Call,
    /// When.
    pub at: Duration,
    /// With the jitter.
    pub ttl: Duration,
    /// The shortest in this run: others may have asked with it in the name of this caller.
    pub shortest_ttl: Duration,
    /// Whether the lease is renewed.
    pub renew: bool,
    /// The longest delay of the network.
    pub delay: Duration,
    /// Whether the caller was polled all the time.
    pub attentive: bool,
    /// Whether its manager is ended in this run.
    pub may_end: bool,
    /// What a candidate campaigns with.
    pub value: Option<String>,
    /// How the manager is connected.
    pub connection: Connection,
}

impl Asked {
    /// Whether some round trips of this network take as long as the lease.
    #[must_use]
    pub fn is_brief(&self) -> bool {
        self.is_short(self.ttl)
    }

    fn is_short(&self, ttl: Duration) -> bool {
        is_short(ttl, self.delay)
    }
}

/// Whether some round trips take as long as a lease, where the network delays by `delay` at the most.
#[must_use]
pub fn is_short(ttl: Duration, delay: Duration) -> bool {
    ttl < delay * 25 + Duration::from_millis(100)
}

/// How much later than asked an end may come: the clean-up is waited for, for a moment.
const GRACE: Duration = Duration::from_millis(1_200);

/// What was heard long ago, or too late, where a caller that asks in the name of others does not run.
const HEARD_LATE: [&str; 5] = [
    "later than the lease",
    "READONLY",
    "OOM",
    "no reply within",
    "connection refused",
];

/// An acquisition gave no guard. `is_held_up` is whether some caller did not run meanwhile.
pub(super) fn refused(
    world: &World,
    weather: &Weather,
    asked: &Asked,
    error: &LockError,
    is_held_up: bool,
    now: Duration,
) {
    let Asked {
        name,
        process,
        call,
        ..
    } = asked;
    let waited = now.saturating_sub(asked.at);
    let calm = weather.was_calm_since(asked.at.saturating_sub(Duration::from_secs(2)))
        && weather.is_there(*process);
    let wrong = match (error, call) {
        (LockError::ShutDown | LockError::InvalidConfig { .. }, _) if asked.may_end => None,
        // A reply may take longer than such a lease lasts.
        (LockError::Unavailable { .. }, _) if asked.is_brief() => None,
        // A connection of the user's tells that it broke when it is used.
        (LockError::Unavailable { .. }, _) if asked.connection == Connection::User => None,
        // What is not polled in time cannot hear the answer.
        (LockError::Unavailable { .. }, _) if !asked.attentive => None,
        (LockError::Unavailable { cause }, _)
            if cause.to_string().contains("READONLY") && weather.may_be_demoted(*process, now) =>
        {
            None
        }
        // Where the caller that asks for its process does not run, or asks for a shorter lease, that is what the others are told.
        (LockError::Unavailable { cause }, _)
            if (is_held_up || asked.is_short(asked.shortest_ttl))
                && HEARD_LATE
                    .iter()
                    .any(|late| cause.to_string().contains(late)) =>
        {
            None
        }
        (LockError::Busy { .. }, Call::Try) | (LockError::Lost { .. }, Call::With) => None,
        (LockError::TimedOut { .. }, Call::Within(limit)) => {
            let limit = Duration::from_millis(*limit);
            if waited < limit {
                Some("before its limit")
            } else if waited > limit + GRACE + asked.delay * 4 && asked.attentive && calm {
                Some("long after its limit")
            } else {
                None
            }
        }
        // A first request that has no answer by then: nothing is known. It may wait for a batch that is under way, go with the
        // next, and then alone, and the scripts of all three may have to be loaded first.
        (LockError::Unavailable { .. }, Call::Within(limit))
            if Duration::from_millis(*limit) <= asked.delay * 12 + Duration::from_millis(2) =>
        {
            None
        }
        (LockError::Unavailable { .. }, _)
            if weather.has_ended(*process)
                && weather.was_fair_since(asked.at.saturating_sub(Duration::from_secs(2))) =>
        {
            Some("though the runtime has ended")
        }
        (
            LockError::Unavailable { .. }
            | LockError::ShutDown
            | LockError::InvalidConfig { .. }
            | LockError::NotALock { .. },
            _,
        ) => calm.then_some("in a calm"),
        _ => Some("not of this call"),
    };
    if let Some(wrong) = wrong {
        world.find(
            "error",
            format!("p{process} {name} {call:?} after {waited:?}: {wrong}: {error}"),
        );
    }
}

/// A guard was lost without an excuse.
pub(super) fn lost(
    world: &World,
    weather: &Weather,
    asked: &Asked,
    reason: LossReason,
    now: Duration,
) {
    let Asked {
        name, process, ttl, ..
    } = asked;
    let calm = weather.was_calm_since(now.saturating_sub(*ttl + Duration::from_secs(1)));
    // Two seconds are enough to find out that a connection is silent, and to make another.
    // What a caller takes late may be about to end.
    let brief = asked.is_brief()
        || !asked.attentive
        || !weather.is_there(*process) && *ttl < Duration::from_secs(2)
        || weather.absences(*process) > 1;
    let gentle = weather.was_gentle_since(now.saturating_sub(*ttl + Duration::from_secs(1)));
    let wrong = match reason {
        LossReason::Expired => asked.renew && gentle && !brief,
        LossReason::Gone | LossReason::ForceReleased | LossReason::ShutDown => {
            calm && asked.renew && !brief
        }
        _ => false,
    };
    if wrong {
        world.find("lost", format!("p{process} {name}: {reason} in a calm"));
    }
}
