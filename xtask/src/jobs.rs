//! What each job does.

use std::path::Path;

use crate::announce::Plan;
use crate::run::{Steps, cargo};
use crate::server::{self, Server};
use crate::{apt, licences, links, planted, promises, release, simulate};

const JOBS: &str = "the jobs are `test [-- <arguments of cargo test>]`, \
    `bench [-- <arguments of lock-bench>]`, `simulate [-- <arguments of lock-simulation>]`, \
    `simulate -- --planted [<beginnings of names>] [<bounds of each search>]`, `promises [P1 ..]`, `links`, `release --dry-run` and `ci`";

/// Not for the simulation, but for what builds it.
const PLANTED: &str = "--planted";

/// A test program that fails does not keep the others from running.
const NO_FAIL_FAST: &str = "--no-fail-fast";

/// Starts the test programs. Those of a stable Rust report times only with this variable. With this value a compiler that a test
/// starts stays a stable one, and for cargo itself, which compiles anew after a change of the variable, it is not set.
const RUNNER: &str = "target.'cfg(all())'.runner = ['env', 'RUSTC_BOOTSTRAP=-1']";

/// A job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Every test, on a server that is installed if need be.
    Test { extra: Vec<String> },
    /// The benchmark, on such a server as well.
    Bench { extra: Vec<String> },
    /// The simulation.
    Simulate { extra: Vec<String> },
    /// The simulation of a library that is broken on purpose.
    Planted {
        names: Vec<String>,
        bounds: Vec<String>,
    },
    /// The tests that prove each promise, or each named one.
    Promises { wanted: Vec<String> },
    /// The documentation and its links.
    Links,
    /// The packed crates, as users get them.
    Release,
    /// All that must hold before a change is taken.
    Ci,
}

/// Reads the command line; the error is a sentence for its author.
pub(crate) fn parse(args: &[String]) -> Result<Job, String> {
    let Some((job, rest)) = args.split_first() else {
        return Err(format!("no job is named; {JOBS}"));
    };
    match (job.as_str(), rest) {
        ("test", []) => Ok(Job::Test { extra: Vec::new() }),
        ("test", [dashes, extra @ ..]) if dashes == "--" => Ok(Job::Test {
            extra: extra.to_vec(),
        }),
        ("bench", []) => Ok(Job::Bench { extra: Vec::new() }),
        ("bench", [dashes, extra @ ..]) if dashes == "--" => Ok(Job::Bench {
            extra: extra.to_vec(),
        }),
        ("simulate", []) => Ok(Job::Simulate { extra: Vec::new() }),
        ("simulate", [dashes, flag, extra @ ..]) if dashes == "--" && flag == PLANTED => {
            let is_bound = |argument: &String| argument.starts_with('-');
            let names = extra.iter().position(is_bound).unwrap_or(extra.len());
            Ok(Job::Planted {
                names: extra[..names].to_vec(),
                bounds: extra[names..].to_vec(),
            })
        }
        ("simulate", [dashes, extra @ ..]) if dashes == "--" => Ok(Job::Simulate {
            extra: extra.to_vec(),
        }),
        ("promises", wanted) => Ok(Job::Promises {
            wanted: wanted.to_vec(),
        }),
        ("links", []) => Ok(Job::Links),
        ("release", [flag]) if flag == "--dry-run" => Ok(Job::Release),
        ("release", []) => Err(format!(
            "`release` publishes nothing: write `release --dry-run`; {JOBS}"
        )),
        ("ci", []) => Ok(Job::Ci),
        ("test" | "bench" | "simulate" | "links" | "release" | "ci", [argument, ..]) => {
            Err(format!("`{job}` does not take `{argument}`; {JOBS}"))
        }
        _ => Err(format!("there is no job `{job}`; {JOBS}")),
    }
}

/// Does the job; the error is a sentence that says what failed.
pub(crate) fn run(job: &Job) -> Result<(), String> {
    let mut steps = Steps::default();
    // Before the first step: nothing is installed or stopped that was not announced.
    match job {
        Job::Test { .. } | Job::Ci => Plan::look(true).say(),
        Job::Bench { .. } => Plan::look(false).say(),
        Job::Simulate { .. }
        | Job::Planted { .. }
        | Job::Promises { .. }
        | Job::Links
        | Job::Release => {}
    }
    let done = match job {
        Job::Test { extra } => test(&mut steps, extra),
        Job::Bench { extra } => bench(&mut steps, extra),
        Job::Simulate { extra } => simulate::simulate(&mut steps, extra),
        Job::Planted { names, bounds } => planted::planted(&mut steps, names, bounds),
        Job::Promises { wanted } => promises::print(wanted),
        Job::Links => documentation(&mut steps),
        Job::Release => {
            let done = release::dry_run(&mut steps);
            steps.say_skipped();
            done
        }
        Job::Ci => ci(&mut steps),
    };
    if matches!(job, Job::Release | Job::Ci) {
        steps.say_times();
    }
    done
}

fn ci(steps: &mut Steps) -> Result<(), String> {
    check(steps)?;
    // Before the tests, whose summary is to be the last word.
    let simulated = simulate::check(steps);
    test(steps, &[]).and(simulated)
}

fn check(steps: &mut Steps) -> Result<(), String> {
    steps.run("format", cargo(&["fmt", "--all", "--check"]))?;
    let clippy = |which: &[&str]| {
        let mut command = cargo(&["clippy"]);
        command.args(which).args(["--", "-D", "warnings"]);
        command
    };
    let all = ["--workspace", "--all-targets", "--all-features"];
    steps.run("clippy", clippy(&all))?;
    let core = ["-p", "lock-core", "--lib", "--no-default-features"];
    steps.run("clippy, no features", clippy(&core))?;
    // What only one of them needs is not dead code in a build without it.
    for features in ["macros,quorum", "macros,cluster", "macros,sentinel"] {
        let alone = [&core[..], &["--features", features]].concat();
        steps.run(&format!("clippy, {features}"), clippy(&alone))?;
    }
    documentation(steps)?;
    steps.begin("licences");
    licences::check()?;
    release::dry_run(steps)
}

/// Builds the documentation, and follows the links of all pages.
fn documentation(steps: &mut Steps) -> Result<(), String> {
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--all-features"]);
    // With an example the features are those of the dev-dependencies, too: cargo takes the dependencies that clippy has checked.
    docs.args(["--lib", "--bins", "--example", "quickstart"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    steps.run("documentation", docs)?;
    steps.begin("links");
    links::check()
}

fn test(steps: &mut Steps, extra: &[String]) -> Result<(), String> {
    let server = find_server(steps)?;
    apt::want_browser();

    // First, because the runner of documentation tests has more to say after
    // its summary. They must pass where there is no server.
    let mut docs = cargo(&["test", "--workspace", "--doc"]);
    docs.env_remove(server::VARIABLE);
    let docs = steps.run("documentation tests", docs);

    let mut tests = cargo(&["test", "--workspace"]);
    // Without its seams it is empty.
    tests.args(["--exclude", "lock-simulation"]);
    if !extra.iter().any(|argument| argument == NO_FAIL_FAST) {
        tests.arg(NO_FAIL_FAST);
    }
    tests
        // Each library and program with tests, and the programs of tests. Of the examples only those with tests: the others are built
        // as programs by the tests that run them.
        .arg("--tests")
        .args(["--config", RUNNER])
        .args(with_times(extra))
        .env(server::VARIABLE, Path::new(&server.path));
    let tests = steps.run_tests("tests", tests);
    docs.and(tests)
}

/// The arguments of cargo, and of the test programs behind `--`, which are to say how long each test takes.
fn with_times(extra: &[String]) -> Vec<String> {
    let dashes = extra.iter().position(|argument| argument == "--");
    let (of_cargo, of_programs) = extra.split_at(dashes.unwrap_or(extra.len()));
    let times = ["--", "-Z", "unstable-options", "--report-time"];
    let mut all = of_cargo.to_vec();
    all.extend(times.map(str::to_owned));
    all.extend(of_programs.iter().skip(1).cloned());
    all
}

fn bench(steps: &mut Steps, extra: &[String]) -> Result<(), String> {
    let server = find_server(steps)?;
    // One of its programs starts the other, which `cargo run` would not build.
    let build = ["build", "--release", "-p", "lock-bench", "--bins"];
    steps.run("benchmark, build", cargo(&build))?;
    let mut bench = cargo(&["run", "--release", "-p", "lock-bench", "--"]);
    bench
        .args(extra)
        .env(server::VARIABLE, Path::new(&server.path));
    steps.run("benchmark", bench)
}

fn find_server(steps: &mut Steps) -> Result<Server, String> {
    steps.begin("redis-server");
    let server = server::find_or_install()?;
    println!("{} at {}", server.name, server.path.display());
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::{Job, parse, with_times};

    fn parsed(line: &str) -> Result<Job, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&args)
    }

    #[test]
    fn jobs_are_known_by_name() {
        assert_eq!(parsed("ci"), Ok(Job::Ci));
        assert_eq!(parsed("links"), Ok(Job::Links));
        assert_eq!(parsed("release --dry-run"), Ok(Job::Release));
        assert_eq!(parsed("test"), Ok(Job::Test { extra: vec![] }));
        assert_eq!(parsed("bench"), Ok(Job::Bench { extra: vec![] }));
        assert_eq!(parsed("simulate"), Ok(Job::Simulate { extra: vec![] }));
    }

    #[test]
    fn what_follows_the_dashes_is_passed_on() {
        let extra = vec!["--test".into(), "kit".into(), "--".into(), "held".into()];
        assert_eq!(
            parsed("test -- --test kit -- held"),
            Ok(Job::Test { extra })
        );
        assert_eq!(parsed("test --"), Ok(Job::Test { extra: vec![] }));
        let extra = vec!["--only".into(), "a,c".into(), "--quick".into()];
        assert_eq!(
            parsed("bench -- --only a,c --quick"),
            Ok(Job::Bench { extra })
        );
    }

    #[test]
    fn test_programs_are_asked_for_times_behind_the_dashes() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        let asked = words("-- -Z unstable-options --report-time");
        assert_eq!(with_times(&[]), asked);
        assert_eq!(
            with_times(&words("--test kit -- held")),
            words("--test kit -- -Z unstable-options --report-time held")
        );
    }

    #[test]
    fn the_simulation_is_run_as_it_is_or_broken() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        let extra = words("--from 7 --planted");
        assert_eq!(
            parsed("simulate -- --from 7 --planted"),
            Ok(Job::Simulate { extra })
        );
        for (line, names, bounds) in [
            ("simulate -- --planted", "", ""),
            ("simulate -- --planted 05 17-f", "05 17-f", ""),
            ("simulate -- --planted 05 --minutes 2", "05", "--minutes 2"),
        ] {
            let (names, bounds) = (words(names), words(bounds));
            assert_eq!(parsed(line), Ok(Job::Planted { names, bounds }));
        }
    }

    #[test]
    fn an_unknown_job_is_told_the_known_ones() {
        for line in ["", "benchmark", "--help"] {
            let usage = parsed(line).unwrap_err();
            for job in ["`test ", "`bench ", "`simulate ", "`release ", "`ci`"] {
                assert!(usage.contains(job), "{usage}");
            }
        }
    }

    #[test]
    fn a_stray_argument_is_refused() {
        assert!(parsed("ci -- x").unwrap_err().contains("`--`"));
        assert!(parsed("test proxy").unwrap_err().contains("`proxy`"));
        assert!(parsed("bench x").unwrap_err().contains("`x`"));
        assert!(
            parsed("simulate --seeds")
                .unwrap_err()
                .contains("`--seeds`")
        );
    }
}
