//! What is measured: a list of steps, each short, in an order that gives every contestant the same weather.

mod alternate;
mod contest;
mod crowd;
mod held;
mod instructions;
mod message;
mod quorum;
mod semaphore;
mod several;

use anyhow::Result;

use crate::contestant::Who;
use crate::options::Options;
use crate::results::Results;
use crate::stage::Stage;

pub(crate) use self::alternate::{LEFT, LEFT_FAR};
pub(crate) use self::contest::USED;
pub(crate) use self::crowd::CROWD;
pub(crate) use self::instructions::{LONELY, NODE};
pub(crate) use self::message::RESTS;
pub(crate) use self::quorum::{APART, WEATHERS};
pub(crate) use self::semaphore::WAITERS;
pub(crate) use self::several::HOLDS;

/// Every scenario with a line about it.
pub(crate) const ALL: [(&str, &str); 14] = [
    ("attribute", "#[distributed_lock] against a guard by hand"),
    ("a", "uncontended: one task locks and releases"),
    ("b", "64 tasks on 64 keys over one connection"),
    ("c", "one hot key in one process, hold 0"),
    ("d", "one hot key in 4 processes, hold 0"),
    ("e", "10,000 locks held and renewed"),
    (
        "f",
        "hand-over from process to process: 4 processes with one task each, 1 ms inside, 1 ms outside",
    ),
    (
        "g",
        "a lock that is used, in 4 processes: 2 ms inside, 5 ms outside",
    ),
    (
        "h",
        "a quorum of 5 masters, uncontended: one task locks and releases",
    ),
    (
        "i",
        "one hot key over a quorum of 5 masters, of which some have stopped: 50 tasks in 5 processes, 1 ms inside",
    ),
    ("j", "a semaphore in 4 processes, 2 ms inside"),
    (
        "k",
        "random pairs and triples of 10 locks: 8 processes with two tasks each",
    ),
    (
        "l",
        "instructions of a server and of a client, as valgrind counts them",
    ),
    (
        "m",
        "a thread that blocks, uncontended: it locks and releases, beside a task",
    ),
];

/// A piece of a round.
pub(crate) struct Step {
    pub(crate) scenario: &'static str,
    pub(crate) variant: String,
    kind: Kind,
}

enum Kind {
    Alternate(alternate::Spec),
    Requests(Who),
    Contest(contest::Spec),
    Held(Who),
    Quorum(quorum::Spec),
    Crowd(crowd::Spec),
    Message(message::Spec),
    Semaphore(semaphore::Spec),
    Several(several::Spec),
    Instructions(instructions::Spec),
}

type Figures = Vec<(&'static str, Option<f64>)>;

impl Step {
    pub(crate) fn label(&self) -> String {
        let who = match &self.kind {
            Kind::Alternate(_) | Kind::Quorum(_) => "all in turns",
            Kind::Contest(spec) => spec.who.name(),
            Kind::Semaphore(spec) => spec.who.name(),
            Kind::Several(spec) => spec.who.name(),
            Kind::Instructions(spec) => spec.who.name(),
            Kind::Requests(who) | Kind::Held(who) => who.name(),
            Kind::Crowd(_) => Who::Ours.name(),
            Kind::Message(_) => Who::Floor.name(),
        };
        format!("({}) {}: {who}", self.scenario, self.variant)
    }

    /// Measures, and writes down what it finds.
    pub(crate) async fn run(
        &self,
        round: usize,
        options: &Options,
        stage: &mut Stage,
        results: &mut Results,
    ) -> Result<()> {
        match &self.kind {
            Kind::Alternate(spec) => {
                let found = spec.measure(options, stage).await?;
                self.record_all(round, results, found);
            }
            Kind::Quorum(spec) => {
                let found = spec.measure(options, stage).await?;
                self.record_all(round, results, found);
            }
            Kind::Requests(who) => {
                let figures = alternate::requests(*who, stage).await?;
                self.record(round, *who, results, figures);
            }
            Kind::Contest(spec) => {
                let found = spec.measure(options, stage).await?;
                self.record_noted(round, spec.who, results, found);
            }
            Kind::Crowd(spec) => {
                let found = spec.measure(options, stage).await?;
                self.record_noted(round, Who::Ours, results, found);
            }
            Kind::Semaphore(spec) => {
                let found = spec.measure(options, stage).await?;
                self.record_noted(round, spec.who, results, found);
            }
            Kind::Several(spec) => {
                let found = spec.measure(options, stage).await?;
                self.record_noted(round, spec.who, results, found);
            }
            Kind::Instructions(spec) => match spec.measure(options).await? {
                Ok(figures) => self.record(round, spec.who, results, figures),
                Err(skipped) => results.note(skipped),
            },
            Kind::Message(spec) => {
                let figures = spec.measure(options, stage).await?;
                self.record(round, Who::Floor, results, figures);
            }
            Kind::Held(who) => {
                let figures = held::measure(*who, options, stage).await?;
                self.record(round, *who, results, figures);
            }
        }
        Ok(())
    }

    fn record_all(&self, round: usize, results: &mut Results, found: Vec<(&'static str, Figures)>) {
        for (side, figures) in found {
            results.record(round, [self.scenario, &self.variant, side], figures);
        }
    }

    fn record_noted(
        &self,
        round: usize,
        who: Who,
        results: &mut Results,
        (figures, note): (Figures, Option<String>),
    ) {
        self.record(round, who, results, figures);
        if let Some(note) = note {
            results.note(format!("{}: {note}", self.label()));
        }
    }

    fn record(
        &self,
        round: usize,
        who: Who,
        results: &mut Results,
        figures: impl IntoIterator<Item = (&'static str, Option<f64>)>,
    ) {
        results.record(round, [self.scenario, &self.variant, who.name()], figures);
    }
}

/// The steps of a round, counted from zero.
pub(crate) fn steps(options: &Options, round: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    steps.extend(alternate::steps());
    steps.extend(contest::steps());
    steps.extend(message::steps());
    steps.extend(quorum::steps());
    steps.extend(crowd::steps());
    steps.extend(semaphore::steps());
    steps.extend(several::steps());
    // Long, and the figures hardly change from one time to the next.
    if round == 0 {
        steps.extend(held::steps());
        steps.extend(instructions::steps());
    }
    steps.retain(|step| options.wants(step.scenario));
    // Who follows whom changes from round to round.
    if round % 2 == 1 {
        steps.reverse();
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::{ALL, steps};
    use crate::options::Options;

    fn options(line: &str) -> Options {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        Options::parse(line.split_whitespace().map(str::to_owned), &known).unwrap()
    }

    #[test]
    fn every_scenario_has_steps_and_only_what_is_long_has_one_turn() {
        let (first, second) = (steps(&options(""), 0), steps(&options(""), 1));
        for (name, _) in ALL {
            let is = |step: &&super::Step| step.scenario == name;
            assert!(first.iter().any(|step| is(&step)), "{name}");
            let again = !["e", "l"].contains(&name);
            assert_eq!(second.iter().any(|step| is(&step)), again, "{name}");
        }
    }

    #[test]
    fn only_what_is_asked_for_is_done() {
        let steps = steps(&options("--only b,f"), 0);
        assert!(steps.iter().all(|step| ["b", "f"].contains(&step.scenario)));
    }
}
