//! What a client does about the replies of a cluster that send it elsewhere. No I/O.
//!
//! A request with such a reply was not carried out, with one exception: a script whose last key of a kind was removed on the way,
//! in a slot that is moving, is stopped there. Each of our scripts may be repeated, and then does the rest.

use std::ops::RangeInclusive;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::slots::Address;
use crate::store::redis::error::is_made_up;

/// A pause, ms: shortest and longest.
pub(super) type Pause = RangeInclusive<u64>;

pub(super) const NONE: Pause = 0..=0;

/// Pauses before a request is repeated whose slot is half moved.
const HALF_MOVED: [Pause; 4] = [5..=20, 10..=40, 20..=80, 40..=160];

/// The same, while the cluster does not serve the slot: a failover takes much longer.
const DOWN: Pause = 20..=60;

/// Maximum redirections in a row that are followed at once. Two nodes that disagree send a request to and fro.
const AT_ONCE: u32 = 5;

/// A reply of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// Another node serves the slot.
    Moved(Address),
    /// The slot is on its way to another node, and this key is there already.
    Ask(Address),
    /// The slot is half moved: some of the keys are here and some are there.
    TryAgain,
    /// The cluster does not serve this slot, or any.
    Down,
    /// Nothing of a cluster.
    Other,
}

impl Said {
    /// Reads a reply of the node on this host: a redirection may leave out the host. `ours` is false for a script of the user.
    pub(super) fn read(error: &RedisError, host: &str, ours: bool) -> Self {
        let ErrorKind::Server(kind) = error.kind() else {
            return Self::Other;
        };
        if is_made_up(error) {
            return Self::Other;
        }
        let to = || {
            let (host_, port) = error.redirect_node()?.0.rsplit_once(':')?;
            let host = if host_.is_empty() { host } else { host_ };
            Some((host.into(), port.parse().ok()?))
        };
        match (kind, to()) {
            (ServerErrorKind::Moved, Some(to)) => Self::Moved(to),
            (ServerErrorKind::Ask, Some(to)) => Self::Ask(to),
            (ServerErrorKind::TryAgain, _) => Self::TryAgain,
            (ServerErrorKind::ResponseError, _) if ours && was_stopped(error) => Self::TryAgain,
            (ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown, _) => Self::Down,
            _ => Self::Other,
        }
    }
}

/// Whether a script was stopped at a key that the node does not have, in a slot that is moving.
fn was_stopped(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.contains("attempted to access a non local key"))
}

/// What to do with the request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Send it to the node that serves the slot as far as is known, after a pause if there is one.
    Again { after: Pause },
    /// Send it to this node, behind an `ASKING`.
    Ask(Address),
    /// This node serves the slot from now on: send it there, after a pause if there is one.
    Follow { to: Address, after: Pause },
    /// It is the answer.
    Done,
}

/// The redirections of one request.
#[derive(Debug, Default)]
pub(super) struct Redirections {
    in_a_row: u32,
    half_moved: usize,
}

impl Redirections {
    pub(super) fn next(&mut self, said: Said) -> NextStep {
        self.in_a_row += 1;
        let after = if self.in_a_row <= AT_ONCE {
            NONE
        } else {
            HALF_MOVED[0].clone()
        };
        match said {
            Said::Moved(to) => NextStep::Follow { to, after },
            Said::Ask(_) if self.in_a_row > AT_ONCE => NextStep::Again { after },
            Said::Ask(to) => NextStep::Ask(to),
            Said::TryAgain => {
                self.in_a_row = 0;
                let pause = self.half_moved.min(HALF_MOVED.len() - 1);
                self.half_moved += 1;
                NextStep::Again {
                    after: HALF_MOVED[pause].clone(),
                }
            }
            Said::Down => {
                self.in_a_row = 0;
                NextStep::Again { after: DOWN }
            }
            Said::Other => NextStep::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        ("h".into(), port)
    }

    #[test]
    fn each_reply_has_its_step() {
        for (said, next) in [
            (
                Said::Moved(at(1)),
                NextStep::Follow {
                    to: at(1),
                    after: NONE,
                },
            ),
            (Said::Ask(at(1)), NextStep::Ask(at(1))),
            (
                Said::TryAgain,
                NextStep::Again {
                    after: HALF_MOVED[0].clone(),
                },
            ),
            (Said::Down, NextStep::Again { after: DOWN }),
            (Said::Other, NextStep::Done),
        ] {
            assert_eq!(Redirections::default().next(said), next);
        }
    }

    #[test]
    fn nodes_that_disagree_are_asked_with_pauses() {
        let mut redirections = Redirections::default();
        for _ in 0..AT_ONCE {
            assert_eq!(redirections.next(Said::Ask(at(1))), NextStep::Ask(at(1)));
        }
        assert_eq!(
            redirections.next(Said::Ask(at(1))),
            NextStep::Again {
                after: HALF_MOVED[0].clone()
            }
        );
        let moved = redirections.next(Said::Moved(at(2)));
        assert_eq!(
            moved,
            NextStep::Follow {
                to: at(2),
                after: HALF_MOVED[0].clone()
            }
        );
        // A slot that is half moved is no disagreement. The pauses grow.
        for pause in [0, 1, 2, 3, 3] {
            let after = HALF_MOVED[pause].clone();
            assert_eq!(redirections.next(Said::TryAgain), NextStep::Again { after });
        }
        assert_eq!(redirections.next(Said::Ask(at(1))), NextStep::Ask(at(1)));
    }

    #[test]
    fn replies_are_read() {
        let read = |reply: &str| {
            let value = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
            Said::read(&value.extract_error().unwrap_err(), "here", true)
        };
        assert_eq!(read("MOVED 3999 h:1"), Said::Moved(at(1)));
        assert_eq!(read("MOVED 3999 ::1:7"), Said::Moved(("::1".into(), 7)));
        assert_eq!(read("ASK 3999 :1"), Said::Ask(("here".into(), 1)));
        assert_eq!(
            read("TRYAGAIN Multiple keys request during rehashing of slot"),
            Said::TryAgain
        );
        assert_eq!(read("CLUSTERDOWN The cluster is down"), Said::Down);
        assert_eq!(read("MASTERDOWN Link with MASTER is down"), Said::Down);
        let stopped = "ERR Script attempted to access a non local key in a cluster node script: f, on @user_script:1.";
        assert_eq!(read(stopped), Said::TryAgain);
        let raised = "TRYAGAIN later script: f, on @user_script:1.";
        assert_eq!(read(raised), Said::Other);
        assert_eq!(read("MOVED 3999"), Said::Other);
        assert_eq!(read("ERR no"), Said::Other);
    }
}
