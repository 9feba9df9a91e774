//! The settings of a manager, and their checks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::LockError;
use crate::base::key::check_prefix;
use crate::base::terms::Terms;
use crate::base::token::{NAME_LEN, is_name};

/// A shorter lease could end during a scheduling delay.
const MIN_TTL: Duration = Duration::from_millis(10);
/// A longer ttl is of no use as a lease, and overflows the timers of some clients.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(24 * 24 * 3600);

/// Longer than any wait, and short enough for the arithmetic of every clock. A longer time means no limit.
pub(crate) const ENDLESS: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The timer that announces a loss counts whole milliseconds.
const MIN_DRIFT: Duration = Duration::from_millis(2);

#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) prefix: String,
    /// `None` for host name and process id.
    pub(crate) client_name: Option<String>,
    pub(crate) default_ttl: Duration,
    /// `None` for no limit.
    pub(crate) default_wait: Option<Duration>,
    pub(crate) command_deadline: Duration,
    pub(crate) drift: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) ttl_jitter: f64,
    pub(crate) poll_interval: Duration,
    pub(crate) handover_limit: u32,
    pub(crate) handover_time: Duration,
    /// The time in which a node of a quorum that may have forgotten votes gives none.
    pub(crate) quorum_wait: Duration,
    pub(crate) is_quorum: bool,
    pub(crate) clock_skew: Duration,
    #[cfg(feature = "tls-rustls")]
    pub(crate) tls: Option<crate::base::tls::Tls>,
    pub(crate) sentinel: SentinelConfig,
    pub(crate) cluster_addresses: Option<ClusterAddresses>,
}

/// Where the nodes of a cluster are for this client, by the host and port that the cluster names.
#[derive(Clone)]
pub(crate) struct ClusterAddresses(pub(crate) Arc<AddressOf>);

type AddressOf = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl ClusterAddresses {
    pub(crate) fn of(&self, host: &str, port: u16) -> (String, u16) {
        (self.0)(host, port)
    }
}

impl fmt::Debug for ClusterAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAddresses").finish_non_exhaustive()
    }
}

/// The settings for sentinels, if they differ from the settings for servers.
#[derive(Clone, Default)]
pub(crate) struct SentinelConfig {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    #[cfg(feature = "tls-rustls")]
    pub(crate) tls: SentinelTls,
}

/// TLS to sentinels.
#[cfg(feature = "tls-rustls")]
#[derive(Clone, Default)]
pub(crate) enum SentinelTls {
    #[default]
    AsServers,
    Without,
    With(crate::base::tls::Tls),
}

// The password is a secret.
impl fmt::Debug for SentinelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelConfig").finish_non_exhaustive()
    }
}

#[cfg(feature = "tls-rustls")]
impl SentinelConfig {
    /// Whether to use TLS with sentinels, given whether the servers use it.
    pub(crate) fn speaks_tls(&self, servers: bool) -> bool {
        match self.tls {
            SentinelTls::AsServers => servers,
            SentinelTls::Without => false,
            SentinelTls::With(_) => true,
        }
    }

    /// The settings for a sentinel.
    pub(crate) fn config(&self, servers: &Config) -> Config {
        let tls = match &self.tls {
            SentinelTls::AsServers => servers.tls.clone(),
            SentinelTls::Without => None,
            SentinelTls::With(tls) => Some(tls.clone()),
        };
        Config {
            tls,
            ..servers.clone()
        }
    }
}

#[cfg(not(feature = "tls-rustls"))]
impl SentinelConfig {
    #[expect(clippy::unused_self, reason = "the same with the feature")]
    pub(crate) fn speaks_tls(&self, servers: bool) -> bool {
        servers
    }

    #[expect(clippy::unused_self, reason = "the same with the feature")]
    pub(crate) fn config(&self, servers: &Config) -> Config {
        servers.clone()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            prefix: "lock:".to_owned(),
            client_name: None,
            default_ttl: Duration::from_secs(30),
            default_wait: None,
            command_deadline: Duration::from_secs(1),
            drift: None,
            max_hold: None,
            ttl_jitter: 0.0,
            poll_interval: Duration::from_millis(100),
            handover_limit: 64,
            handover_time: Duration::from_millis(10),
            quorum_wait: Duration::from_secs(60),
            is_quorum: false,
            clock_skew: Duration::from_millis(500),
            #[cfg(feature = "tls-rustls")]
            tls: None,
            sentinel: SentinelConfig::default(),
            cluster_addresses: None,
        }
    }
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), LockError> {
        check_prefix(&self.prefix)?;
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
        if self.command_deadline.is_zero() {
            return Err(LockError::config(
                "the command deadline is zero: give the server time to answer, for example 1 s",
            ));
        }
        if self.clock_skew < Duration::from_millis(20) || self.clock_skew > Duration::from_secs(60)
        {
            return Err(LockError::config(
                "the clock skew is out of range: use for example 500 ms, at least 20 ms, and at most a minute",
            ));
        }
        if self.quorum_wait < Duration::from_secs(2) || self.quorum_wait > MAX_TTL * 2 {
            return Err(LockError::config(
                "the wait of a quorum is out of range: use for example 60 s, at least 2 s, and at most 48 days",
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
        if self.handover_time > Duration::from_secs(10) {
            return Err(LockError::config(
                "the hand-over time is out of range: choose at most 10 s",
            ));
        }
        if self.drift.is_some_and(|drift| drift < MIN_DRIFT) {
            return Err(LockError::config(
                "the drift is shorter than the precision of timers: choose at least 2 ms",
            ));
        }
        Ok(())
    }

    /// The terms of a lease of `ttl`, lengthened by the jitter.
    pub(crate) fn terms(&self, ttl: Duration) -> Result<Terms, LockError> {
        if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
            return Err(LockError::config(format!(
                "a ttl of {ttl:?} is out of range: choose one from 10 ms to 24 days"
            )));
        }
        self.check_for_quorum("ttl", ttl.mul_f64(1.0 + self.ttl_jitter))?;
        let asked = ttl;
        let ttl = match self.ttl_jitter {
            // The common case needs no random number.
            0.0 => ttl,
            jitter => ttl.mul_f64(1.0 + jitter * fastrand::f64()),
        };
        // The server counts whole milliseconds, so the deadline must, too.
        let ttl = Duration::from_millis(ttl.as_millis() as u64);
        let drift = self
            .drift
            .unwrap_or_else(|| ttl / 100 + Duration::from_millis(2));
        if drift >= ttl {
            return Err(LockError::config(format!(
                "a drift of {drift:?} leaves nothing of a ttl of {ttl:?}: make the ttl longer or the drift smaller"
            )));
        }
        Ok(Terms::new(ttl, asked, drift))
    }

    /// A node that may have forgotten a vote waits for a time in which the lock of this vote must end, also if a client learns
    /// late that the node is another server.
    pub(crate) fn check_for_quorum(&self, name: &str, time: Duration) -> Result<(), LockError> {
        let most = self.quorum_wait / 2;
        if self.is_quorum && time > most {
            return Err(LockError::config(format!(
                "{name} = {time:?} is too long for this quorum: choose at most {most:?}, half of its wait, or lengthen `quorum_wait` in all programs"
            )));
        }
        Ok(())
    }
}

pub(crate) fn check_max_hold(most: Duration) -> Result<(), LockError> {
    if most.is_zero() {
        return Err(LockError::config(
            "max_hold is zero: leave it out for no limit, or give a time",
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
        assert!(refused(|c| c.drift = Some(Duration::from_secs(30))));
        assert!(refused(|c| c.max_hold = Some(Duration::ZERO)));
        assert!(refused(|c| c.command_deadline = Duration::ZERO));
        assert!(refused(|c| c.default_wait = Some(Duration::ZERO)));
        assert!(refused(|c| c.ttl_jitter = f64::NAN));
        assert!(refused(|c| c.drift = Some(Duration::ZERO)));
        assert!(refused(|c| c.poll_interval = Duration::MAX));
        assert!(refused(|c| c.handover_limit = 0));
        assert!(refused(|c| c.quorum_wait = Duration::from_secs(1)));
        assert!(refused(|c| c.handover_time = Duration::MAX));
        assert!(refused(|c| c.prefix = "{a}".to_owned()));
        for name in ["", "two words", "{a}", "n\u{e4}me", &"a".repeat(41)] {
            assert!(refused(|c| c.client_name = Some(name.to_owned())), "{name}");
        }
        assert!(!refused(|c| c.client_name = Some("a".repeat(40))));
    }

    #[test]
    fn a_ttl_is_at_most_half_of_the_wait_of_a_quorum() {
        let mut config = Config::default();
        let (ttl, longer) = (Duration::from_secs(30), Duration::from_millis(30_001));
        assert!(config.terms(longer).is_ok());
        config.is_quorum = true;
        assert!(config.terms(ttl).is_ok() && config.terms(longer).is_err());
        config.ttl_jitter = 0.1;
        assert!(config.terms(ttl).is_err(), "it may become longer");
        config.quorum_wait = Duration::from_secs(66);
        assert!(config.terms(ttl).is_ok());
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
