//! What happened to one lock, told by its owners, and whether it may have happened.
//!
//! All stamps are nanoseconds of one clock that every process of the machine reads
//! ([`boottime_now`](crate::boottime_now)), so holds of different processes can be compared exactly.

use std::collections::HashMap;

/// One hold of the lock, as its owner saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Who held it: process and task.
    pub owner: String,
    /// Its fencing token.
    pub fence: u64,
    /// Read before the call that acquired.
    pub asked: u64,
    /// Read after that call had returned.
    pub granted: u64,
    /// The first and the last reading after which the owner found the lock to be held. Read *before* the look, so
    /// an owner that was paused in between adds nothing it cannot answer for; and as a lock that was once not held
    /// is never held again, the owner relied on the lock all the time between the two.
    pub believed: Option<(u64, u64)>,
}

/// Something that must not happen to a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Two owners relied on the lock at one time.
    Overlap(Hold, Hold),
    /// Two holds have the same fencing token.
    SameFence(Hold, Hold),
    /// The second hold came later, and its fencing token is not larger.
    FenceOrder(Hold, Hold),
}

/// The holds of one lock, gathered from the lines that its owners print:
///
/// ```text
/// hold OWNER FENCE ASKED GRANTED
/// seen OWNER STAMP
/// ```
#[derive(Debug, Default)]
pub struct History {
    holds: Vec<Hold>,
    latest: HashMap<String, usize>,
}

impl History {
    /// Adds what a line tells; other lines are left alone.
    ///
    /// # Panics
    ///
    /// When the line begins as one of the two, and goes on otherwise.
    pub fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse().unwrap_or_else(|_| panic!("odd line {line:?}"));
        match words[..] {
            ["hold", owner, fence, asked, granted] => {
                self.latest.insert(owner.to_owned(), self.holds.len());
                self.holds.push(Hold {
                    owner: owner.to_owned(),
                    fence: number(fence),
                    asked: number(asked),
                    granted: number(granted),
                    believed: None,
                });
            }
            ["seen", owner, stamp] => {
                let stamp = number(stamp);
                let latest = self.latest.get(owner).expect("a hold before a look at it");
                let hold = &mut self.holds[*latest];
                let from = hold.believed.map_or(stamp, |(from, _)| from);
                hold.believed = Some((from, stamp));
            }
            ["hold" | "seen", ..] => panic!("odd line {line:?}"),
            _ => {}
        }
    }

    /// Every hold, in the order in which it was read.
    #[must_use]
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Everything that must not have happened; empty when all is well.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        let mut found = self.overlaps();
        found.extend(self.same_fences());
        found.extend(self.fence_disorder());
        found
    }

    /// P1. Holds are compared with the one that lasted longest so far, so a long one that covers many is seen.
    fn overlaps(&self) -> Vec<Violation> {
        let mut believed: Vec<(u64, u64, &Hold)> = self
            .holds
            .iter()
            .filter_map(|hold| hold.believed.map(|(from, to)| (from, to, hold)))
            .collect();
        believed.sort_by_key(|(from, ..)| *from);
        let mut found = Vec::new();
        let mut longest: Option<(u64, &Hold)> = None;
        for (from, to, hold) in believed {
            if let Some((end, before)) = longest {
                if from <= end {
                    found.push(Violation::Overlap(before.clone(), hold.clone()));
                } else if hold.fence <= before.fence {
                    found.push(Violation::FenceOrder(before.clone(), hold.clone()));
                }
            }
            if longest.is_none_or(|(end, _)| end < to) {
                longest = Some((to, hold));
            }
        }
        found
    }

    fn same_fences(&self) -> Vec<Violation> {
        let mut by_fence: Vec<&Hold> = self.holds.iter().collect();
        by_fence.sort_by_key(|hold| hold.fence);
        by_fence
            .windows(2)
            .filter(|pair| pair[0].fence == pair[1].fence)
            .map(|pair| Violation::SameFence(pair[0].clone(), pair[1].clone()))
            .collect()
    }

    /// P10: where one hold was granted before another was asked for, its fencing token is the smaller one. That
    /// also covers holds which their owner, paused, never relied on.
    fn fence_disorder(&self) -> Vec<Violation> {
        let mut by_grant: Vec<&Hold> = self.holds.iter().collect();
        by_grant.sort_by_key(|hold| hold.granted);
        let mut by_question = by_grant.clone();
        by_question.sort_by_key(|hold| hold.asked);
        let mut earlier = by_grant.into_iter().peekable();
        let mut largest: Option<&Hold> = None;
        let mut found = Vec::new();
        for hold in by_question {
            while let Some(before) = earlier.next_if(|before| before.granted < hold.asked) {
                if largest.is_none_or(|largest| largest.fence < before.fence) {
                    largest = Some(before);
                }
            }
            if let Some(before) = largest.filter(|before| before.fence >= hold.fence) {
                found.push(Violation::FenceOrder(before.clone(), hold.clone()));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lines: &[&str]) -> History {
        let mut history = History::default();
        for line in lines {
            history.read(line);
        }
        history
    }

    #[test]
    fn holds_one_after_another_are_fine() {
        let history = history(&[
            "ready",
            "hold a 5 10 20",
            "seen a 21",
            "seen a 30",
            "hold b 6 12 31",
            "seen b 32",
            "seen b 40",
            "hold a 7 41 50",
            "seen a 51",
        ]);
        assert_eq!(history.holds().len(), 3);
        assert_eq!(history.holds()[0].believed, Some((21, 30)));
        assert_eq!(history.violations(), []);
    }

    #[test]
    fn an_overlap_is_seen() {
        let history = history(&[
            "hold a 5 10 20",
            "hold b 6 12 25",
            "seen a 21",
            "seen b 26",
            "seen a 27",
        ]);
        let found = history.violations();
        assert!(matches!(&found[..], [Violation::Overlap(a, b)] if a.fence == 5 && b.fence == 6));
    }

    #[test]
    fn a_long_hold_that_covers_several_overlaps_with_each() {
        let history = history(&[
            "hold a 5 10 20",
            "seen a 21",
            "seen a 99",
            "hold b 6 12 30",
            "seen b 31",
            "hold c 7 12 40",
            "seen c 41",
        ]);
        assert_eq!(history.violations().len(), 2);
    }

    #[test]
    fn an_owner_that_was_paused_between_grant_and_look_relied_on_nothing() {
        let history = history(&["hold a 5 10 20", "hold b 6 12 25", "seen b 26", "seen b 40"]);
        assert_eq!(history.violations(), []);
    }

    #[test]
    fn a_fence_given_twice_is_seen() {
        let history = history(&["hold a 5 10 20", "hold b 5 12 25"]);
        assert!(matches!(
            &history.violations()[..],
            [Violation::SameFence(..)]
        ));
    }

    #[test]
    fn a_fence_that_fell_is_seen_where_the_holds_follow_each_other() {
        // Asked for while the other held, so only the order of the holds tells.
        let history = history(&["hold a 6 10 20", "seen a 21", "hold b 5 12 30", "seen b 31"]);
        assert!(matches!(
            &history.violations()[..],
            [Violation::FenceOrder(..)]
        ));
    }

    #[test]
    fn a_fence_that_fell_is_seen_among_unobserved_holds() {
        let history = history(&["hold a 6 10 20", "hold c 9 10 50", "hold b 5 21 30"]);
        let found = history.violations();
        assert!(
            matches!(&found[..], [Violation::FenceOrder(a, b)] if a.fence == 6 && b.fence == 5)
        );
    }

    #[test]
    #[should_panic(expected = "odd line")]
    fn a_line_cut_short_does_not_pass_unnoticed() {
        history(&["hold a 6 10"]);
    }
}
