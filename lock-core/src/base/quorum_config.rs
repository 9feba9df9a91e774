//! The settings of a quorum.

use std::time::Duration;

use crate::base::config::{Longest, MAX_TTL};
use crate::base::error::LockError;

#[derive(Debug, Clone)]
pub(crate) struct QuorumConfig {
    /// The time in which a node that may have forgotten votes gives none.
    pub(crate) wait: Duration,
    pub(crate) clock_skew: Duration,
}

impl Default for QuorumConfig {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(60),
            clock_skew: Duration::from_millis(500),
        }
    }
}

impl QuorumConfig {
    pub(crate) fn check(&self) -> Result<(), LockError> {
        if self.clock_skew < Duration::from_millis(20) || self.clock_skew > Duration::from_secs(60)
        {
            return Err(LockError::config(
                "the clock skew is out of range: use for example 500 ms, at least 20 ms, and at most a minute",
            ));
        }
        if self.wait < Duration::from_secs(2) || self.wait > MAX_TTL * 2 {
            return Err(LockError::config(
                "the wait of a quorum is out of range: use for example 60 s, at least 2 s, and at most 48 days",
            ));
        }
        Ok(())
    }

    /// A node that may have forgotten a vote waits for a time in which the lock of this vote must end, also if a client learns
    /// late that the node is another server.
    pub(crate) fn longest(&self) -> Longest {
        Longest {
            time: self.wait / 2,
            store: "this quorum",
            advice: "half of its wait, or lengthen `quorum_wait` in all programs",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::Config;

    #[test]
    fn a_ttl_is_at_most_half_of_the_wait_of_a_quorum() {
        let mut config = Config::default();
        let (ttl, longer) = (Duration::from_secs(30), Duration::from_millis(30_001));
        assert!(config.terms(longer).is_ok());
        let mut quorum = QuorumConfig::default();
        config.longest = Some(quorum.longest());
        assert!(config.terms(ttl).is_ok() && config.terms(longer).is_err());
        config.ttl_jitter = 0.1;
        assert!(config.terms(ttl).is_err(), "it may become longer");
        quorum.wait = Duration::from_secs(66);
        config.longest = Some(quorum.longest());
        assert!(config.terms(ttl).is_ok());
    }

    #[test]
    fn a_wait_that_is_too_short_is_refused() {
        let mut quorum = QuorumConfig::default();
        assert!(quorum.check().is_ok());
        quorum.wait = Duration::from_secs(1);
        assert!(quorum.check().is_err());
    }
}
