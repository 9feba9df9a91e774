//! The command line.

use std::collections::BTreeMap;
use std::fmt;
use std::num::ParseIntError;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Parser;
use lock_simulation::meter::Finding;
use lock_simulation::run::{Report, run_for};
use lock_simulation::shrink::{Drawn, shrink};
use lock_simulation::{plan, quorum};

/// Seeds to run where neither their number nor a time is given.
const SEEDS: u64 = 2_000;

/// Seeds that have found something.
const KNOWN: &str = include_str!("../seeds.txt");

/// The seeds that `--fixed` runs after these.
const FIXED: RangeInclusive<u64> = 1..=1_000;

/// And then over a quorum.
const FIXED_OF_QUORUM: RangeInclusive<u64> = 1..=200;

/// A seed of a run over a quorum begins with this word.
const QUORUM: &str = "quorum";

/// How long `--fixed` may take, on a machine however slow.
const FIXED_TIME: Duration = Duration::from_secs(120);

/// Runs the lock library in a simulated world: virtual time, a small master, faults by seed.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask simulate --",
    after_help = "With `--planted [NAME..]`, instead of all these: breaks the library by each patch whose name begins so, and looks for seeds that find it. See CONTRIBUTING.md."
)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
struct Arguments {
    /// How many seeds to run [default: 2000, or any number within --minutes].
    #[arg(long)]
    seeds: Option<u64>,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Runs them over a quorum.
    #[arg(long)]
    quorum: bool,
    /// For how many minutes to run seeds.
    #[arg(long, value_parser = minutes)]
    minutes: Option<Duration>,
    /// Runs the seeds of seeds.txt, then the first thousand, and some over a quorum, within two minutes.
    #[arg(long, conflicts_with_all = ["seeds", "from", "minutes", "quorum"])]
    fixed: bool,
    /// Of the seeds of --fixed those of one part: `1/2` is the first of two. A process has one thread.
    #[arg(long, hide = true, requires = "fixed", value_parser = part)]
    part: Option<(usize, usize)>,
    /// Runs the seeds of seeds.txt before them.
    #[arg(long, hide = true, conflicts_with = "fixed")]
    known: bool,
    /// Shows what happens in this one.
    #[arg(long)]
    trace: Option<u64>,
    /// Prints the hash of what happens, for each seed.
    #[arg(long)]
    hash: bool,
    /// Goes on after a finding, and counts them by rule at the end.
    #[arg(long)]
    survey: bool,
    /// Does not make what was found smaller.
    #[arg(long)]
    whole: bool,
    /// The only rule whose findings count.
    #[arg(long, hide = true)]
    only: Option<String>,
    /// Another build of this program: a seed that finds something there, too, does not count.
    #[arg(long, hide = true)]
    against: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())
}

/// The number of a part, and how many there are.
fn part(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/');
    let numbers = numbers.and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    numbers
        .filter(|(part, of)| (1..=*of).contains(part))
        .ok_or_else(|| "not a part".to_owned())
}

/// A seed, and what its run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seed {
    Master(u64),
    Quorum(u64),
}

/// As seeds.txt has it.
impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Master(seed) => write!(f, "{seed}"),
            Self::Quorum(seed) => write!(f, "{QUORUM} {seed}"),
        }
    }
}

impl FromStr for Seed {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        match text.strip_prefix(QUORUM) {
            Some(seed) => seed.trim_start().parse().map(Self::Quorum),
            None => text.parse().map(Self::Master),
        }
    }
}

impl Seed {
    fn run(self, only: Option<&'static str>, keep_trace: bool) -> Report {
        match self {
            Self::Master(seed) => run_for(only, &plan::draw(seed), keep_trace),
            Self::Quorum(seed) => quorum::run(only, &quorum::draw(seed), keep_trace),
        }
    }

    /// Shows a smaller run with the same finding.
    fn explain(self, finding: &Finding) {
        match self {
            Self::Master(seed) => explain(&plan::draw(seed), finding),
            Self::Quorum(seed) => explain(&quorum::draw(seed), finding),
        }
    }

    /// Whether another build of this program finds something, too.
    fn is_found_by(self, program: &Path) -> bool {
        let mut other = Command::new(program);
        other.args(["--whole", "--seeds", "1", "--from"]);
        match self {
            Self::Master(seed) => other.arg(seed.to_string()),
            Self::Quorum(seed) => other.args([&seed.to_string(), "--quorum"]),
        };
        let status = other.stdout(Stdio::null()).stderr(Stdio::null()).status();
        !status.is_ok_and(|status| status.success())
    }
}

impl Arguments {
    fn seed(&self, seed: u64) -> Seed {
        if self.quorum {
            Seed::Quorum(seed)
        } else {
            Seed::Master(seed)
        }
    }
}

pub(super) fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.trace {
        return show(arguments.seed(seed));
    }
    let mut first = if arguments.fixed || arguments.known {
        match known(KNOWN) {
            Ok(known) => known,
            Err(wrong) => {
                eprintln!("tests/simulation/seeds.txt: {wrong}");
                return ExitCode::FAILURE;
            }
        }
    } else {
        Vec::new()
    };
    if arguments.fixed {
        let (part, of) = arguments.part.unwrap_or((1, 1));
        let all = first.into_iter().chain(FIXED.map(Seed::Master));
        let all = all.chain(FIXED_OF_QUORUM.map(Seed::Quorum));
        let seeds: Vec<_> = all.skip(part - 1).step_by(of).collect();
        let all = seeds.len() as u64;
        return search(&arguments, seeds.into_iter(), Some(FIXED_TIME), Some(all));
    }
    let seeds = match (arguments.seeds, arguments.minutes) {
        (Some(seeds), _) => seeds,
        (None, None) => SEEDS,
        (None, Some(_)) => u64::MAX,
    };
    let seeds = arguments.from..arguments.from.saturating_add(seeds);
    if arguments.hash {
        for seed in seeds {
            let seed = arguments.seed(seed);
            println!("{seed} {:016x}", seed.run(None, false).hash);
        }
        return ExitCode::SUCCESS;
    }
    first.retain(|seed| matches!(seed, Seed::Quorum(_)) == arguments.quorum);
    let seeds = seeds.map(|seed| arguments.seed(seed));
    let seeds = first.into_iter().chain(seeds);
    search(&arguments, seeds, arguments.minutes, None)
}

/// The seeds of a list: one a line, behind `#` a comment.
fn known(list: &str) -> Result<Vec<Seed>, String> {
    let lines = list
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    let seeds = lines.filter(|line| !line.is_empty());
    seeds
        .map(|seed| seed.parse().map_err(|_| format!("`{seed}` is not a seed")))
        .collect()
}

fn show(seed: Seed) -> ExitCode {
    let report = seed.run(None, true);
    for line in &report.lines {
        println!("{line}");
    }
    println!("hash {:016x}", report.hash);
    match report.finding {
        Some(finding) => {
            println!("{finding}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// Runs seeds, within a limit if there is one, until one finds something. Of `all` seeds of a fixed set it says how many the
/// limit has left out.
fn search(
    arguments: &Arguments,
    seeds: impl Iterator<Item = Seed>,
    limit: Option<Duration>,
    all: Option<u64>,
) -> ExitCode {
    let began = Instant::now();
    let mut total = Total::default();
    let only = arguments.only.clone().map(|rule| &*rule.leak());
    let mut rules: BTreeMap<&'static str, (Seed, u64)> = BTreeMap::new();
    for seed in seeds {
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            break;
        }
        let report = seed.run(only, false);
        total.add(&report);
        let Some(finding) = &report.finding else {
            continue;
        };
        let other = arguments.against.as_deref();
        if other.is_some_and(|other| seed.is_found_by(other)) {
            continue;
        }
        if arguments.survey {
            let rule = rules.entry(finding.rule).or_insert((seed, 0));
            rule.1 += 1;
            if rule.1 <= 5 {
                println!("seed {seed}: {finding}");
            }
        } else {
            total.print(began.elapsed());
            println!("seed {seed}: {finding}");
            if !arguments.whole {
                seed.explain(finding);
            }
            return ExitCode::FAILURE;
        }
    }
    total.print(began.elapsed());
    if let Some(all) = all.filter(|all| *all > total.seeds) {
        println!(
            "NOT RUN, since the time was over: {} of {all} seeds",
            all - total.seeds
        );
    }
    for (rule, (first, times)) in &rules {
        println!("{rule}: {times} seeds, the first is {first}");
    }
    if rules.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn explain(plan: &impl Drawn, finding: &Finding) {
    let (smaller, _) = shrink(plan, finding);
    let report = smaller.run(true);
    let lens = smaller.lens();
    if let Some((faults, operations)) = lens.split_last() {
        let operations: usize = operations.iter().sum();
        println!("{operations} operations, {faults} faults show the same:");
    }
    for line in &report.lines {
        println!("{line}");
    }
    if let Some(finding) = report.finding {
        println!("{finding}");
    }
}

#[derive(Default)]
struct Total {
    seeds: u64,
    operations: u64,
    grants: u64,
    commands: u64,
    lasted: Duration,
}

impl Total {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.operations += report.operations;
        self.grants += report.grants;
        self.commands += report.commands;
        self.lasted += report.lasted;
    }

    fn print(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        println!(
            "{} seeds in {seconds:.1} s: {} operations ({:.0} a minute), {} grants, {} commands; {:.0} times as fast as the time in it",
            self.seeds,
            self.operations,
            self.operations as f64 / seconds * 60.0,
            self.grants,
            self.commands,
            self.lasted.as_secs_f64() / seconds,
        );
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Arguments, KNOWN, Seed, known};

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
        let parsed = Arguments::try_parse_from(["", "--minutes", "0.5"]).unwrap();
        assert_eq!(parsed.minutes.map(|limit| limit.as_secs()), Some(30));
        for minutes in ["-1", "NaN", "x"] {
            let line = [String::new(), format!("--minutes={minutes}")];
            assert!(Arguments::try_parse_from(line).is_err(), "{minutes}");
        }
        assert!(Arguments::try_parse_from(["", "--fixed", "--from", "3"]).is_err());
        let parsed = Arguments::try_parse_from(["", "--fixed", "--part", "2/2"]).unwrap();
        assert_eq!(parsed.part, Some((2, 2)));
        for part in ["0/2", "3/2", "2", "x/2"] {
            assert!(Arguments::try_parse_from(["", "--fixed", "--part", part]).is_err());
        }
    }

    #[test]
    fn a_list_of_seeds_has_comments() {
        let seeds = known("# all of them\n\n17 # stuck\n 4\n").unwrap();
        assert_eq!(seeds, [Seed::Master(17), Seed::Master(4)]);
        let of_quorum = known("quorum 7 # left").unwrap();
        assert_eq!(of_quorum, [Seed::Quorum(7)]);
        assert_eq!(of_quorum[0].to_string(), "quorum 7");
        assert!(known("17 4").unwrap_err().contains("`17 4`"));
        assert!(known(KNOWN).is_ok());
    }
}
