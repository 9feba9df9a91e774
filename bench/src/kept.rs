//! What is kept of a run in a file: the figures that the table shows, each as the median of the
//! rounds and their range.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::results::{About, Results, Rounds, Verdict, ratio, short};
use crate::stats::Spread;
use crate::table;

/// Median, least and most of the rounds.
type Range = [f64; 3];
/// The contestants beside each other.
type Figure = BTreeMap<String, Range>;
type Variant = BTreeMap<String, Figure>;
type Scenario = BTreeMap<String, Variant>;

/// A run, as it is written and read. The plots are drawn from it, so that those of a run and those
/// of its file are the same.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub(crate) struct Kept {
    pub(crate) about: About,
    measures: BTreeMap<String, Scenario>,
    verdicts: Vec<Verdict>,
    notes: Vec<String>,
}

impl Kept {
    pub(crate) fn of(results: &Results) -> Self {
        let mut kept = Self {
            about: results.about.clone(),
            measures: BTreeMap::new(),
            verdicts: results.verdicts.clone(),
            notes: results.notes.clone(),
        };
        for found in kept.verdicts.iter_mut().flat_map(|v| &mut v.found) {
            *found = found.map(short);
        }
        for measure in &results.measures {
            let (scenario, variant) = (&*measure.scenario, &*measure.variant);
            let of = [scenario, variant, &measure.contestant];
            for figure in table::figures(scenario, variant) {
                kept.keep(of, figure, results.rounds(of, figure));
            }
            if let Some((figure, base)) = table::compared(scenario, variant) {
                // Round by round, as in the table. The file has no rounds to compute it from.
                let base_rounds = results.rounds([scenario, variant, base], figure);
                let ratios = ratio(&results.rounds(of, figure), &base_rounds);
                kept.keep(of, &ratio_name(figure, base), ratios);
            }
        }
        kept
    }

    fn keep(&mut self, [scenario, variant, contestant]: [&str; 3], figure: &str, rounds: Rounds) {
        let Some(spread) = Spread::of(rounds) else {
            return;
        };
        let range = [spread.median, spread.least, spread.most].map(short);
        let scenario = self.measures.entry(scenario.to_owned()).or_default();
        let variant = scenario.entry(variant.to_owned()).or_default();
        let figure = variant.entry(figure.to_owned()).or_default();
        figure.insert(contestant.to_owned(), range);
    }

    /// The median of the rounds.
    pub(crate) fn median(
        &self,
        [scenario, variant, contestant]: [&str; 3],
        figure: &str,
    ) -> Option<f64> {
        let figures = self.measures.get(scenario)?.get(variant)?;
        let [median, ..] = figures.get(figure)?.get(contestant)?;
        Some(*median)
    }

    /// The median of the ratios of the rounds to those of the base, with which the table compares.
    pub(crate) fn median_ratio(&self, of: [&str; 3], figure: &str, base: &str) -> Option<f64> {
        self.median(of, &ratio_name(figure, base))
    }

    /// The text of the file: a line for each figure, so that one can compare the contestants in it.
    pub(crate) fn text(&self) -> serde_json::Result<String> {
        let mut scenarios = Vec::new();
        for (name, scenario) in &self.measures {
            let mut variants = Vec::new();
            for (name, variant) in scenario {
                variants.push(entry(name, &object(3, &lines(variant)?))?);
            }
            scenarios.push(entry(name, &object(2, &variants))?);
        }
        let mut verdicts = Vec::new();
        for verdict in &self.verdicts {
            verdicts.push(serde_json::to_string(verdict)?);
        }
        let parts = [
            entry("about", &serde_json::to_string(&self.about)?)?,
            entry("measures", &object(1, &scenarios))?,
            entry("verdicts", &block(1, ["[", "]"], &verdicts))?,
            entry("notes", &serde_json::to_string(&self.notes)?)?,
        ];
        Ok(object(0, &parts) + "\n")
    }
}

fn ratio_name(figure: &str, base: &str) -> String {
    format!("{figure} / {base}")
}

fn lines(variant: &Variant) -> serde_json::Result<Vec<String>> {
    let line = |(name, figure): (&String, &Figure)| entry(name, &serde_json::to_string(figure)?);
    variant.iter().map(line).collect()
}

fn entry(name: &str, value: &str) -> serde_json::Result<String> {
    Ok(format!("{}: {value}", serde_json::to_string(name)?))
}

fn object(depth: usize, entries: &[String]) -> String {
    block(depth, ["{", "}"], entries)
}

fn block(depth: usize, [open, close]: [&str; 2], entries: &[String]) -> String {
    if entries.is_empty() {
        return format!("{open}{close}");
    }
    let line = format!("\n{}", "  ".repeat(depth));
    let entries = entries.join(&format!(",{line}  "));
    format!("{open}{line}  {entries}{line}{close}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Kept;
    use crate::results::{Results, Verdict};
    use crate::{KEPT, plot, workspace};

    const OF: [&str; 3] = ["a", "multi-thread", "lock-core"];
    const FLOOR: [&str; 3] = ["a", "multi-thread", "raw floor"];

    fn results() -> Results {
        let mut results = Results::default();
        for (round, (ours, floor)) in [(60.0, 50.0), (55.0, 40.0), (50.0, 50.0)]
            .into_iter()
            .enumerate()
        {
            results.record(round, OF, [("p50_us", Some(ours)), ("unseen", Some(1.0))]);
            results.record(round, FLOOR, [("p50_us", Some(floor)), ("p99_us", None)]);
        }
        results
    }

    #[test]
    fn the_median_and_the_range_of_what_the_table_shows_are_kept() {
        let kept = Kept::of(&results());
        let figures = &kept.measures["a"]["multi-thread"];
        let ours = |figure: &str| figures[figure].get("lock-core");
        assert_eq!(ours("p50_us"), Some(&[55.0, 50.0, 60.0]));
        assert_eq!(ours("p50_us / raw floor"), Some(&[1.2, 1.0, 1.375]));
        assert_eq!(kept.median_ratio(OF, "p50_us", "raw floor"), Some(1.2));
        // Neither what the table does not show, nor what no round has.
        assert_eq!(figures.len(), 2);
        assert_eq!(kept.median(FLOOR, "p99_us"), None);
    }

    #[test]
    fn what_is_kept_survives_its_file() {
        let mut results = results();
        results.note("it \"rained\"".into());
        results.verdicts.push(Verdict {
            scenario: "a".into(),
            what: "p50".into(),
            found: Some([1.0, 0.9, 1.25]),
            demanded: "at most 1.18".into(),
            holds: Some(true),
        });
        for kept in [Kept::of(&results), Kept::default()] {
            let text = kept.text().unwrap();
            assert_eq!(serde_json::from_str::<Kept>(&text).unwrap(), kept, "{text}");
        }
    }

    #[test]
    fn the_kept_figures_and_plots_belong_together() {
        let path = workspace().join(KEPT);
        let text = fs::read_to_string(&path).unwrap();
        let kept: Kept = serde_json::from_str(&text).unwrap();
        assert_eq!(kept.text().unwrap(), text);
        for (name, svg) in plot::all(&kept) {
            let drawn = fs::read_to_string(path.with_file_name(name)).unwrap();
            assert!(drawn == svg, "{name} was not drawn from {KEPT}");
        }
    }
}
