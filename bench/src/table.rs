//! What is printed in the end.

use std::fmt::Write;

use crate::contestant::Who;
use crate::results::{Results, Verdict, ratio};
use crate::scenario::{ALL, RESTS};
use crate::stats::Spread;

/// A column: its head, the figures in it, and their decimals. Two figures stand beside each other.
type Column = (&'static str, &'static [&'static str], usize);

const CYCLE: [Column; 2] = [("p50 µs", &["p50_us"], 1), ("p99 µs", &["p99_us"], 1)];
const VOTED: [Column; 3] = [
    ("p50 µs", &["p50_us"], 1),
    ("p99 µs", &["p99_us"], 1),
    ("cycles", &["cycles"], 0),
];
const REQUESTS: [Column; 2] = [
    ("requests", &["requests_seen"], 2),
    ("server's count", &["requests_counted"], 2),
];
const APART: [Column; 5] = [
    ("cycles/s", &["acquisitions_per_s"], 0),
    ("p50 / p99 µs", &["cycle_p50_us", "cycle_p99_us"], 0),
    ("cmds/cycle", &["commands_per_acquisition"], 2),
    ("server µs", &["server_us_per_acquisition"], 1),
    ("client µs", &["client_us_per_acquisition"], 1),
];
const HOT: [Column; 7] = [
    ("acq/s", &["acquisitions_per_s"], 0),
    ("hand-overs/s", &["hand_overs_per_s"], 0),
    ("cmds/acq", &["commands_per_acquisition"], 3),
    (
        "hand-over p50 / p99 µs",
        &["hand_over_p50_us", "hand_over_p99_us"],
        1,
    ),
    (
        "wait p50 / p99 / longest ms",
        &["wait_p50_ms", "wait_p99_ms", "wait_longest_ms"],
        2,
    ),
    (
        "fewest / most per task",
        &["fewest_per_task", "most_per_task"],
        0,
    ),
    ("processes", &["fairness_of_processes"], 2),
];
const BETWEEN: [Column; 3] = [
    ("hand-overs", &["between_processes"], 0),
    (
        "p50 / p99 µs",
        &["between_processes_p50_us", "between_processes_p99_us"],
        1,
    ),
    ("cmds/acq", &["commands_per_acquisition"], 2),
];
const USED: [Column; 6] = [
    ("held %", &["held_percent"], 1),
    (
        "hand-over p50 / p99 µs",
        &["hand_over_p50_us", "hand_over_p99_us"],
        1,
    ),
    ("cmds/acq", &["commands_per_acquisition"], 2),
    (
        "wait p99 / longest ms",
        &["wait_p99_ms", "wait_longest_ms"],
        0,
    ),
    (
        "fewest / most per task",
        &["fewest_per_task", "most_per_task"],
        0,
    ),
    ("processes", &["fairness_of_processes"], 2),
];
const SEMAPHORE: [Column; 7] = [
    ("in use %", &["in_use_percent"], 1),
    ("asked for %", &["asked_for_percent"], 1),
    ("permits/s", &["acquisitions_per_s"], 0),
    ("cmds/permit", &["commands_per_acquisition"], 2),
    (
        "wait p50 / p99 / longest ms",
        &["wait_p50_ms", "wait_p99_ms", "wait_longest_ms"],
        1,
    ),
    (
        "fewest / most per task",
        &["fewest_per_task", "most_per_task"],
        0,
    ),
    (
        "server / client µs",
        &["server_us_per_acquisition", "client_us_per_acquisition"],
        1,
    ),
];
const SEVERAL: [Column; 5] = [
    ("acq/s", &["acquisitions_per_s"], 0),
    ("cmds/acq", &["commands_per_acquisition"], 2),
    (
        "wait p50 / p99 / longest ms",
        &["wait_p50_ms", "wait_p99_ms", "wait_longest_ms"],
        1,
    ),
    (
        "fewest / most per task",
        &["fewest_per_task", "most_per_task"],
        0,
    ),
    (
        "server / client µs",
        &["server_us_per_acquisition", "client_us_per_acquisition"],
        1,
    ),
];
const HELD: [Column; 6] = [
    ("bytes/lock", &["bytes_per_lock"], 0),
    ("client ms/min", &["client_ms_per_minute"], 1),
    ("server ms/min", &["server_ms_per_minute"], 1),
    ("longest call ms", &["slowest_call_ms"], 3),
    ("longest PING ms", &["ping_longest_ms"], 2),
    ("idle PING ms", &["ping_longest_idle_ms"], 2),
];

const INSTRUCTIONS: [Column; 2] = [
    ("on the server", &["server_instructions"], 0),
    ("in the client", &["client_instructions"], 0),
];

/// The columns of a scenario, and with whom its first one is compared.
fn layout(scenario: &str, variant: &str) -> (&'static [Column], Option<&'static str>) {
    match (scenario, variant) {
        ("attribute", _) => (&CYCLE, Some("guard by hand")),
        ("a", "requests") => (&REQUESTS, None),
        ("a", _) => (&CYCLE, Some(Who::Floor.name())),
        ("b", _) => (&APART, Some(Who::Floor.name())),
        ("e", _) => (&HELD, None),
        ("f", _) => (&BETWEEN, None),
        ("g", variant) if RESTS.iter().any(|(_, rest)| *rest == variant) => (&CYCLE, None),
        ("g", _) => (&USED, None),
        ("j", _) => (&SEMAPHORE, Some(Who::Redisson.name())),
        ("k", _) => (&SEVERAL, Some(Who::RedissonMulti.name())),
        ("m", _) => (&CYCLE, Some(Who::Ours.name())),
        ("l", _) => (&INSTRUCTIONS, Some(Who::Floor.name())),
        ("h", _) => (&VOTED, Some(Who::Floor.name())),
        _ => (&HOT, Some(Who::Rslock.name())),
    }
}

/// The figures that are shown of a variant.
pub(crate) fn figures(scenario: &str, variant: &str) -> impl Iterator<Item = &'static str> {
    let (columns, _) = layout(scenario, variant);
    columns.iter().flat_map(|(_, figures, _)| *figures).copied()
}

/// The figure of a variant that is compared, and with whose.
pub(crate) fn compared(scenario: &str, variant: &str) -> Option<(&'static str, &'static str)> {
    let (columns, base) = layout(scenario, variant);
    base.map(|base| (columns[0].1[0], base))
}

/// Every figure, and then every demand.
pub(crate) fn render(results: &Results) -> String {
    let about = &results.about;
    let versions: Vec<String> = about
        .versions
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let mut text = format!(
        "{}, {} cores, {}, {} rounds, {}\n{}\nmedians of the rounds; in brackets the ratio of the first column to that of the contestant that has 1, and how far the rounds are apart\n",
        about.server,
        about.cores,
        about.system,
        about.rounds,
        about.date,
        versions.join(", "),
    );
    for (scenario, line) in ALL {
        let mut variants: Vec<&str> = Vec::new();
        for measure in results.measures.iter().filter(|m| m.scenario == scenario) {
            if !variants.contains(&measure.variant.as_str()) {
                variants.push(&measure.variant);
            }
        }
        if !variants.is_empty() {
            let _ = writeln!(text, "\n({scenario}) {line}");
        }
        for variant in variants {
            text += &aligned(&rows(results, scenario, variant));
        }
    }
    if !results.verdicts.is_empty() {
        text += "\nwhat is demanded\n";
        text += &verdicts(&results.verdicts);
    }
    for note in &results.notes {
        let _ = writeln!(text, "note: {note}");
    }
    if about.quick {
        text += "a quick run: it shows that everything works, and no figure to rely on\n";
    }
    text
}

fn rows(results: &Results, scenario: &str, variant: &str) -> Vec<Vec<String>> {
    let (columns, base) = layout(scenario, variant);
    let mut head = vec![variant.to_owned()];
    head.extend(columns.iter().map(|(head, ..)| (*head).to_owned()));
    let mut rows = vec![head];
    let base = base.map(|base| results.rounds([scenario, variant, base], columns[0].1[0]));
    let of = |m: &&crate::results::Measure| m.scenario == scenario && m.variant == variant;
    for measure in results.measures.iter().filter(of) {
        let of = [scenario, variant, measure.contestant.as_str()];
        let mut row = vec![format!("  {}", measure.contestant)];
        for (_, figures, decimals) in columns {
            let figures = figures.iter().map(|figure| {
                let median = results.median(of, figure);
                median.map_or_else(|| "-".to_owned(), |median| number(median, *decimals))
            });
            row.push(figures.collect::<Vec<_>>().join(" / "));
        }
        if let Some(base) = &base {
            let found = Spread::of(ratio(&results.rounds(of, columns[0].1[0]), base));
            row[1] += &found.map_or_else(String::new, |found| {
                let Spread {
                    median,
                    least,
                    most,
                } = found;
                format!(" ({median:.3}, {least:.3}..{most:.3})")
            });
        }
        rows.push(row);
    }
    rows
}

fn verdicts(verdicts: &[Verdict]) -> String {
    let rows = verdicts.iter().map(|verdict| {
        let found = verdict.found.map_or_else(
            || "nothing found".to_owned(),
            |[median, least, most]| {
                let [median, least, most] = [median, least, most].map(|figure| number(figure, 3));
                format!("{median} ({least}..{most})")
            },
        );
        let holds = match verdict.holds {
            Some(true) => format!("demanded {}: holds", verdict.demanded),
            Some(false) => format!("demanded {}: does not hold", verdict.demanded),
            None => String::new(),
        };
        vec![
            format!("  ({}) {}", verdict.scenario, verdict.what),
            found,
            holds,
        ]
    });
    aligned(&rows.collect::<Vec<_>>())
}

/// With commas between the thousands.
fn number(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        let left = whole.len() - place;
        if place > 0 && left % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() {
        grouped
    } else {
        format!("{grouped}.{fraction}")
    }
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let width = |row: &Vec<String>| row.get(column).map_or(0, |cell| cell.chars().count());
            rows.iter().map(width).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{aligned, number, render};
    use crate::results::{Results, Verdict};

    #[test]
    fn thousands_have_commas() {
        assert_eq!(number(1_234_567.0, 0), "1,234,567");
        assert_eq!(number(123.456, 1), "123.5");
        assert_eq!(number(0.05, 2), "0.05");
        assert_eq!(number(-1234.0, 0), "-1,234");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a", "b"], vec!["ccc", "d"], vec!["e"]];
        let rows = rows.map(|row| row.into_iter().map(str::to_owned).collect());
        assert_eq!(aligned(&rows), "a    b\nccc  d\ne\n");
    }

    #[test]
    fn figures_stand_beside_what_they_are_compared_with() {
        let mut results = Results::default();
        for (round, (ours, floor)) in [(55.0, 50.0), (60.0, 50.0), (50.0, 50.0)]
            .into_iter()
            .enumerate()
        {
            results.record(
                round,
                ["a", "multi-thread", "raw floor"],
                [("p50_us", Some(floor))],
            );
            results.record(
                round,
                ["a", "multi-thread", "lock-core"],
                [("p50_us", Some(ours))],
            );
        }
        let text = render(&results);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(
            words
                .join(" ")
                .contains("lock-core 55.0 (1.100, 1.000..1.200) -"),
            "{text}"
        );
        assert!(!text.contains("(b)"), "{text}");
    }

    #[test]
    fn a_demand_says_whether_it_holds() {
        let verdict = |holds| Verdict {
            scenario: "a".into(),
            what: "p50".into(),
            found: Some([1.0, 0.9, 1.25]),
            demanded: "at most 1.18".into(),
            holds,
        };
        let results = Results {
            verdicts: vec![verdict(Some(true)), verdict(Some(false)), verdict(None)],
            ..Results::default()
        };
        let text = render(&results);
        assert!(text.contains("(a) p50  1.000 (0.900..1.250)  demanded at most 1.18: holds\n"));
        assert!(text.contains("demanded at most 1.18: does not hold\n"));
    }
}
