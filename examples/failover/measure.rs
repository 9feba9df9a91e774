//! What an event meant for the clients, read from the lines of the workers.

use std::collections::BTreeMap;

use crate::crew::Log;
use crate::event::{Event, Kind};
use crate::line::{Hold, Micros, Work};
use crate::worker::{BUSY, HEARING, PLAIN};

/// Time before the event in which grants count for the gap.
const BEFORE: Micros = 500_000;
/// Time after the switch in which grants count for the gap.
const AFTER: Micros = 3_000_000;

/// Holds that were alive at an event.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) kept: usize,
    pub(crate) lost: usize,
}

/// Pairs of clients that believed in one lock at the same time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overlaps {
    pub(crate) count: usize,
    pub(crate) longest: Micros,
}

/// What an event meant for the clients. Except for the plain ones, they are the clients that hear sentinels.
#[derive(Debug)]
pub(crate) struct Effect {
    /// Longest time in which no busy client was granted a lock.
    pub(crate) gap: Micros,
    /// From the switch to the first grant to a busy client; `None` without a grant.
    pub(crate) first: Option<Micros>,
    /// From the switch until each busy client had a grant.
    pub(crate) slowest: Option<Micros>,
    pub(crate) long: Tally,
    /// Fresh holds granted before the promotion.
    pub(crate) fresh: Tally,
    /// Fresh holds granted after it.
    pub(crate) late: Tally,
    /// From the switch until the last client was told that its hold was lost; `None` if none was lost.
    pub(crate) told: Option<Micros>,
    pub(crate) overlaps: Overlaps,
    /// Between a plain client and another.
    pub(crate) plain_overlaps: Overlaps,
    /// As `gap`, until all servers were in step again.
    pub(crate) plain_gap: Micros,
    /// Acquisitions that failed.
    pub(crate) failures: usize,
}

impl Effect {
    pub(crate) fn of(event: &Event, log: &Log) -> Self {
        let is_in = |at: Micros| (event.at..event.until).contains(&at);
        let (plain, holds): (Vec<&Hold>, Vec<&Hold>) =
            log.holds.iter().partition(|hold| hold.process == PLAIN);
        let firsts = first_grants(event, &holds);
        let all_had_one = firsts.len() == HEARING * BUSY;
        let is_early = |hold: &&Hold| hold.from < event.unpromoted;
        let fresh = || {
            holds
                .iter()
                .filter(|hold| hold.work == Work::Fresh)
                .copied()
        };
        let lost = holds.iter().filter(|hold| is_in(hold.lost));
        let failures = log
            .failures
            .iter()
            .filter(|failure| failure.process != PLAIN);
        let failures = failures.filter(|failure| is_in(failure.at));
        Self {
            gap: gap(&holds, event.at - BEFORE, event.switched + AFTER),
            first: firsts.values().min().copied(),
            slowest: firsts.values().max().copied().filter(|_| all_had_one),
            long: tally(
                event,
                holds.iter().filter(|hold| hold.work == Work::Long).copied(),
            ),
            fresh: tally(event, fresh().filter(is_early)),
            late: tally(event, fresh().filter(|hold| !is_early(hold))),
            told: lost
                .map(|hold| hold.lost.saturating_sub(event.switched))
                .max(),
            overlaps: overlaps(event, log, false),
            plain_overlaps: overlaps(event, log, true),
            plain_gap: gap(&plain, event.at - BEFORE, event.until),
            failures: failures.count(),
        }
    }

    /// Holds granted before the promotion and lost.
    pub(crate) fn early_lost(&self) -> usize {
        self.long.lost + self.fresh.lost
    }
}

/// For each busy client, the time from the switch to its first grant.
fn first_grants(event: &Event, holds: &[&Hold]) -> BTreeMap<(usize, usize), Micros> {
    let mut firsts = BTreeMap::new();
    for hold in holds {
        // The old master still answers after a failover: a grant counts only if it was asked for after the switch.
        let is_new = event.kind != Kind::Failover || hold.asked >= event.switched;
        if let Work::Busy(client) = hold.work
            && let Some(time) = hold.from.checked_sub(event.switched)
            && is_new
        {
            let first = firsts.entry((hold.process, client)).or_insert(time);
            *first = time.min(*first);
        }
    }
    firsts
}

/// Longest time between two grants to busy clients, or without any at an end.
fn gap(holds: &[&Hold], from: Micros, to: Micros) -> Micros {
    let busy = holds
        .iter()
        .filter(|hold| matches!(hold.work, Work::Busy(_)));
    let grants = busy.map(|hold| hold.from);
    let mut grants: Vec<_> = grants.filter(|at| (from..to).contains(at)).collect();
    grants.extend([from, to]);
    grants.sort_unstable();
    let gaps = grants.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.max().unwrap_or(0)
}

/// A hold is kept if it was released after the switch.
fn tally<'a>(event: &Event, holds: impl Iterator<Item = &'a Hold>) -> Tally {
    let mut tally = Tally::default();
    for hold in holds {
        if (event.at..event.until).contains(&hold.lost) {
            tally.lost += 1;
        } else if hold.lost == 0 && hold.from < event.switched && hold.to >= event.switched {
            tally.kept += 1;
        }
    }
    tally
}

/// Pairs of which one or none is a plain client.
fn overlaps(event: &Event, log: &Log, with_plain: bool) -> Overlaps {
    let beliefs = log.holds.iter().filter_map(|hold| match hold.work {
        Work::Shared(key) if hold.to > event.at && hold.from < event.until => Some((key, hold)),
        _ => None,
    });
    let mut beliefs: Vec<_> = beliefs.collect();
    beliefs.sort_unstable_by_key(|(key, hold)| (*key, hold.from));
    let mut overlaps = Overlaps::default();
    for (number, (key, hold)) in beliefs.iter().enumerate() {
        let later = beliefs[number + 1..].iter();
        let at_once = later.take_while(|(other, later)| other == key && later.from < hold.to);
        for (_, later) in at_once {
            if (hold.process == PLAIN || later.process == PLAIN) == with_plain {
                overlaps.count += 1;
                overlaps.longest = overlaps.longest.max(hold.to.min(later.to) - later.from);
            }
        }
    }
    overlaps
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: Event = Event {
        kind: Kind::Kill,
        at: 1_000_000,
        unpromoted: 1_100_000,
        promoted: 1_102_000,
        switched: 2_000_000,
        is_repeated: false,
        late_calls: None,
        until: 9_000_000,
    };

    fn hold(process: usize, work: Work, from: Micros, to: Micros, lost: Micros) -> Hold {
        Hold {
            process,
            work,
            asked: from,
            from,
            to,
            lost,
        }
    }

    #[test]
    fn an_effect_is_read_from_the_holds_of_the_event() {
        let mut holds = vec![
            // Kept; ended before the switch; lost twice, the second one granted after the promotion.
            hold(0, Work::Fresh, 1_050_000, 2_500_000, 0),
            hold(0, Work::Fresh, 1_050_000, 1_500_000, 0),
            hold(0, Work::Fresh, 1_050_000, 1_900_000, 1_900_000),
            hold(1, Work::Fresh, 1_102_000, 2_003_000, 2_004_000),
            // The second believes 2 us too early, and the plain client 5 us.
            hold(0, Work::Shared(1), 2_000_000, 2_000_010, 0),
            hold(1, Work::Shared(1), 2_000_008, 2_000_020, 0),
            hold(PLAIN, Work::Shared(1), 2_000_015, 2_000_030, 0),
            hold(PLAIN, Work::Shared(2), 2_000_000, 2_000_030, 0),
        ];
        for process in 0..HEARING {
            for client in 0..BUSY {
                let from = 2_000_000 + 10 * client as Micros + process as Micros;
                holds.push(hold(process, Work::Busy(client), from, from + 5, 0));
            }
        }
        let log = Log {
            holds,
            failures: Vec::new(),
        };
        let effect = Effect::of(&EVENT, &log);
        assert_eq!(effect.fresh, Tally { kept: 1, lost: 1 });
        assert_eq!(effect.late, Tally { kept: 0, lost: 1 });
        assert_eq!(effect.told, Some(4_000));
        assert_eq!((effect.first, effect.slowest), (Some(0), Some(31)));
        let pair = |longest| Overlaps { count: 1, longest };
        assert_eq!((effect.overlaps, effect.plain_overlaps), (pair(2), pair(5)));
        assert_eq!(effect.gap, 5_000_000 - 2_000_031);
    }
}
