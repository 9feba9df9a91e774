//! What is printed in the end.

use std::time::Duration;

use crate::rounds::{Ratio, Round, pooled};
use crate::scenario::Scenario;

/// The rounds of each scenario as a table.
pub(crate) fn render(results: &[(Box<dyn Scenario>, Vec<Round>)]) -> String {
    let mut rows = vec![
        [
            "scenario",
            "side",
            "p50 µs",
            "p99 µs",
            "ratio (rounds)",
            "demanded",
        ]
        .map(str::to_owned),
    ];
    for (scenario, rounds) in results {
        let ratio = Ratio::of(rounds);
        let [subject, base] = scenario.sides();
        let sides = [
            (subject, pooled(rounds.iter().map(|round| &round.subject))),
            (base, pooled(rounds.iter().map(|round| &round.base))),
        ];
        let name = format!("{}, {}", scenario.name(), scenario.variant());
        let mut judged = [name, spread(ratio), verdict(ratio, scenario.demanded())];
        for (side, times) in sides {
            let [name, ratio, verdict] = std::mem::take(&mut judged);
            rows.push([
                name,
                side.to_owned(),
                micros(times.percentile(50)),
                micros(times.percentile(99)),
                ratio,
                verdict,
            ]);
        }
    }
    aligned(&rows)
}

fn micros(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e6)
}

fn spread(ratio: Ratio) -> String {
    let Ratio {
        median,
        least,
        most,
    } = ratio;
    format!("{median:.3} ({least:.3}..{most:.3})")
}

fn verdict(ratio: Ratio, demanded: Option<f64>) -> String {
    match demanded {
        None => String::new(),
        Some(most) if ratio.median <= most => format!("at most {most}: holds"),
        Some(most) => format!("at most {most}: missed"),
    }
}

/// Text to the left, numbers to the right.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let width = |row: &[String; N]| row[column].chars().count();
        rows.iter().map(width).max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| {
            let is_number = cell.ends_with("µs") || cell.parse::<f64>().is_ok();
            if is_number {
                format!("{cell:>width$}  ")
            } else {
                format!("{cell:<width$}  ")
            }
        });
        let line: String = cells.collect();
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Ratio, aligned, spread, verdict};

    const RATIO: Ratio = Ratio {
        median: 1.021,
        least: 0.99,
        most: 1.0449,
    };

    #[test]
    fn a_ratio_shows_its_rounds() {
        assert_eq!(spread(RATIO), "1.021 (0.990..1.045)");
    }

    #[test]
    fn the_median_is_judged() {
        assert_eq!(verdict(RATIO, None), "");
        assert_eq!(verdict(RATIO, Some(1.03)), "at most 1.03: holds");
        assert_eq!(verdict(RATIO, Some(1.02)), "at most 1.02: missed");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [["side", "p50 µs"], ["a", "9.5"], ["", "10.5"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), "side  p50 µs\na        9.5\n        10.5\n");
    }
}
