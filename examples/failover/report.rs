//! The table of the events, and whether the limits hold.

use lock_examples::Table;

use crate::event::{Event, Kind};
use crate::line::Micros;
use crate::measure::{Effect, Overlaps, Tally};

const HEADS: [&str; 15] = [
    "event",
    "promoted",
    "switch",
    "gap",
    "first",
    "slowest",
    "long",
    "fresh",
    "late",
    "told",
    "pairs",
    "calls",
    "plain gap",
    "plain pairs",
    "errors",
];
/// What the columns are.
const COLUMNS: &str = "\
Times are in ms. A star marks an event with a second failover: the limits are not for it. The clients hear sentinels, except for those of the plain columns.
  promoted     from the event to the promotion, as ROLE of the replica tells it
  switch       from the event to the first +switch-master of a sentinel
  gap          longest time in which no busy client was granted a lock
  first        from the switch to the first grant; after `failover`, one that was asked for after the switch
  slowest      from the switch until each busy client had a grant
  long, fresh  holds granted before the promotion: kept/lost
  late         fresh holds granted after the promotion: kept/lost
  told         from the switch until the last client was told that its hold was lost
  pairs        pairs of clients that believed in one lock at the same time (longest time)
  calls        scripts called on the old master in 1.4 s, from 100 ms after the switch, or after it went on, on
  plain        clients that know the old master's URL only: their gap until all is in step, and pairs with one of them
  errors       acquisitions that failed
";

/// A table with a row for each event.
pub(crate) fn table(events: &[(Event, Effect)]) -> String {
    let mut table = Table::new(HEADS);
    for (event, effect) in events {
        let since = |at| ms(at - event.at);
        table.row([
            format!(
                "{}{}",
                event.kind.name(),
                if event.is_repeated { " *" } else { "" }
            ),
            since(event.promoted),
            since(event.switched),
            ms(effect.gap),
            maybe(effect.first.map(precise)),
            maybe(effect.slowest.map(precise)),
            tally(effect.long),
            tally(effect.fresh),
            tally(effect.late),
            maybe(effect.told.map(precise)),
            pairs(effect.overlaps),
            maybe(event.late_calls.map(|calls| calls.to_string())),
            ms(effect.plain_gap),
            pairs(effect.plain_overlaps),
            effect.failures.to_string(),
        ]);
    }
    format!("{table}\n{COLUMNS}")
}

/// A line for each limit.
pub(crate) fn summary(events: &[(Event, Effect)]) -> String {
    let events = || events.iter().filter(|(event, _)| !event.is_repeated);
    if events().count() == 0 {
        return "There is no event to check the limits with.\n".to_owned();
    }
    let effects = || events().map(|(_, effect)| effect);
    // Without a grant, the time is as long as can be.
    let time = |time: Option<Micros>| time.unwrap_or(Micros::MAX);
    let mut firsts: Vec<_> = effects().map(|effect| time(effect.first)).collect();
    firsts.sort_unstable();
    let slowest = effects().map(|effect| time(effect.slowest)).max();
    let told = effects().filter_map(|effect| effect.told).max();
    let overlap = effects().map(|effect| effect.overlaps.longest).max();
    let calls: u64 = events().filter_map(|(event, _)| event.late_calls).sum();
    let failovers = events().filter(|(event, _)| event.kind == Kind::Failover);
    let lost: usize = failovers.map(|(_, effect)| effect.early_lost()).sum();
    [
        limit_ms(
            "first grant after the switch, median",
            firsts[firsts.len() / 2],
            25,
        ),
        limit_ms(
            "first grant of the slowest client",
            slowest.unwrap_or(0),
            200,
        ),
        limit_ms(
            "a client is told of a lost hold within",
            told.unwrap_or(0),
            50,
        ),
        limit_ms(
            "two clients believe in one lock for",
            overlap.unwrap_or(0),
            50,
        ),
        limit(
            "scripts called late on an old master, plain clients included",
            &calls.to_string(),
            "0",
            calls == 0,
        ),
        limit(
            "holds lost at `failover`, granted before the promotion",
            &lost.to_string(),
            "0",
            lost == 0,
        ),
    ]
    .concat()
}

fn limit_ms(what: &str, value: Micros, most: Micros) -> String {
    let shown = if value == Micros::MAX {
        "never".to_owned()
    } else {
        format!("{} ms", precise(value))
    };
    limit(what, &shown, &format!("{most} ms"), value <= most * 1000)
}

fn limit(what: &str, value: &str, most: &str, holds: bool) -> String {
    let verdict = if holds { "holds" } else { "MISSED" };
    format!("{verdict:6}  {what}: {value} (limit {most})\n")
}

fn ms(time: Micros) -> String {
    format!("{:.0}", time as f64 / 1e3)
}

fn precise(time: Micros) -> String {
    format!("{:.1}", time as f64 / 1e3)
}

fn maybe(cell: Option<String>) -> String {
    cell.unwrap_or_else(|| "-".to_owned())
}

fn tally(Tally { kept, lost }: Tally) -> String {
    format!("{kept}/{lost}")
}

fn pairs(Overlaps { count, longest }: Overlaps) -> String {
    match count {
        0 => "0".to_owned(),
        count => format!("{count} ({})", precise(longest)),
    }
}
