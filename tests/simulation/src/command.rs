//! The command line.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use lock_simulation::meter::Finding;
use lock_simulation::plan::{Plan, draw};
use lock_simulation::run::{Report, run, run_for};
use lock_simulation::shrink::shrink;

/// Seeds to run where neither their number nor a time is given.
const SEEDS: u64 = 2_000;

/// Seeds that have found something.
const KNOWN: &str = include_str!("../seeds.txt");

/// The seeds that `--fixed` runs after these.
const FIXED: RangeInclusive<u64> = 1..=1_000;

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
    /// For how many minutes to run seeds.
    #[arg(long, value_parser = minutes)]
    minutes: Option<Duration>,
    /// Runs the seeds of seeds.txt and then the first thousand, within two minutes.
    #[arg(long, conflicts_with_all = ["seeds", "from", "minutes"])]
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

pub(super) fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.trace {
        return show(seed);
    }
    let first = if arguments.fixed || arguments.known {
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
        let seeds = first.into_iter().chain(FIXED).skip(part - 1).step_by(of);
        let seeds: Vec<_> = seeds.collect();
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
            println!("{seed} {:016x}", run(&draw(seed), false).hash);
        }
        return ExitCode::SUCCESS;
    }
    let seeds = first.into_iter().chain(seeds);
    search(&arguments, seeds, arguments.minutes, None)
}

/// The seeds of a list: one a line, behind `#` a comment.
fn known(list: &str) -> Result<Vec<u64>, String> {
    let lines = list
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    let seeds = lines.filter(|line| !line.is_empty());
    seeds
        .map(|seed| seed.parse().map_err(|_| format!("`{seed}` is not a seed")))
        .collect()
}

fn show(seed: u64) -> ExitCode {
    let report = run(&draw(seed), true);
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
    seeds: impl Iterator<Item = u64>,
    limit: Option<Duration>,
    all: Option<u64>,
) -> ExitCode {
    let began = Instant::now();
    let mut total = Total::default();
    let only = arguments.only.clone().map(|rule| &*rule.leak());
    let mut rules: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
    for seed in seeds {
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            break;
        }
        let plan = draw(seed);
        let report = run_for(only, &plan, false);
        total.add(&report);
        let Some(finding) = &report.finding else {
            continue;
        };
        if arguments
            .against
            .as_deref()
            .is_some_and(|other| finds(other, seed))
        {
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
                explain(&plan, finding);
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

/// Whether another build of this program finds something, too.
fn finds(program: &Path, seed: u64) -> bool {
    let mut other = Command::new(program);
    other.args(["--whole", "--seeds", "1", "--from", &seed.to_string()]);
    let status = other.stdout(Stdio::null()).stderr(Stdio::null()).status();
    !status.is_ok_and(|status| status.success())
}

fn explain(plan: &Plan, finding: &Finding) {
    let (smaller, _) = shrink(plan, finding);
    let report = run(&smaller, true);
    println!(
        "{} operations, {} faults show the same:",
        smaller.operations(),
        smaller.incidents.len()
    );
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

    use super::{Arguments, KNOWN, known};

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
        assert_eq!(seeds, [17, 4]);
        assert!(known("17 4").unwrap_err().contains("`17 4`"));
        assert!(known(KNOWN).is_ok());
    }
}
