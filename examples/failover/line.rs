//! What a worker process writes to the first process: one line for each hold that has ended.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A time in microseconds since 1970: all processes run on one machine.
pub(crate) type Micros = u64;

pub(crate) fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as Micros)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// All clients are connected.
    Ready,
    Ended(Hold),
    Failed(Failure),
}

/// A hold that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The number of the worker process.
    pub(crate) process: usize,
    pub(crate) work: Work,
    /// The lock was asked for.
    pub(crate) asked: Micros,
    /// The client believed in it from here ..
    pub(crate) from: Micros,
    /// .. to here: just before the release was called, or when the guard said that it was lost.
    pub(crate) to: Micros,
    /// When the client was told that it was lost; 0 if it was not.
    pub(crate) lost: Micros,
}

/// An acquisition that has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) process: usize,
    pub(crate) at: Micros,
    pub(crate) why: String,
}

/// What a lock is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A few milliseconds, by the busy client of this number.
    Busy(usize),
    /// The whole event.
    Long,
    /// 2.5 s; one is taken every 10 ms.
    Fresh,
    /// A few milliseconds. Clients of all processes compete for the key of this number.
    Shared(usize),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hold = match self {
            Self::Ready => return f.write_str("ready"),
            Self::Failed(Failure { process, at, why }) => {
                return write!(f, "failed {process} {at} {}", why.replace('\n', " "));
            }
            Self::Ended(hold) => hold,
        };
        match hold.work {
            Work::Busy(number) => write!(f, "busy {number} ")?,
            Work::Long => f.write_str("long 0 ")?,
            Work::Fresh => f.write_str("fresh 0 ")?,
            Work::Shared(number) => write!(f, "shared {number} ")?,
        }
        let (process, asked) = (hold.process, hold.asked);
        write!(
            f,
            "{process} {asked} {} {} {}",
            hold.from, hold.to, hold.lost
        )
    }
}

impl Line {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        if name == "ready" {
            return Some(Self::Ready);
        }
        if name == "failed" {
            let mut words = rest.splitn(3, ' ');
            return Some(Self::Failed(Failure {
                process: words.next()?.parse().ok()?,
                at: words.next()?.parse().ok()?,
                why: words.next()?.to_owned(),
            }));
        }
        let numbers: Result<Vec<u64>, _> = rest.split(' ').map(str::parse).collect();
        let [number, process, asked, from, to, lost] = numbers.ok()?[..] else {
            return None;
        };
        let work = match name {
            "busy" => Work::Busy(number as usize),
            "long" => Work::Long,
            "fresh" => Work::Fresh,
            "shared" => Work::Shared(number as usize),
            _ => return None,
        };
        Some(Self::Ended(Hold {
            process: process as usize,
            work,
            asked,
            from,
            to,
            lost,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Hold, Line, Work};

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let hold = |work| {
            Line::Ended(Hold {
                process: 1,
                work,
                asked: 2,
                from: 3,
                to: 4,
                lost: 0,
            })
        };
        let works = [Work::Busy(3), Work::Long, Work::Fresh, Work::Shared(2)];
        let failed = Line::Failed(Failure {
            process: 1,
            at: 7,
            why: "the server is not available".to_owned(),
        });
        for line in works.map(hold).into_iter().chain([Line::Ready, failed]) {
            assert_eq!(Line::parse(&line.to_string()), Some(line));
        }
        for text in [
            "",
            "busy",
            "busy 1 2 3 4 5",
            "idle 1 2 3 4 5 6",
            "failed 1 x y",
        ] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }
}
