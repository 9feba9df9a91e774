//! The grants to busy clients around each event, as a picture.

use lock_plot::{Frame, Scale};

use crate::crew::Log;
use crate::event::Event;
use crate::line::{Micros, Work};
use crate::worker::PLAIN;

const BIN: Micros = 20_000;
const BEFORE: Micros = 500_000;
const AFTER: Micros = 5_500_000;
const GRANTS: &str = "#2f6fde";
const MARKS: [(&str, &str); 3] = [
    ("event", "#ff0033"),
    ("promotion", "#e58a00"),
    ("+switch-master", "#13a08a"),
];

/// A row for each event, the first one at the top. The highest bar of a row fills it.
pub(crate) fn draw<'a>(events: impl ExactSizeIterator<Item = &'a Event>, log: &Log) -> String {
    let rows = events.len() as f64;
    let seconds = |time: Micros| time as f64 / 1e6;
    let height = 60.0 * (rows + 1.0);
    let x = Scale::Linear(-seconds(BEFORE), seconds(AFTER));
    let mut legend = vec![("grants to busy clients in 20 ms", GRANTS)];
    legend.extend(MARKS);
    let mut svg = Frame::new(height, x, Scale::Linear(0.0, rows), &legend);
    svg.x_axis("time since the event", |at| format!("{at:.0} s"));
    for (number, event) in events.enumerate() {
        let bottom = rows - 1.0 - number as f64;
        svg.row(
            bottom + 0.4,
            &format!("{} {}", number + 1, event.kind.name()),
        );
        let start = event.at - BEFORE;
        let mut bins = [0_u32; ((BEFORE + AFTER) / BIN) as usize];
        let busy = log.holds.iter().filter(|hold| hold.process != PLAIN);
        for hold in busy.filter(|hold| matches!(hold.work, Work::Busy(_))) {
            let bin = hold
                .from
                .checked_sub(start)
                .map(|time| (time / BIN) as usize);
            if let Some(count) = bin.and_then(|bin| bins.get_mut(bin)) {
                *count += 1;
            }
        }
        let highest = bins.iter().copied().max().unwrap_or(0).max(1);
        let at = |bin: usize| seconds(bin as Micros * BIN) - seconds(BEFORE);
        for (bin, count) in bins
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, count)| *count > 0)
        {
            let top = bottom + 0.9 * f64::from(count) / f64::from(highest);
            svg.bar(
                (at(bin), bottom),
                (at(bin + 1), top),
                GRANTS,
                &count.to_string(),
            );
        }
        let times = [event.at, event.promoted, event.switched];
        for ((name, colour), time) in MARKS.into_iter().zip(times) {
            let x = seconds(time - event.at);
            svg.bar((x, bottom), (x, bottom + 0.95), colour, name);
        }
    }
    svg.file("grants to busy clients around each event")
}
