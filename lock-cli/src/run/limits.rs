//! How long the command has: when it gets SIGTERM, and when SIGKILL.

use std::time::Duration;

use clap::Args;

use super::clock::Moment;
use crate::exit::Failure;

/// A shorter lease leaves no time to end a command.
const MINIMUM_TTL: Duration = Duration::from_secs(1);
/// Minimum time between SIGTERM and SIGKILL, if the options do not state one.
const GRACE: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Args)]
pub(crate) struct Limits {
    /// For how long the lock is held without a reply of the server: after a crash of this machine others wait that long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    pub(crate) ttl: Duration,
    /// The time between SIGTERM and SIGKILL when the lock is lost, at most half of the ttl. Default: a tenth of the ttl and at
    /// least 200ms; 200ms if another client took the lock
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) grace: Option<Duration>,
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.ttl < MINIMUM_TTL {
            let short = "the ttl is too short to end a command in time: state at least 1s";
            return Err(Failure::Usage(short.to_owned()));
        }
        if self.grace.is_some_and(|grace| grace > self.ttl / 2) {
            let long = "`--grace` is too long: state at most half of the ttl";
            return Err(Failure::Usage(long.to_owned()));
        }
        Ok(())
    }

    /// The moment for SIGTERM, if the lease is not renewed. The watchdog renews when a third has passed.
    pub(super) fn end_at(&self, deadline: Moment) -> Moment {
        let grace = self.grace.unwrap_or((self.ttl / 10).max(GRACE));
        self.kill_at(deadline).saturating_sub(grace)
    }

    /// The moment for SIGKILL: before the lease ends, also if this process gets the processor late.
    pub(super) fn kill_at(&self, deadline: Moment) -> Moment {
        let margin = (self.ttl / 20).min(Duration::from_millis(500));
        deadline.saturating_sub(margin)
    }

    /// The time between SIGTERM and SIGKILL, if another client has the lock already.
    pub(super) fn grace_when_lost(&self) -> Duration {
        self.grace.unwrap_or(GRACE)
    }

    /// How often lockctl tells the keeper the deadline.
    pub(super) fn interval(&self) -> Duration {
        (self.ttl / 40).min(Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_command_is_asked_and_then_killed_before_the_lease_ends() {
        let deadline = ms(100_000);
        for (ttl, grace, end, kill) in [
            (ms(30_000), None, ms(96_500), ms(99_500)),
            (ms(1_000), None, ms(99_750), ms(99_950)),
            (ms(2_000), Some(ms(1_000)), ms(98_900), ms(99_900)),
        ] {
            let limits = Limits { ttl, grace };
            assert!(limits.check().is_ok());
            assert_eq!(limits.end_at(deadline), end);
            assert_eq!(limits.kill_at(deadline), kill);
        }
    }
}
