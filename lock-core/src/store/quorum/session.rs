//! The session of a node: a connection on which its server was vetted. No I/O.
//!
//! | State | Means | Event: next state |
//! |---|---|---|
//! | None | no connection was vetted, or that one has ended | wanted: Making |
//! | Making | one task connects, loads the scripts, asks which run it is, and vets the server | it votes: Votes. it may have forgotten votes: Waits. anything else: Refused |
//! | Votes | what is asked on the connection counts, while it is younger than 0.48 of the wait | asked at a quarter of the wait, or earlier over a slow link: Making beside it. older, ended, or the counter is unknown: None |
//! | Waits | the server may have forgotten votes | the time is over: Making, wanted or not |
//! | Refused | no answer, another quorum, another format | wanted: Making |
//!
//! In Votes after another state the node may lack votes for locks that are held: the leases of these are confirmed.
//!
//! A connection can hide that its address leads to another server by now. Another server that came behind the address votes only after
//! the wait, when each lock has ended: its ttl is at most half of the wait. A margin is left for clocks that run at different speeds.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::note::Run;
use crate::base::single_flight::SingleFlight;
use crate::base::sync::lock;
use crate::base::time::{Clock, Moment, SystemClock};
use crate::store::StoreError;
use crate::store::redis::Connection;

/// Pause after a session that was not made, while the one before still counts.
const PAUSE: Duration = Duration::from_secs(1);

/// The sessions of one node.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) making: SingleFlight,
    pub(super) state: Mutex<SessionState>,
}

#[derive(Default)]
pub(super) struct SessionState {
    session: Option<Session>,
    /// The run of the server, and the connection on which it said so.
    heard: Option<(Weak<Connection>, Run)>,
    /// Why and when the last session was not made.
    refused: Option<(StoreError, Instant)>,
    pub(super) note: Note,
    /// The boot that waits or has waited, and the end of its wait by the clock of this client. It only grows.
    wait: Option<(String, Moment)>,
}

struct Session {
    connection: Weak<Connection>,
    /// The time before the connection was made.
    dialled: Moment,
    /// From then until it was vetted.
    made_in: Duration,
    /// The key of the node's counter.
    counter: Arc<str>,
    /// Whether the wait of the node is over by its own clock.
    votes: bool,
}

/// A connection that may be used for votes.
pub(super) struct Admitted {
    pub(super) connection: Arc<Connection>,
    /// The key of the node's counter.
    pub(super) counter: Arc<str>,
}

/// Whether a node may vote.
pub(super) enum Admission {
    /// On this connection. Whether it is time for its successor.
    Votes(Admitted, bool),
    Waits(Duration),
    /// A session has to be made.
    None,
}

/// The answer of a node about its note.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Note {
    #[default]
    Unknown,
    /// At this time it had no note, or the note of a quorum that has not begun.
    New(Moment),
    Read,
}

impl Sessions {
    /// Whether the server may be asked for a vote, or for its renewal.
    pub(super) fn admitted(&self, wait: Duration) -> Admission {
        let (state, now) = (lock(&self.state), SystemClock.now());
        let session = state.session.as_ref();
        let Some((session, connection)) = session.and_then(|it| Some((it, it.connection()?)))
        else {
            return Admission::None;
        };
        let age = session.dialled.until(now);
        if age >= wait * 12 / 25 {
            return Admission::None;
        }
        let left = state.wait_left(now);
        if !left.is_zero() {
            return Admission::Waits(left);
        }
        if !session.votes {
            return Admission::None;
        }
        let admitted = Admitted {
            connection,
            counter: Arc::clone(&session.counter),
        };
        Admission::Votes(admitted, age >= session.due(wait) && state.is_made_again())
    }

    /// Whether the votes of the server count.
    pub(super) fn votes(&self, wait: Duration) -> bool {
        matches!(self.admitted(wait), Admission::Votes(..))
    }

    /// The connection that was vetted.
    pub(super) fn vetted(&self) -> Option<Arc<Connection>> {
        lock(&self.state).session.as_ref()?.connection()
    }

    /// Notes that the node has lost its data, or may be another server.
    pub(super) fn is_unknown(&self) {
        lock(&self.state).session = None;
    }

    /// The rest of the wait of the node, if this client knows of one.
    pub(super) fn wait_left(&self, now: Moment) -> Duration {
        lock(&self.state).wait_left(now)
    }

    /// Notes what the server behind a connection is. Returns whether the server before was another one.
    pub(super) fn has_heard(&self, connection: &Arc<Connection>, run: &Run) -> bool {
        let heard = (Arc::downgrade(connection), run.clone());
        let before = lock(&self.state).heard.replace(heard);
        before.is_some_and(|(_, before)| !before.is(run))
    }

    /// Whether a connection leads to this run of a server.
    pub(super) fn leads_to(&self, run: &Run) -> bool {
        let state = lock(&self.state);
        let heard = state.heard.as_ref().filter(|(_, heard)| heard.id == run.id);
        heard.is_some_and(|(connection, _)| alive(connection).is_some())
    }
}

impl SessionState {
    /// A session was made: the server behind this connection waits for `left`, or votes.
    pub(super) fn made(&mut self, connection: &Arc<Connection>, counter: String, left: Duration) {
        self.session = Some(Session {
            connection: Arc::downgrade(connection),
            dialled: connection.dialled,
            made_in: connection.dialled.until(SystemClock.now()),
            counter: counter.into(),
            votes: left.is_zero(),
        });
    }

    /// An attempt to make a session is over.
    pub(super) fn is_over(&mut self, outcome: Result<(), StoreError>) {
        self.refused = outcome.err().map(|why| (why, Instant::now()));
    }

    /// The outcome of the last attempt.
    pub(super) fn outcome(&self) -> Result<(), StoreError> {
        match &self.refused {
            Some((why, _)) => Err(why.clone()),
            None => Ok(()),
        }
    }

    /// Whether the last attempt succeeded, or was some time ago.
    fn is_made_again(&self) -> bool {
        let refused = self.refused.as_ref();
        refused.is_none_or(|(_, at)| at.elapsed() >= PAUSE)
    }

    /// The rest of the wait, if this client knows of one.
    fn wait_left(&self, now: Moment) -> Duration {
        let until = self.wait.as_ref().map(|(_, until)| *until);
        until.map_or(Duration::ZERO, |until| now.until(until))
    }

    /// Notes that a node with this boot waits for `left`. Returns whether that is news.
    pub(super) fn waits(&mut self, boot: &str, left: Duration, now: Moment) -> bool {
        let known = self.wait.take().filter(|(known, _)| known == boot);
        let is_news = known.is_none() && !left.is_zero();
        let seen = known.map_or(now, |(_, until)| until);
        self.wait = Some((boot.to_owned(), seen.max(now + left)));
        is_news
    }
}

impl Session {
    /// The age at which its successor is made. A lease is renewed at least every sixth of the wait, so that it is ready in time.
    fn due(&self, wait: Duration) -> Duration {
        let latest = wait * (12 * 6 - 25) / (25 * 6);
        latest.saturating_sub(self.made_in).min(wait / 4)
    }

    fn connection(&self) -> Option<Arc<Connection>> {
        alive(&self.connection)
    }
}

fn alive(connection: &Weak<Connection>) -> Option<Arc<Connection>> {
    let connection = connection.upgrade();
    connection.filter(|connection| !connection.has_ended())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_that_was_not_made_is_made_again_after_a_second() {
        let mut state = SessionState::default();
        assert!(state.is_made_again());
        state.is_over(Err(StoreError::Misconfigured("no".into())));
        assert!(!state.is_made_again() && state.outcome().is_err());
        tokio::time::advance(PAUSE).await;
        assert!(state.is_made_again());
        state.is_over(Ok(()));
        assert!(state.is_made_again() && state.outcome().is_ok());
    }

    #[test]
    fn a_successor_is_made_in_time_for_the_renewals() {
        let wait = Duration::from_secs(60);
        let due = |made_in| {
            let session = Session {
                connection: Weak::new(),
                dialled: SystemClock.now(),
                made_in,
                counter: "".into(),
                votes: true,
            };
            session.due(wait)
        };
        assert_eq!(due(Duration::from_secs(1)), wait / 4);
        for made_in in [6, 10] {
            let made_in = Duration::from_secs(made_in);
            let next_renewal = due(made_in) + wait / 6;
            assert_eq!(next_renewal + made_in, wait * 12 / 25);
        }
        assert_eq!(due(wait), Duration::ZERO);
    }

    #[test]
    fn a_wait_that_was_seen_only_grows_while_the_boot_is_the_same() {
        let (mut state, now) = (SessionState::default(), SystemClock.now());
        let second = Duration::from_secs(1);
        assert!(state.wait_left(now).is_zero());
        assert!(state.waits("one", second * 60, now));
        // The clock of the node has jumped.
        assert!(!state.waits("one", Duration::ZERO, now + second));
        assert_eq!(state.wait_left(now + second), second * 59);
        assert!(!state.waits("one", second * 60, now + second * 2));
        assert_eq!(state.wait_left(now + second * 2), second * 60);
        // Another boot has waited before this client came.
        assert!(!state.waits("two", Duration::ZERO, now + second * 3));
        assert!(state.wait_left(now + second * 3).is_zero());
    }
}
