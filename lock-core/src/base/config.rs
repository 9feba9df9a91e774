//! The settings of a manager, and their checks.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::LockError;
use crate::base::key::Prefix;
use crate::base::observe::Observers;
use crate::base::terms::Terms;
use crate::base::token::{NAME_LEN, is_name};

/// A shorter lease could end during a scheduling delay.
const MIN_TTL: Duration = Duration::from_millis(10);
/// A longer ttl is of no use as a lease, and overflows the timers of some clients.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(24 * 24 * 3600);

/// Longer than any wait, and short enough for the arithmetic of every clock. A longer time means no limit.
pub(crate) const ENDLESS: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The part of a lease that is not trusted, beside a hundredth of it for clocks that run at different speeds: the timer that announces a
/// loss counts whole milliseconds.
const LEAST_DRIFT: Duration = Duration::from_millis(2);

/// Maximum time for which a process hands a lock over locally while another process waits for it.
pub(crate) const HANDOVER_TIME: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// In front of every name on the server.
    pub(crate) namespace: Arc<str>,
    pub(crate) prefix: String,
    /// `None` for host name and process id.
    pub(crate) client_name: Option<String>,
    pub(crate) default_ttl: Duration,
    /// `None` for no limit.
    pub(crate) default_wait: Option<Duration>,
    pub(crate) unavailable_after: Option<Duration>,
    pub(crate) command_deadline: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) ttl_jitter: f64,
    pub(crate) poll_interval: Duration,
    pub(crate) handover_limit: u32,
    /// `None` for no limit but [`MAX_TTL`].
    pub(crate) longest: Option<Longest>,
    pub(crate) observed: Observers,
    pub(crate) own_thread: bool,
}

/// The longest time for which a store keeps a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Longest {
    pub(crate) time: Duration,
    /// The store, and what to do for a longer time: for the error.
    pub(crate) store: &'static str,
    pub(crate) advice: &'static str,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            namespace: Arc::from(""),
            prefix: "lock:".to_owned(),
            client_name: None,
            default_ttl: Duration::from_secs(30),
            default_wait: None,
            unavailable_after: None,
            command_deadline: Duration::from_secs(1),
            max_hold: None,
            ttl_jitter: 0.0,
            poll_interval: Duration::from_millis(100),
            handover_limit: 64,
            longest: None,
            observed: Observers::default(),
            own_thread: false,
        }
    }
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), LockError> {
        self.prefix().check()?;
        if self
            .client_name
            .as_deref()
            .is_some_and(|name| !is_name(name))
        {
            return Err(LockError::config(format!(
                "the client name cannot be used: choose 1 to {NAME_LEN} printable ASCII characters without spaces and braces"
            )));
        }
        // Before any ttl is computed, since a ttl cannot be multiplied by a NaN.
        if !(0.0..=1.0).contains(&self.ttl_jitter) {
            return Err(LockError::config(
                "the ttl jitter is a fraction of the ttl: choose it between 0 and 1",
            ));
        }
        self.terms(self.default_ttl)?;
        if let Some(most) = self.max_hold {
            check_max_hold(most)?;
        }
        if self.default_wait.is_some_and(|wait| wait.is_zero()) {
            return Err(LockError::config(
                "the default wait is zero, and `acquire` would never wait: leave it out for no limit, or give a time",
            ));
        }
        if let Some(after) = self.unavailable_after {
            check_unavailable_after(after)?;
        }
        if self.command_deadline.is_zero() {
            return Err(LockError::config(
                "the command deadline is zero: give the server time to answer, for example 1 s",
            ));
        }
        // A waiter that polls less often than every few seconds counts as dead.
        if self.poll_interval.is_zero() || self.poll_interval > Duration::from_secs(2) {
            return Err(LockError::config(
                "the poll interval is out of range: use for example 100 ms, and at most 2 s",
            ));
        }
        if !(1..=1024).contains(&self.handover_limit) {
            return Err(LockError::config(
                "the hand-over limit is out of range: choose one from 1 to 1024",
            ));
        }
        Ok(())
    }

    /// What stands in front of the keys of the exclusive locks.
    pub(crate) fn prefix(&self) -> Prefix<'_> {
        self.prefixed(&self.prefix)
    }

    /// As [`prefix`](Self::prefix), for locks with another one.
    pub(crate) fn prefixed<'a>(&'a self, prefix: &'a str) -> Prefix<'a> {
        let namespace = &self.namespace;
        Prefix { namespace, prefix }
    }

    /// The terms of a lease of `ttl`, lengthened by the jitter.
    pub(crate) fn terms(&self, ttl: Duration) -> Result<Terms, LockError> {
        check_ttl(ttl)?;
        self.check_longest("ttl", ttl.mul_f64(1.0 + self.ttl_jitter))?;
        let asked = ttl;
        let ttl = match self.ttl_jitter {
            // The common case needs no random number.
            0.0 => ttl,
            jitter => ttl.mul_f64(1.0 + jitter * fastrand::f64()),
        };
        // The server counts whole milliseconds, so the deadline must, too.
        let ttl = Duration::from_millis(ttl.as_millis() as u64);
        Ok(Terms::new(ttl, asked, ttl / 100 + LEAST_DRIFT))
    }

    /// Whether the store keeps a lock for this time.
    pub(crate) fn check_longest(&self, name: &str, time: Duration) -> Result<(), LockError> {
        match &self.longest {
            Some(longest) if time > longest.time => Err(LockError::config(format!(
                "{name} = {time:?} is too long for {}: choose at most {:?}, {}",
                longest.store, longest.time, longest.advice
            ))),
            _ => Ok(()),
        }
    }
}

pub(crate) fn check_ttl(ttl: Duration) -> Result<(), LockError> {
    check_kept("a ttl of", ttl)
}

/// Whether a server may keep something for this time.
pub(crate) fn check_kept(what: &str, time: Duration) -> Result<(), LockError> {
    if (MIN_TTL..=MAX_TTL).contains(&time) {
        return Ok(());
    }
    Err(LockError::config(format!(
        "{what} {time:?} is out of range: choose one from 10 ms to 24 days"
    )))
}

pub(crate) fn check_max_hold(most: Duration) -> Result<(), LockError> {
    if most.is_zero() {
        return Err(LockError::config(
            "max_hold is zero: leave it out for no limit, or give a time",
        ));
    }
    Ok(())
}

pub(crate) fn check_unavailable_after(after: Duration) -> Result<(), LockError> {
    if after.is_zero() {
        return Err(LockError::config(
            "unavailable_after is zero: give the server time to answer, for example 500 ms",
        ));
    }
    Ok(())
}

/// `fixed` is the ttl of a lock that is not renewed.
pub(crate) fn check_at_least(
    least: Duration,
    max_hold: Option<Duration>,
    fixed: Option<Duration>,
) -> Result<(), LockError> {
    if let Some(ttl) = fixed.filter(|ttl| least > *ttl) {
        return Err(LockError::config(format!(
            "at_least = {least:?} is longer than ttl = {ttl:?}, which is not renewed: lengthen the ttl, or do not switch renewal off"
        )));
    }
    if let Some(most) = max_hold.filter(|most| least > *most) {
        return Err(LockError::config(format!(
            "at_least = {least:?} is longer than max_hold = {most:?}: shorten at_least, or lengthen max_hold"
        )));
    }
    if least > MAX_TTL {
        return Err(LockError::config(format!(
            "at_least = {least:?} is out of range: choose at most 24 days"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Config)) -> bool {
        let mut config = Config::default();
        change(&mut config);
        matches!(config.check(), Err(LockError::InvalidConfig { .. }))
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert!(!refused(|_| ()));
        assert!(refused(|c| c.default_ttl = Duration::ZERO));
        assert!(refused(
            |c| c.default_ttl = MAX_TTL + Duration::from_millis(1)
        ));
        assert!(!refused(|c| c.default_ttl = MAX_TTL));
        assert!(refused(|c| c.max_hold = Some(Duration::ZERO)));
        assert!(refused(|c| c.command_deadline = Duration::ZERO));
        assert!(refused(|c| c.default_wait = Some(Duration::ZERO)));
        assert!(refused(|c| c.unavailable_after = Some(Duration::ZERO)));
        assert!(refused(|c| c.ttl_jitter = f64::NAN));
        assert!(refused(|c| c.poll_interval = Duration::MAX));
        assert!(refused(|c| c.handover_limit = 0));
        assert!(refused(|c| c.prefix = "{a}".to_owned()));
        for name in ["", "two words", "{a}", "n\u{e4}me", &"a".repeat(41)] {
            assert!(refused(|c| c.client_name = Some(name.to_owned())), "{name}");
        }
        assert!(!refused(|c| c.client_name = Some("a".repeat(40))));
    }

    #[test]
    fn drift_is_one_percent_and_two_milliseconds() {
        let terms = Config::default().terms(Duration::from_secs(10)).unwrap();
        assert_eq!(terms.drift(), Duration::from_millis(102));
    }

    #[test]
    fn jitter_only_lengthens() {
        let config = Config {
            ttl_jitter: 0.5,
            ..Config::default()
        };
        let ttl = Duration::from_secs(1);
        let drawn: Vec<_> = (0..50).map(|_| config.terms(ttl).unwrap().ttl()).collect();
        assert!(drawn.iter().all(|t| (ttl..=ttl * 3 / 2).contains(t)));
        assert!(drawn.iter().any(|t| *t != drawn[0]));
    }
}
