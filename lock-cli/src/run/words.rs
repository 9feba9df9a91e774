//! What lockctl and its keeper tell each other: lines over a socket.

use std::fmt;
use std::time::Duration;

use super::clock::Moment;

/// From lockctl to the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The lock is held until then.
    Deadline(Moment),
    /// The command may begin.
    Begin,
    /// A signal for the command.
    Signal(i32),
    /// The lock is lost: it may be another holder's already.
    Lost,
}

/// From the keeper to lockctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The process of the command is there. It waits for [`Order::Begin`].
    Ready(i32),
    /// A signal has stopped the command.
    Stopped(i32),
    /// With an exit code as shells have it.
    Ended(u8, Cause),
}

/// Why the command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// By itself.
    Own,
    /// The keeper has ended it, because the lock was lost or was about to be.
    Loss,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deadline(at) => write!(f, "deadline {}", at.as_nanos()),
            Self::Begin => f.write_str("begin"),
            Self::Signal(number) => write!(f, "signal {number}"),
            Self::Lost => f.write_str("lost"),
        }
    }
}

impl Order {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(match (words.next()?, words.next()) {
            ("deadline", Some(at)) => Self::Deadline(Duration::from_nanos(at.parse().ok()?)),
            ("begin", None) => Self::Begin,
            ("signal", Some(number)) => Self::Signal(number.parse().ok()?),
            ("lost", None) => Self::Lost,
            _ => return None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(pid) => write!(f, "ready {pid}"),
            Self::Stopped(signal) => write!(f, "stopped {signal}"),
            Self::Ended(code, Cause::Own) => write!(f, "ended {code}"),
            Self::Ended(code, Cause::Loss) => write!(f, "killed {code}"),
        }
    }
}

impl Report {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, number) = line.split_once(' ')?;
        Some(match word {
            "ready" => Self::Ready(number.parse().ok()?),
            "stopped" => Self::Stopped(number.parse().ok()?),
            "ended" => Self::Ended(number.parse().ok()?, Cause::Own),
            "killed" => Self::Ended(number.parse().ok()?, Cause::Loss),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_read_as_it_was_written() {
        let at = Duration::from_nanos(u64::MAX);
        for order in [
            Order::Deadline(at),
            Order::Begin,
            Order::Signal(15),
            Order::Lost,
        ] {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        for report in [
            Report::Ready(7),
            Report::Stopped(20),
            Report::Ended(3, Cause::Own),
            Report::Ended(143, Cause::Loss),
        ] {
            assert_eq!(Report::parse(&report.to_string()), Some(report));
        }
        assert_eq!((Order::parse(""), Report::parse("ready")), (None, None));
    }
}
