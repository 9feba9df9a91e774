//! The life of the connection to a server, as data: whether there is one, and when the next one is made. No I/O.
//!
//! | State | An old connection is | Event: next state |
//! |---|---|---|
//! | Idle: nothing needs one | | wanted: Dialing, or Pausing. moved: Idle, and the pause is forgotten |
//! | Pausing, with the task that dials | | time over, for a caller 100 ms: Dialing. moved: Dialing. unwanted: Idle |
//! | Dialing (g) | | made (g): Up. failed: Pausing. moved: Dialing, and g is Left. unwanted: Idle. the runtime ended: Idle |
//! | Up (g) | | ended (g): Idle, and g is Ended. moved: Idle, and g is Left. silent (g) for a limit: Doubted. succeeded by h: Up (h), and g is Ended |
//! | Doubted (g) | | heard (g): Up. silent (g) for longer than the maximum, and all events of Up: the same as there |
//! | Retired: no master any more | Left | |
//!
//! In each state, *retired* leads to Retired. After *ended* and *moved* the connection is wanted again if the engine needs it.
//!
//! [`Generation`] says what counts of an old connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::RedisError;
use tokio::time::Instant;

use crate::base::backoff::Backoff;
use crate::store::redis::connection::generation::Generation;

/// Maximum pauses after an attempt: after the first, and after any number that made no connection, or one that did not last.
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause while a caller waits for the connection.
const CALLERS_PAUSE: Duration = Duration::from_millis(100);

enum Phase<C> {
    Idle,
    Pausing,
    /// With the generation of the attempt, as soon as it connects.
    Dialing(Option<Arc<Generation>>),
    Up(Arc<Generation>, C),
    Doubted(Arc<Generation>, C),
    #[cfg(feature = "cluster")]
    Retired,
}

/// The life of the connections to one server. `C` is a connection.
pub(in crate::store::redis) struct ServerState<C> {
    phase: Phase<C>,
    /// Whether the task that dials runs: while a connection is being made, and until it has seen that there is one.
    task_runs: bool,
    /// The number of the next generation.
    next: u64,
    left: Arc<AtomicU64>,
    /// Callers that wait for the outcome of an attempt.
    callers: usize,
    /// The number of failed attempts, and the error of the last one.
    failures: u64,
    error: Option<RedisError>,
    backoff: Backoff,
    /// The end of the last attempt.
    attempted_at: Option<Instant>,
    /// The times of the next attempt: without a waiting caller, and with one. `None` for at once.
    due: Option<[Instant; 2]>,
    lost_at: Option<Instant>,
    was_up: bool,
    /// Whether the master is elsewhere, and there was no connection to it yet.
    pub(in crate::store::redis) has_moved: bool,
}

/// What the task that dials does next.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum DialStep {
    PauseUntil(Instant),
    Dial,
    /// There is a connection, or nothing needs one.
    End,
}

/// What a silence calls for.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Silent {
    /// A question, since the connection may receive garbage, or the answers to other requests.
    Ask,
    /// A question is under way, or the connection is not in use.
    Wait,
    /// The end of the connection.
    End,
}

impl<C: Clone> ServerState<C> {
    pub(in crate::store::redis) fn new() -> Self {
        Self {
            phase: Phase::Idle,
            task_runs: false,
            next: 0,
            left: Arc::default(),
            callers: 0,
            failures: 0,
            error: None,
            backoff: Backoff::new(PAUSE, LONGEST_PAUSE),
            attempted_at: None,
            due: None,
            lost_at: None,
            was_up: false,
            has_moved: false,
        }
    }

    /// The connection in use.
    pub(in crate::store::redis) fn current(&self) -> Option<&C> {
        match &self.phase {
            Phase::Up(_, connection) | Phase::Doubted(_, connection) => Some(connection),
            _ => None,
        }
    }

    fn in_use(&self) -> Option<&Arc<Generation>> {
        match &self.phase {
            Phase::Up(generation, _) | Phase::Doubted(generation, _) => Some(generation),
            _ => None,
        }
    }

    fn is_in_use(&self, number: u64) -> bool {
        self.in_use().is_some_and(|it| it.number == number)
    }

    pub(in crate::store::redis) fn is_being_made(&self) -> bool {
        matches!(self.phase, Phase::Pausing | Phase::Dialing(_))
    }

    pub(in crate::store::redis) fn is_dialing(&self) -> bool {
        matches!(self.phase, Phase::Dialing(_))
    }

    pub(in crate::store::redis) fn is_retired(&self) -> bool {
        match self.phase {
            #[cfg(feature = "cluster")]
            Phase::Retired => true,
            _ => false,
        }
    }

    /// Whether no connection was made so far.
    pub(in crate::store::redis) fn is_first(&self) -> bool {
        !self.was_up
    }

    /// A caller begins to wait for a connection. Returns the number of attempts that have failed so far.
    pub(in crate::store::redis) fn caller_waits(&mut self) -> u64 {
        self.callers += 1;
        self.failures
    }

    pub(in crate::store::redis) fn caller_goes(&mut self) {
        self.callers -= 1;
    }

    /// The error of the last attempt, if one has failed since there were this many failures.
    pub(in crate::store::redis) fn failed_since(&self, failures: u64) -> Option<RedisError> {
        let error = self.error.as_ref();
        error.filter(|_| self.failures > failures).cloned()
    }

    /// A connection is wanted. True if the task that dials has to begin.
    pub(in crate::store::redis) fn wanted(&mut self) -> bool {
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Pausing;
        }
        let begins = self.is_being_made() && !self.task_runs;
        self.task_runs |= begins;
        begins
    }

    /// The next step of the task.
    pub(in crate::store::redis) fn next(&mut self, in_use: bool, now: Instant) -> DialStep {
        let is_wanted = in_use || self.callers > 0;
        if !self.is_being_made() || !is_wanted {
            if self.is_being_made() {
                self.becomes(Phase::Idle);
            }
            self.task_runs = false;
            return DialStep::End;
        }
        let due = self.due.map(|due| due[usize::from(self.callers > 0)]);
        if let Some(due) = due.filter(|due| *due > now) {
            self.becomes(Phase::Pausing);
            return DialStep::PauseUntil(due);
        }
        self.becomes(Phase::Dialing(None));
        DialStep::Dial
    }

    /// A generation of the attempt under way. The one before, if there is one, has made no connection.
    pub(in crate::store::redis) fn dials(&mut self) -> Arc<Generation> {
        let generation = self.generation();
        if self.is_dialing() {
            self.becomes(Phase::Dialing(Some(Arc::clone(&generation))));
        } else {
            // The attempt was given up meanwhile.
            generation.end();
        }
        generation
    }

    fn generation(&mut self) -> Arc<Generation> {
        let generation = Arc::new(Generation::new(self.next, &self.left));
        self.next += 1;
        generation
    }

    /// An attempt has made a connection. False if the attempt does not count any more.
    pub(in crate::store::redis) fn made(
        &mut self,
        generation: &Arc<Generation>,
        connection: C,
        now: Instant,
    ) -> bool {
        match &self.phase {
            Phase::Dialing(Some(ours)) if Arc::ptr_eq(ours, generation) => {}
            _ => return false,
        }
        // Not ended by that.
        self.phase = Phase::Up(Arc::clone(generation), connection);
        self.attempted(now);
        (self.was_up, self.has_moved) = (true, false);
        true
    }

    /// Since when the connection before this one is lost. Once.
    pub(in crate::store::redis) fn was_lost_at(&mut self) -> Option<Instant> {
        self.lost_at.take()
    }

    pub(in crate::store::redis) fn failed(&mut self, error: RedisError, now: Instant) {
        if self.is_being_made() {
            self.becomes(Phase::Pausing);
            self.attempted(now);
        }
        self.failures += 1;
        self.error = Some(error);
    }

    /// An attempt has ended: the next one comes after a pause.
    fn attempted(&mut self, now: Instant) {
        let pause = self.backoff.failed();
        self.attempted_at = Some(now);
        self.due = Some([now + pause, now + pause.min(CALLERS_PAUSE)]);
    }

    /// The task was dropped before its end.
    pub(in crate::store::redis) fn dropped(&mut self, error: RedisError) {
        if self.is_being_made() {
            self.becomes(Phase::Idle);
        }
        self.task_runs = false;
        self.failures += 1;
        self.error = Some(error);
    }

    /// This connection has ended. Returns it if it was in use.
    pub(in crate::store::redis) fn ended(&mut self, number: u64, now: Instant) -> Option<C> {
        if !self.is_in_use(number) {
            return None;
        }
        // The attempt that made a connection which lasted does not count as failed.
        let lasted = |at| now.saturating_duration_since(at) >= LONGEST_PAUSE;
        if self.attempted_at.is_none_or(lasted) {
            self.no_pause();
        }
        self.lost_at = Some(now);
        self.becomes(Phase::Idle)
    }

    /// The server that is meant is elsewhere. Returns the connection in use, which leads to the old one.
    pub(in crate::store::redis) fn moved(&mut self, now: Instant) -> Option<C> {
        self.has_moved = true;
        self.no_pause();
        let next = match self.phase {
            #[cfg(feature = "cluster")]
            Phase::Retired => Phase::Retired,
            Phase::Pausing | Phase::Dialing(_) => Phase::Pausing,
            _ => Phase::Idle,
        };
        self.leaves(next, now)
    }

    /// Nothing counts any more of the connections so far.
    fn leaves(&mut self, next: Phase<C>, now: Instant) -> Option<C> {
        self.left.store(self.next, Ordering::SeqCst);
        let left = self.becomes(next);
        if left.is_some() {
            self.lost_at = Some(now);
        }
        left
    }

    /// Returns the connection that was in use. The generation before has ended.
    fn becomes(&mut self, next: Phase<C>) -> Option<C> {
        let (generation, connection) = match std::mem::replace(&mut self.phase, next) {
            Phase::Up(generation, connection) | Phase::Doubted(generation, connection) => {
                (generation, Some(connection))
            }
            Phase::Dialing(Some(generation)) => (generation, None),
            _ => return None,
        };
        generation.end();
        connection
    }

    fn no_pause(&mut self) {
        self.backoff.over();
        self.due = None;
    }

    /// This connection has been silent for this long.
    pub(in crate::store::redis) fn silent(
        &mut self,
        number: u64,
        lasts: Duration,
        maximum: Duration,
    ) -> Silent {
        if !self.is_in_use(number) {
            return Silent::Wait;
        }
        if lasts >= maximum {
            return Silent::End;
        }
        match &self.phase {
            Phase::Up(generation, connection) => {
                self.phase = Phase::Doubted(Arc::clone(generation), connection.clone());
                Silent::Ask
            }
            _ => Silent::Wait,
        }
    }

    /// This connection has answered the question.
    pub(in crate::store::redis) fn heard(&mut self, number: u64) {
        if let Phase::Doubted(generation, connection) = &self.phase
            && generation.number == number
        {
            self.phase = Phase::Up(Arc::clone(generation), connection.clone());
        }
    }
}

/// A node of a quorum.
#[cfg(feature = "quorum")]
impl<C: Clone> ServerState<C> {
    /// The generation of a connection that is made beside the one in use.
    pub(in crate::store::redis) fn dials_beside(&mut self) -> Arc<Generation> {
        self.generation()
    }

    /// This connection, made beside the one in use, takes its place. False if that one has ended.
    pub(in crate::store::redis) fn succeeded(
        &mut self,
        generation: &Arc<Generation>,
        connection: C,
    ) -> bool {
        let succeeds = |it: &Arc<Generation>| it.number < generation.number;
        let is_meant = self.in_use().is_some_and(succeeds) && generation.replies_count();
        if is_meant {
            self.becomes(Phase::Up(Arc::clone(generation), connection));
        }
        is_meant
    }
}

/// A master of a cluster.
#[cfg(feature = "cluster")]
impl<C: Clone> ServerState<C> {
    pub(in crate::store::redis) fn has_callers(&self) -> bool {
        self.callers > 0
    }

    /// The server is no master any more. Returns the connection in use.
    pub(in crate::store::redis) fn retired(&mut self, now: Instant) -> Option<C> {
        self.leaves(Phase::Retired, now)
    }
}

#[cfg(test)]
mod tests {
    use redis::ErrorKind;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A connection is named by its number.
    struct Line {
        state: ServerState<u64>,
        now: Instant,
        in_use: bool,
    }

    impl Line {
        fn idle() -> Self {
            let (state, now) = (ServerState::new(), Instant::now());
            let in_use = true;
            Self { state, now, in_use }
        }

        fn dialing() -> (Self, Arc<Generation>) {
            let mut line = Self::idle();
            assert!(line.state.wanted());
            assert_eq!(line.next(), DialStep::Dial);
            let generation = line.state.dials();
            (line, generation)
        }

        fn up() -> (Self, Arc<Generation>) {
            let (mut line, generation) = Self::dialing();
            assert!(line.made(&generation));
            assert_eq!(line.next(), DialStep::End);
            (line, generation)
        }

        fn next(&mut self) -> DialStep {
            self.state.next(self.in_use, self.now)
        }

        fn made(&mut self, generation: &Arc<Generation>) -> bool {
            self.state.made(generation, generation.number, self.now)
        }

        fn failed(&mut self) {
            let error = RedisError::from((ErrorKind::Io, "refused"));
            self.state.failed(error, self.now);
        }

        fn ended(&mut self, generation: &Generation) -> Option<u64> {
            self.state.ended(generation.number, self.now)
        }

        /// Another connection, for a caller.
        fn up_again(&mut self) -> Arc<Generation> {
            assert!(self.state.wanted());
            self.now += CALLERS_PAUSE;
            self.state.caller_waits();
            assert_eq!(self.next(), DialStep::Dial);
            self.state.caller_goes();
            let generation = self.state.dials();
            assert!(self.made(&generation));
            assert_eq!(self.next(), DialStep::End);
            generation
        }

        fn pause(&mut self) -> Option<Duration> {
            match self.next() {
                DialStep::PauseUntil(at) => Some(at - self.now),
                _ => None,
            }
        }
    }

    #[test]
    fn idle_a_wanted_connection_is_dialled_by_one_task() {
        let mut line = Line::idle();
        assert!(line.state.wanted());
        assert!(!line.state.wanted(), "the task runs");
        assert_eq!(line.next(), DialStep::Dial);
        assert!(!line.state.wanted());
    }

    #[test]
    fn idle_after_a_move_there_is_no_pause() {
        let (mut line, _) = Line::dialing();
        line.failed();
        line.in_use = false;
        assert_eq!(line.next(), DialStep::End);
        line.in_use = true;
        assert!(line.state.wanted());
        assert!(line.pause().is_some(), "it is kept while nothing dials");
        line.in_use = false;
        assert_eq!(line.next(), DialStep::End);
        assert_eq!(line.state.moved(line.now), None);
        line.in_use = true;
        assert!(line.state.wanted());
        assert_eq!(line.next(), DialStep::Dial);
    }

    #[test]
    fn pausing_ends_with_its_time_and_earlier_for_a_caller() {
        let (mut line, _) = Line::dialing();
        for _ in 0..10 {
            line.failed();
        }
        let pause = line.pause().unwrap();
        assert!(pause >= LONGEST_PAUSE / 2, "{pause:?}");
        line.state.caller_waits();
        assert_eq!(line.pause(), Some(CALLERS_PAUSE));
        line.state.caller_goes();
        line.now += pause;
        assert_eq!(line.next(), DialStep::Dial);
    }

    #[test]
    fn pausing_ends_with_a_move() {
        let (mut line, _) = Line::dialing();
        line.failed();
        assert!(line.pause().is_some());
        line.state.moved(line.now);
        assert!(!line.state.wanted(), "the task goes on");
        assert_eq!(line.next(), DialStep::Dial);
    }

    #[test]
    fn pausing_and_dialing_end_when_nothing_wants_a_connection() {
        let (mut line, generation) = Line::dialing();
        line.in_use = false;
        line.state.caller_waits();
        assert_eq!(line.next(), DialStep::Dial, "a caller waits");
        line.state.caller_goes();
        assert_eq!(line.next(), DialStep::End);
        assert!(line.state.wanted() && !generation.messages_count());
    }

    #[test]
    fn dialing_makes_the_connection_in_use() {
        let (mut line, generation) = Line::dialing();
        assert!(line.state.is_first() && line.state.current().is_none());
        assert!(generation.messages_count(), "also before it is in use");
        assert!(line.made(&generation));
        assert_eq!(line.state.current(), Some(&0));
        assert_eq!(line.next(), DialStep::End);
        assert!(!line.state.is_first() && generation.messages_count());
        assert_eq!(line.state.was_lost_at(), None, "it is the first");
    }

    #[test]
    fn dialing_again_in_one_attempt_ends_the_connection_before() {
        let (mut line, with_resp3) = Line::dialing();
        let with_resp2 = line.state.dials();
        assert!(!with_resp3.messages_count() && with_resp2.number > with_resp3.number);
        assert!(!line.made(&with_resp3));
        assert!(line.made(&with_resp2));
        assert_eq!(line.ended(&with_resp3), None, "late news");
    }

    #[test]
    fn dialing_that_fails_is_told_to_the_callers_and_pauses() {
        let (mut line, generation) = Line::dialing();
        let before = line.state.caller_waits();
        assert!(line.state.failed_since(before).is_none());
        line.failed();
        assert!(line.state.failed_since(before).is_some());
        let later = line.state.caller_waits();
        assert!(line.state.failed_since(later).is_none());
        assert!(line.pause().is_some() && !generation.messages_count());
    }

    #[test]
    fn dialing_during_a_move_begins_anew_and_what_it_made_was_left() {
        let (mut line, generation) = Line::dialing();
        line.state.moved(line.now);
        assert!(!line.state.is_dialing(), "the attempt is given up");
        assert!(!line.made(&generation) && !generation.replies_count());
        assert_eq!(line.next(), DialStep::Dial);
        let next = line.state.dials();
        assert!(line.made(&next) && next.replies_count());
    }

    #[test]
    fn dialing_ends_with_its_runtime() {
        let (mut line, _) = Line::dialing();
        let before = line.state.caller_waits();
        let error = RedisError::from((ErrorKind::Io, "the runtime has ended"));
        line.state.dropped(error);
        assert!(line.state.failed_since(before).is_some());
        assert!(line.state.wanted(), "another task may begin");
    }

    #[test]
    fn up_and_ended_its_replies_count_and_its_messages_do_not() {
        let (mut line, generation) = Line::up();
        assert_eq!(line.ended(&generation), Some(0));
        assert!(line.state.current().is_none());
        assert!(generation.replies_count() && !generation.messages_count());
        assert_eq!(line.ended(&generation), None, "it is told once");
        let since = line.now;
        let next = line.up_again();
        assert_eq!(line.state.was_lost_at(), Some(since));
        assert_eq!(line.ended(&generation), None, "late news");
        assert!(next.messages_count());
    }

    #[test]
    fn up_and_ended_before_its_task_the_same_task_dials_again() {
        let (mut line, generation) = Line::dialing();
        assert!(line.made(&generation));
        line.ended(&generation);
        assert!(!line.state.wanted(), "one task is enough");
        assert!(line.pause().is_some());
        line.in_use = false;
        assert_eq!(line.next(), DialStep::End);
        assert!(line.state.wanted());
    }

    #[test]
    fn up_and_moved_neither_counts_also_of_a_connection_that_had_ended() {
        let (mut line, silent) = Line::up();
        line.ended(&silent);
        let generation = line.up_again();
        assert_eq!(line.state.moved(line.now), Some(generation.number));
        assert!(line.state.has_moved);
        for left in [&silent, &generation] {
            assert!(!left.replies_count() && !left.messages_count());
        }
        let next = line.up_again();
        assert!(next.replies_count() && !line.state.has_moved);
    }

    #[test]
    fn up_a_connection_that_lasted_has_a_successor_at_once() {
        let (mut line, generation) = Line::up();
        line.now += LONGEST_PAUSE.mul_f64(0.999);
        line.ended(&generation);
        let due = line.state.due;
        assert!(due.is_some(), "the pause counts from its beginning");
        let generation = line.up_again();
        line.now += LONGEST_PAUSE;
        line.ended(&generation);
        assert!(line.state.wanted());
        assert_eq!(line.next(), DialStep::Dial);
    }

    #[test]
    fn up_connections_that_do_not_last_come_after_longer_pauses() {
        let (mut line, mut generation) = Line::up();
        for _ in 0..10 {
            line.ended(&generation);
            generation = line.up_again();
        }
        line.ended(&generation);
        assert!(line.state.wanted());
        assert!(line.pause().unwrap() >= LONGEST_PAUSE / 2);
    }

    #[test]
    fn up_and_silent_it_is_asked_once_and_used_on() {
        let (mut line, generation) = Line::up();
        let silent = |line: &mut Line| line.state.silent(generation.number, MS, MS * 2);
        assert_eq!(silent(&mut line), Silent::Ask);
        assert_eq!(silent(&mut line), Silent::Wait, "it is doubted");
        assert_eq!(line.state.current(), Some(&0));
        line.state.heard(generation.number);
        assert_eq!(silent(&mut line), Silent::Ask, "it was heard");
        line.state.heard(generation.number + 1);
        assert_eq!(silent(&mut line), Silent::Wait, "that was another one");
    }

    #[test]
    fn doubted_it_ends_as_before_and_by_its_silence() {
        let (mut line, generation) = Line::up();
        let number = generation.number;
        assert_eq!(line.state.silent(number, MS * 2, MS * 2), Silent::End);
        assert_eq!(line.state.silent(number, MS, MS * 2), Silent::Ask);
        assert_eq!(line.state.silent(number, MS * 2, MS * 2), Silent::End);
        assert_eq!(line.ended(&generation), Some(number));
        assert_eq!(line.state.silent(number, MS, MS * 2), Silent::Wait);
        let generation = line.up_again();
        line.state.silent(generation.number, MS, MS * 2);
        assert_eq!(line.state.moved(line.now), Some(generation.number));
        assert!(!generation.replies_count());
    }

    #[test]
    #[cfg(feature = "quorum")]
    fn up_and_succeeded_the_replies_of_the_old_connection_count() {
        let (mut line, old) = Line::up();
        let next = line.state.dials_beside();
        assert!(old.messages_count() && line.state.current() == Some(&0));
        assert!(line.state.succeeded(&next, next.number));
        assert_eq!(line.state.current(), Some(&1));
        assert!(old.replies_count() && !old.messages_count());
        assert_eq!(line.ended(&old), None, "late news");
        assert_eq!(line.state.was_lost_at(), None, "nothing is lost");
    }

    #[test]
    #[cfg(feature = "quorum")]
    fn up_a_successor_of_a_connection_that_has_ended_is_none() {
        let (mut line, old) = Line::up();
        let next = line.state.dials_beside();
        line.ended(&old);
        assert!(!line.state.succeeded(&next, next.number));
        let newer = line.up_again();
        assert!(!line.state.succeeded(&next, next.number));
        assert_eq!(line.state.current(), Some(&newer.number));
    }

    #[test]
    #[cfg(feature = "cluster")]
    fn retired_from_each_state_is_final_and_nothing_counts() {
        let (mut dialing, attempt) = Line::dialing();
        let (mut up, generation) = Line::up();
        let mut idle = Line::idle();
        assert_eq!(idle.state.retired(idle.now), None);
        assert_eq!(dialing.state.retired(dialing.now), None);
        assert_eq!(up.state.retired(up.now), Some(0));
        assert!(!attempt.replies_count() && !generation.replies_count());
        assert!(!dialing.made(&attempt));
        for mut line in [idle, dialing, up] {
            line.failed();
            line.state.moved(line.now);
            assert!(line.state.is_retired() && !line.state.wanted());
            assert_eq!(line.next(), DialStep::End);
        }
    }
}
