//! The figures of a run, round by round.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::Spread;

/// A figure of each round; `None` where the round gave none.
pub(crate) type Rounds = Vec<Option<f64>>;

/// Everything that a run found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Results {
    pub(crate) about: About,
    pub(crate) measures: Vec<Measure>,
    pub(crate) verdicts: Vec<Verdict>,
    /// What went wrong, or must be known to read the figures.
    pub(crate) notes: Vec<String>,
}

/// What the figures depend on.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub(crate) struct About {
    pub(crate) date: String,
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    pub(crate) cores: usize,
    pub(crate) system: String,
    pub(crate) server: String,
    /// Of the crates that are compared, and of those that they stand on.
    pub(crate) versions: BTreeMap<String, String>,
}

/// What one contestant did in one variant of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measure {
    pub(crate) scenario: String,
    pub(crate) variant: String,
    pub(crate) contestant: String,
    pub(crate) figures: BTreeMap<String, Rounds>,
}

/// A figure beside what is demanded of it.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) scenario: String,
    pub(crate) what: String,
    /// Median, least and most of the rounds.
    pub(crate) found: Option<[f64; 3]>,
    pub(crate) demanded: String,
    pub(crate) holds: Option<bool>,
}

impl Results {
    /// Adds the figures of a round, counted from zero.
    pub(crate) fn record(
        &mut self,
        round: usize,
        [scenario, variant, contestant]: [&str; 3],
        figures: impl IntoIterator<Item = (&'static str, Option<f64>)>,
    ) {
        let place = self
            .measures
            .iter()
            .position(|measure| measure.is(scenario, variant, contestant));
        let place = place.unwrap_or_else(|| {
            self.measures.push(Measure {
                scenario: scenario.to_owned(),
                variant: variant.to_owned(),
                contestant: contestant.to_owned(),
                figures: BTreeMap::new(),
            });
            self.measures.len() - 1
        });
        let known = &mut self.measures[place].figures;
        for (name, figure) in figures {
            let rounds = known.entry(name.to_owned()).or_default();
            // A round that failed leaves a gap, so that rounds can be compared one by one.
            rounds.resize(round, None);
            rounds.push(figure.map(short).filter(|figure| figure.is_finite()));
        }
    }

    /// The rounds of one figure; empty where it was not measured.
    pub(crate) fn rounds(
        &self,
        [scenario, variant, contestant]: [&str; 3],
        figure: &str,
    ) -> Rounds {
        self.measures
            .iter()
            .find(|measure| measure.is(scenario, variant, contestant))
            .and_then(|measure| measure.figures.get(figure))
            .cloned()
            .unwrap_or_default()
    }

    /// The median of the rounds.
    pub(crate) fn median(&self, of: [&str; 3], figure: &str) -> Option<f64> {
        Spread::of(self.rounds(of, figure)).map(|spread| spread.median)
    }

    /// Says something once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// To six digits: the others are noise, and make the file hard to read.
pub(crate) fn short(figure: f64) -> f64 {
    format!("{figure:.5e}").parse().unwrap_or(figure)
}

impl Measure {
    fn is(&self, scenario: &str, variant: &str, contestant: &str) -> bool {
        self.scenario == scenario && self.variant == variant && self.contestant == contestant
    }
}

/// Round by round; nothing where either side has nothing.
pub(crate) fn ratio(above: &[Option<f64>], below: &[Option<f64>]) -> Rounds {
    above
        .iter()
        .zip(below)
        .map(|pair| match pair {
            (Some(above), Some(below)) if *below > 0.0 => Some(above / below),
            _ => None,
        })
        .collect()
}

/// The best of several in each round.
pub(crate) fn best(of: &[Rounds], better: fn(f64, f64) -> f64) -> Rounds {
    let longest = of.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .map(|round| {
            of.iter()
                .filter_map(|rounds| *rounds.get(round)?)
                .reduce(better)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Results, best, ratio};

    const OF: [&str; 3] = ["a", "loopback", "us"];

    #[test]
    fn figures_are_kept_by_round_and_a_failed_round_is_a_gap() {
        let mut results = Results::default();
        results.record(0, OF, [("p50", Some(5.0))]);
        results.record(2, OF, [("p50", Some(9.0)), ("p99", Some(f64::NAN))]);
        assert_eq!(results.rounds(OF, "p50"), [Some(5.0), None, Some(9.0)]);
        assert_eq!(results.rounds(OF, "p99"), [None, None, None]);
        assert_eq!(results.median(OF, "p50"), Some(7.0));
        assert_eq!(results.median(["a", "loopback", "peer"], "p50"), None);
        assert_eq!(results.measures.len(), 1);
    }

    #[test]
    fn digits_that_are_noise_are_not_kept() {
        let mut results = Results::default();
        results.record(0, OF, [("p50", Some(123.456_789)), ("p99", Some(0.0))]);
        assert_eq!(results.rounds(OF, "p50"), [Some(123.457)]);
        assert_eq!(results.rounds(OF, "p99"), [Some(0.0)]);
    }

    #[test]
    fn a_note_is_kept_once() {
        let mut results = Results::default();
        results.note("it rained".into());
        results.note("it rained".into());
        assert_eq!(results.notes, ["it rained"]);
    }

    #[test]
    fn ratios_compare_round_with_round() {
        let above = [Some(4.0), None, Some(9.0), Some(1.0)];
        let below = [Some(2.0), Some(1.0), Some(3.0), Some(0.0)];
        assert_eq!(ratio(&above, &below), [Some(2.0), None, Some(3.0), None]);
    }

    #[test]
    fn the_best_is_found_in_each_round() {
        let peers = [vec![Some(4.0), None], vec![Some(5.0), Some(1.0), Some(2.0)]];
        assert_eq!(best(&peers, f64::max), [Some(5.0), Some(1.0), Some(2.0)]);
        assert_eq!(best(&peers, f64::min)[0], Some(4.0));
        assert!(best(&[], f64::max).is_empty());
    }
}
