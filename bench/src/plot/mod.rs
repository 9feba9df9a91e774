//! Plots of the figures, for a README.

mod bars;
mod ranges;

use lock_plot::Paint;

use crate::contestant::Who;
use crate::kept::Kept;
use crate::scenario::{USED, WEATHERS};

use self::bars::{Bar, Bars};
use self::ranges::{Range, Ranges};

/// In the order in which they are drawn.
const SHOWN: [Who; 6] = [
    Who::Ours,
    Who::OursStrict,
    Who::Rslock,
    Who::RslockTuned,
    Who::AsyncRedisLock,
    Who::Floor,
];

/// Every plot for which there are figures, with the name of its file.
pub(crate) fn all(kept: &Kept) -> Vec<(&'static str, String)> {
    [
        (
            "hot-key.svg",
            hot_key(
                kept,
                "One hot key: acquisitions per second",
                "acquisitions_per_s",
            ),
        ),
        (
            "hot-key-hand-overs.svg",
            hot_key(
                kept,
                "One hot key: how often per second the lock goes to another waiter",
                "hand_overs_per_s",
            ),
        ),
        ("used.svg", used(kept)),
        ("uncontended.svg", uncontended(kept)),
        ("quorum.svg", quorum(kept)),
    ]
    .into_iter()
    .filter_map(|(name, svg)| Some((name, svg?)))
    .collect()
}

/// What the figures were measured on.
fn source(kept: &Kept) -> String {
    let about = &kept.about;
    let quick = if about.quick { ", a quick run" } else { "" };
    format!(
        "{}, {} cores, {}, medians of {} rounds, {}{quick}",
        about.server, about.cores, about.system, about.rounds, about.date
    )
}

const WIDTH: f64 = 760.0;

fn class(ours: bool) -> Paint<'static> {
    Paint::Class(if ours { "ours" } else { "other" })
}

fn is_ours(who: Who) -> bool {
    matches!(who, Who::Ours | Who::OursStrict)
}

fn hot_key(kept: &Kept, title: &str, figure: &str) -> Option<String> {
    let groups = [
        ("c", "64 waiters in one process"),
        ("d", "64 waiters in 4 processes"),
    ];
    let groups = groups.map(|(scenario, name)| {
        let bars = SHOWN.iter().filter_map(|&who| {
            let of = [scenario, "64 waiters", who.name()];
            let value = kept.median(of, figure)?;
            Some(Bar {
                name: who.name(),
                value,
                shown: thousands(value),
                ours: is_ours(who),
            })
        });
        (name.to_owned(), bars.collect::<Vec<_>>())
    });
    Bars {
        title,
        source: source(kept),
        groups: groups.into(),
        mark: None,
    }
    .draw()
}

fn used(kept: &Kept) -> Option<String> {
    let groups = USED.map(|tasks| {
        let variant = format!("{tasks} waiters");
        let figures = ["hand_over_p50_us", "hand_over_p99_us"];
        let ranges = ranges(kept, ["g", &variant], figures);
        (variant, ranges)
    });
    Ranges {
        title: "A lock that is used (2 ms inside, 5 ms outside, 4 processes): hand-over, p50 to p99",
        source: source(kept),
        groups: groups.into(),
    }
    .draw()
}

fn quorum(kept: &Kept) -> Option<String> {
    let groups = WEATHERS.map(|(_, variant)| {
        let ranges = ranges(kept, ["h", variant], ["p50_us", "p99_us"]);
        (variant.to_owned(), ranges)
    });
    Ranges {
        title: "A free lock over a quorum: lock + release, p50 to p99",
        source: source(kept),
        groups: groups.into(),
    }
    .draw()
}

/// From one figure to the other, for all who have both.
fn ranges(
    kept: &Kept,
    [scenario, variant]: [&str; 2],
    [from, to]: [&str; 2],
) -> Vec<Range<'static>> {
    let ranges = SHOWN.iter().filter_map(|&who| {
        let figure = |name| kept.median([scenario, variant, who.name()], name);
        Some(Range {
            name: who.name(),
            from: figure(from)?,
            to: figure(to)?,
            ours: is_ours(who),
        })
    });
    ranges.collect()
}

fn uncontended(kept: &Kept) -> Option<String> {
    let groups = [
        ("multi-thread", "on the same machine"),
        ("multi-thread, 0.5 ms away", "0.5 ms away"),
    ];
    let groups = groups.map(|(variant, name)| {
        let bars = SHOWN.iter().filter_map(|&who| {
            let of = ["a", variant, who.name()];
            let time = kept.median(of, "p50_us")?;
            let value = kept.median_ratio(of, "p50_us", Who::Floor.name())?;
            Some(Bar {
                name: who.name(),
                value,
                shown: format!("{value:.2} ({time:.0} µs)"),
                ours: is_ours(who),
            })
        });
        (name.to_owned(), bars.collect::<Vec<_>>())
    });
    Bars {
        title: "A free lock: lock + release p50, as a multiple of two raw commands",
        source: source(kept),
        groups: groups.into(),
        mark: Some(1.0),
    }
    .draw()
}

fn thousands(value: f64) -> String {
    if value >= 1000.0 {
        format!("{:.1} k", value / 1000.0)
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::{all, thousands};
    use crate::contestant::Who;
    use crate::kept::Kept;
    use crate::results::Results;

    #[test]
    fn nothing_is_drawn_without_figures() {
        assert!(all(&Kept::default()).is_empty());
    }

    #[test]
    fn a_plot_shows_the_figures_of_the_results_and_no_others() {
        let mut results = Results::default();
        for (who, rate) in [(Who::Ours, 123_456.0), (Who::Rslock, 789.0)] {
            let of = ["c", "64 waiters", who.name()];
            results.record(0, of, [("acquisitions_per_s", Some(rate))]);
        }
        let plots = all(&Kept::of(&results));
        let [(name, svg)] = &plots[..] else {
            panic!("one plot has figures: {plots:?}");
        };
        assert_eq!(*name, "hot-key.svg");
        assert!(svg.contains("123.5 k") && svg.contains(">789<"));
        assert!(!svg.contains("async-redis-lock") && !svg.contains("4 processes"));
    }

    #[test]
    fn large_numbers_are_short() {
        assert_eq!(thousands(20_340.0), "20.3 k");
        assert_eq!(thousands(999.0), "999");
    }
}
