//! Who had the lock when, and what that says about hand-overs, waits and fairness.
//!
//! Each worker keeps three instants of each of its turns: before it asked, after it was granted, before it
//! gave the lock back. They are read from a clock that all processes share, and the last two inside the critical section,
//! so the order of the grants is theirs, whoever made the lock. It costs every contestant the same: a reading of the clock.

use serde::{Deserialize, Serialize};

use crate::stats::Sorted;

/// The turns of one worker, written down while it runs.
#[derive(Debug, Default, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct Log {
    /// Three steps a turn, each from the instant before it: asked, granted, given back.
    steps: Vec<u64>,
    last: u64,
    start: u64,
    /// When it asked for what it has not got.
    waiting_since: Option<u64>,
    /// Calls that failed.
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

impl Log {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            start,
            last: start,
            ..Self::default()
        }
    }

    pub(crate) fn asked(&mut self, instant: u64) {
        self.waiting_since = Some(instant);
    }

    pub(crate) fn turn(&mut self, asked: u64, granted: u64, given_back: u64) {
        self.steps.extend([
            asked.saturating_sub(self.last),
            granted - asked,
            given_back - granted,
        ]);
        self.last = given_back;
        self.waiting_since = None;
    }

    pub(crate) fn failed(&mut self, error: &impl std::fmt::Display) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.to_string());
    }

    fn turns(&self) -> impl Iterator<Item = Turn> {
        let mut at = self.start;
        self.steps
            .as_chunks()
            .0
            .iter()
            .map(move |&[ask, wait, hold]| {
                let asked = at + ask;
                let granted = asked + wait;
                at = granted + hold;
                Turn {
                    asked,
                    granted,
                    given_back: at,
                }
            })
    }
}

/// One worker's hold of the lock.
#[derive(Debug, Clone, Copy)]
struct Turn {
    asked: u64,
    granted: u64,
    given_back: u64,
}

/// What happened in a window of time, over all processes.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) seconds: f64,
    pub(crate) grants: usize,
    /// Grants to another worker than the one before.
    pub(crate) hand_overs: usize,
    /// From before the release to after the next worker's acquire, in nanoseconds.
    pub(crate) hand_over: Sorted,
    /// The same where the next worker is in another process.
    pub(crate) between_processes: Sorted,
    /// From before the acquire to after it; a worker that still waits counts with what it has waited for.
    pub(crate) waits: Sorted,
    /// From one acquire to the next of the same worker.
    pub(crate) cycles: Sorted,
    pub(crate) per_worker: Range,
    pub(crate) per_process: Range,
    /// The part of the window in which the lock was held.
    pub(crate) held: f64,
    /// Grants before the hold before them had ended. A lock has none.
    pub(crate) overlaps: usize,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

/// The fewest and the most turns that anyone had.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) fewest: usize,
    pub(crate) most: usize,
}

impl Range {
    fn of(counts: impl IntoIterator<Item = usize>) -> Self {
        counts
            .into_iter()
            .fold(None, |range, count| {
                let Self { fewest, most } = range.unwrap_or(Self {
                    fewest: count,
                    most: count,
                });
                Some(Self {
                    fewest: fewest.min(count),
                    most: most.max(count),
                })
            })
            .unwrap_or_default()
    }

    /// The fewest over the most; nothing where nobody had a turn.
    pub(crate) fn ratio(self) -> Option<f64> {
        (self.most > 0).then(|| self.fewest as f64 / self.most as f64)
    }
}

/// What the workers of all processes wrote down, counted from one instant to another.
pub(crate) fn account(processes: &[Vec<Log>], from: u64, to: u64) -> Account {
    let mut line = Vec::new();
    let (mut waits, mut cycles) = (Vec::new(), Vec::new());
    let (mut per_worker, mut per_process) = (Vec::new(), Vec::new());
    let mut account = Account {
        seconds: to.saturating_sub(from) as f64 / 1e9,
        ..Account::default()
    };
    for (process, logs) in processes.iter().enumerate() {
        let before = line.len();
        for log in logs {
            let worker = per_worker.len();
            let mut turns = 0;
            let mut last_asked = None;
            for turn in log
                .turns()
                .filter(|turn| (from..to).contains(&turn.granted))
            {
                turns += 1;
                waits.push(turn.granted - turn.asked);
                if let Some(last) = last_asked.replace(turn.asked) {
                    cycles.push(turn.asked - last);
                }
                line.push((turn, worker, process));
            }
            if let Some(since) = log.waiting_since
                && since < to
            {
                waits.push(to - since);
            }
            per_worker.push(turns);
            account.errors += log.errors;
            if account.first_error.is_none() {
                account.first_error.clone_from(&log.first_error);
            }
        }
        per_process.push(line.len() - before);
    }
    line.sort_unstable_by_key(|(turn, worker, _)| (turn.granted, *worker));

    let (mut hand_over, mut between) = (Vec::new(), Vec::new());
    for pair in line.windows(2) {
        let [
            (before, worker, process),
            (after, next_worker, next_process),
        ] = pair
        else {
            continue;
        };
        if after.granted < before.given_back {
            account.overlaps += 1;
        }
        if worker != next_worker {
            let gap = after.granted.saturating_sub(before.given_back);
            hand_over.push(gap);
            if process != next_process {
                between.push(gap);
            }
        }
    }
    let held: u64 = line
        .iter()
        .map(|(turn, ..)| turn.given_back.min(to) - turn.granted)
        .sum();
    account.held = held as f64 / to.saturating_sub(from).max(1) as f64;
    account.grants = line.len();
    account.hand_overs = hand_over.len();
    account.hand_over = Sorted::of(hand_over);
    account.between_processes = Sorted::of(between);
    account.waits = Sorted::of(waits);
    account.cycles = Sorted::of(cycles);
    account.per_worker = Range::of(per_worker);
    account.per_process = Range::of(per_process);
    account
}

#[cfg(test)]
mod tests {
    use super::{Log, Range, account};

    fn log(turns: &[(u64, u64, u64)]) -> Log {
        let mut log = Log::new(100);
        for &(asked, granted, given_back) in turns {
            log.asked(asked);
            log.turn(asked, granted, given_back);
        }
        log
    }

    #[test]
    fn a_hand_over_goes_to_another_worker() {
        let first = log(&[(100, 110, 120), (120, 121, 130), (130, 160, 170)]);
        let second = log(&[(105, 135, 150)]);
        let all = account(&[vec![first, second]], 100, 1000);
        assert_eq!((all.grants, all.hand_overs), (4, 2));
        // 130 to 135, and 150 to 160; 120 to 121 is the same worker again.
        assert_eq!(all.hand_over.percentile(50), Some(5));
        assert_eq!(all.hand_over.most(), Some(10));
        assert_eq!(all.between_processes.len(), 0);
        assert_eq!(all.per_worker, Range { fewest: 1, most: 3 });
        assert_eq!(all.per_process, Range { fewest: 4, most: 4 });
        assert_eq!(all.overlaps, 0);
    }

    #[test]
    fn processes_are_merged_by_their_clock() {
        let here = log(&[(100, 110, 120), (120, 140, 150)]);
        let there = log(&[(100, 125, 130), (130, 170, 180)]);
        let all = account(&[vec![here], vec![there]], 100, 200);
        assert_eq!(all.hand_overs, 3);
        assert_eq!(all.between_processes.percentile(50), Some(10));
        assert_eq!(all.between_processes.most(), Some(20));
        assert_eq!(all.per_process.ratio(), Some(1.0));
        assert!((all.held - 0.35).abs() < 1e-9);
    }

    #[test]
    fn one_that_starves_has_no_turn_and_the_longest_wait() {
        let lucky = log(&[(100, 110, 120), (120, 121, 130)]);
        let mut starved = Log::new(100);
        starved.asked(101);
        let all = account(&[vec![lucky, starved]], 100, 1001);
        assert_eq!(all.per_worker.fewest, 0);
        assert_eq!(all.per_worker.ratio(), Some(0.0));
        assert_eq!(all.waits.most(), Some(900));
    }

    #[test]
    fn what_is_outside_of_the_window_does_not_count() {
        let log = log(&[(100, 110, 120), (120, 150, 160), (160, 210, 220)]);
        let all = account(&[vec![log]], 120, 200);
        assert_eq!(all.grants, 1);
        assert_eq!(all.waits.most(), Some(30));
        assert!((all.seconds - 80e-9).abs() < 1e-15);
    }

    #[test]
    fn two_holders_at_once_are_seen() {
        let here = log(&[(100, 110, 150)]);
        let there = log(&[(100, 140, 160)]);
        assert_eq!(account(&[vec![here], vec![there]], 100, 200).overlaps, 1);
    }

    #[test]
    fn cycles_run_from_acquire_to_acquire() {
        let log = log(&[(100, 110, 110), (130, 140, 140), (150, 155, 155)]);
        let all = account(&[vec![log]], 100, 200);
        assert_eq!((all.cycles.len(), all.cycles.most()), (2, Some(30)));
    }

    #[test]
    fn nobody_at_all_is_no_error() {
        let all = account(&[], 5, 5);
        assert_eq!((all.grants, all.per_worker.ratio()), (0, None));
    }

    #[test]
    fn a_log_survives_the_way_to_the_parent() {
        let mut log = log(&[(100, 110, 120), (125, 150, 160)]);
        log.asked(170);
        log.failed(&"no");
        let line = serde_json::to_string(&log).unwrap();
        assert_eq!(serde_json::from_str::<Log>(&line).unwrap(), log);
    }
}
