//! Defects planted on purpose: each mend, taken back by a patch in a copy of the workspace, has to be found again.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::run::{Steps, cargo, root};
use crate::simulate;

const PATCHES: &str = "tests/simulation/planted";

/// Seeds in which a defect has to be found.
const SEEDS: &str = "20000";

/// In front of a patch: the test that finds it, where the simulation does not draw what it takes, or too seldom.
const TEST: &str = "Found by the test ";

/// In front of a patch: the rule that has to find it, where the patch shows that this checker is alive.
const RULE: &str = "Found by the rule ";

/// A defect.
#[derive(Debug)]
struct Patch {
    name: String,
    path: PathBuf,
    /// The test that finds it instead of the simulation.
    test: Option<String>,
    /// The rule that finds it, if not any does.
    rule: Option<String>,
}

/// What came of a defect.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Found {
        seed: u64,
        rule: String,
    },
    NotFound,
    /// The test fails.
    Test(String),
    /// The patch does not apply, or what it makes does not compile or run.
    Broken(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { seed, rule } => write!(f, "{seed:>6} seeds  {rule}"),
            Self::NotFound => write!(f, "             NOT FOUND"),
            Self::Test(test) => write!(f, "             the test {test}"),
            Self::Broken(why) => write!(f, "             BROKEN: {why}"),
        }
    }
}

/// Plants one defect after the other, those whose names begin as asked for. `bounds` are the arguments that end a search.
pub(crate) fn planted(
    steps: &mut Steps,
    names: &[String],
    bounds: &[String],
) -> Result<(), String> {
    let patches = chosen(patches()?, names)?;
    // What the tree as it is shows as well is not the defect.
    let unbroken = simulate::build(steps)?;
    steps.begin("planted defects");
    let folder = root().join("target/planted");
    let mut failed = Vec::new();
    for patch in patches {
        let began = Instant::now();
        let outcome = plant(&patch, &folder, &unbroken, bounds)?;
        println!("{}", row(&patch.name, began.elapsed(), &outcome));
        if matches!(outcome, Outcome::NotFound | Outcome::Broken(_)) {
            failed.push(patch.name);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("planted and not found: {}", failed.join(", ")))
}

fn row(name: &str, took: Duration, outcome: &Outcome) -> String {
    format!("{name:<36} {:>5} s {outcome}", took.as_secs())
}

fn plant(
    patch: &Patch,
    folder: &Path,
    unbroken: &Path,
    bounds: &[String],
) -> Result<Outcome, String> {
    let tree = folder.join("tree");
    copy_to(&tree).map_err(|error| format!("cannot copy to {}: {error}", tree.display()))?;
    let mut apply = Command::new("git");
    apply
        .args(["apply", "--whitespace=nowarn"])
        .arg(&patch.path)
        .current_dir(&tree)
        // Else git takes the paths of a patch for those of the workspace around.
        .env("GIT_CEILING_DIRECTORIES", folder);
    if let Err(why) = heard(&mut apply)? {
        return Ok(Outcome::Broken(why));
    }
    if let Some(test) = &patch.test {
        return run_test(test, &tree, &folder.join("tests"));
    }
    let target = folder.join("target");
    let mut build = simulate::cargo_with_seams(&["build", "--bin", "lock-simulation"], &target);
    // The same two packages are built again and again.
    build.current_dir(&tree).env("CARGO_INCREMENTAL", "1");
    if let Err(why) = heard(&mut build)? {
        return Ok(Outcome::Broken(why));
    }
    let mut search = Command::new(simulate::program(&target));
    search
        .args(["--whole", "--known", "--against"])
        .arg(unbroken);
    if bounds.is_empty() {
        search.args(["--seeds", SEEDS]);
    }
    search.args(bounds);
    if let Some(rule) = &patch.rule {
        search.args(["--only", rule]);
    }
    Ok(match heard(&mut search)? {
        Ok(_) => Outcome::NotFound,
        Err(said) => finding(&said).unwrap_or(Outcome::Broken(said)),
    })
}

/// Runs `line fencing::name`, a test of the program `line`, where `lock_core` stands for the tests inside the library.
fn run_test(test: &str, tree: &Path, target: &Path) -> Result<Outcome, String> {
    let words = test.trim_matches('`').split_once(' ');
    let (program, name) = words.ok_or_else(|| format!("`{test}` is not a program and a test"))?;
    let mut command = cargo(&["test"]);
    match program {
        "lock_core" => command.args(["--package", "lock-core", "--lib"]),
        // Of the library's own tests: they are built with a feature.
        "tls" => command.args([
            "--package",
            "lock-core",
            "--all-features",
            "--test",
            program,
        ]),
        _ => command.args(["--test", program]),
    };
    command
        .args(["--target-dir".as_ref(), target.as_os_str()])
        .args([name, "--", "--exact"])
        .current_dir(tree);
    let said = match heard(&mut command)? {
        Err(said) if said.contains("test result: FAILED") => {
            return Ok(Outcome::Test(test.to_owned()));
        }
        Ok(said) if said.contains("1 passed") => return Ok(Outcome::NotFound),
        Ok(said) | Err(said) => said,
    };
    Ok(Outcome::Broken(said))
}

/// Runs a command: what it says, or why it failed.
fn heard(command: &mut Command) -> Result<Result<String, String>, String> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(Ok(said));
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Ok(Err(format!("{}: {said}{error}", output.status)))
}

/// `seed 7: left over at 12 ms: what` in the words of the simulation.
fn finding(said: &str) -> Option<Outcome> {
    let lines = said.lines();
    let mut found = lines.filter_map(|line| line.strip_prefix("seed ")?.split_once(": "));
    let (seed, what) = found.next()?;
    Some(Outcome::Found {
        seed: seed.parse().ok()?,
        rule: what.split_once(" at ")?.0.to_owned(),
    })
}

fn patches() -> Result<Vec<Patch>, String> {
    let folder = root().join(PATCHES);
    let read = || -> io::Result<Vec<Patch>> {
        let mut patches = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default();
            if path.extension().is_some_and(|it| it == "patch") {
                let text = fs::read_to_string(&path)?;
                patches.push(Patch {
                    name: name.to_string_lossy().into_owned(),
                    test: in_front(&text, TEST),
                    rule: in_front(&text, RULE).map(|rule| rule.replace('`', "")),
                    path,
                });
            }
        }
        patches.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(patches)
    };
    read().map_err(|error| format!("cannot read {}: {error}", folder.display()))
}

/// What a line in front of a patch says behind its beginning.
fn in_front(patch: &str, begins: &str) -> Option<String> {
    let mut front = patch.lines().take_while(|line| !line.starts_with("diff "));
    let said = front.find_map(|line| line.strip_prefix(begins))?;
    Some(said.trim_end_matches('.').to_owned())
}

fn chosen(all: Vec<Patch>, names: &[String]) -> Result<Vec<Patch>, String> {
    for name in names {
        if !all.iter().any(|patch| patch.name.starts_with(name)) {
            return Err(format!("no patch in {PATCHES} begins with `{name}`"));
        }
    }
    let wanted =
        |patch: &Patch| names.is_empty() || names.iter().any(|name| patch.name.starts_with(name));
    Ok(all.into_iter().filter(wanted).collect())
}

/// Makes the copy what the tracked files are. What is the same already is not touched, so that cargo need not build it.
fn copy_to(tree: &Path) -> io::Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output()?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let files: BTreeSet<PathBuf> = listed
        .split_terminator('\0')
        .map(PathBuf::from)
        .filter(|file| root().join(file).is_file())
        .collect();
    fs::create_dir_all(tree)?;
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.strip_prefix(tree).is_ok_and(|it| files.contains(it)) {
                fs::remove_file(path)?;
            }
        }
    }
    for file in &files {
        let (wanted, copy) = (fs::read(root().join(file))?, tree.join(file));
        if fs::read(&copy).ok().as_ref() != Some(&wanted) {
            if let Some(folder) = copy.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(copy, wanted)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Outcome, Patch, RULE, TEST, chosen, finding, in_front, patches};

    #[test]
    fn the_first_finding_is_what_counts() {
        let said = "exit status: 1: 7 seeds in 0.1 s: 3 operations\nseed 7: left over at 12 ms: k0 at 3 ms: x\n";
        let rule = "left over".to_owned();
        assert_eq!(finding(said), Some(Outcome::Found { seed: 7, rule }));
        assert_eq!(finding("exit status: 101: thread panicked at x\n"), None);
    }

    #[test]
    fn a_patch_may_name_the_test_or_the_rule_that_finds_it() {
        let diff = "diff --git a/x b/x\n+Found by the test y.\n";
        assert_eq!(in_front(diff, TEST), None);
        let named = format!("Bad input.\nFound by the test `lib x::y`.\n{diff}");
        assert_eq!(in_front(&named, TEST).as_deref(), Some("`lib x::y`"));
        assert_eq!(in_front(&named, RULE), None);
    }

    #[test]
    fn patches_are_chosen_by_the_beginning_of_their_names() {
        let all = || {
            let patch = |name: &str| Patch {
                name: name.to_owned(),
                path: PathBuf::new(),
                test: None,
                rule: None,
            };
            ["01-a", "01-b", "02-a"].map(patch).into()
        };
        let names = |asked: &[&str]| -> Result<Vec<String>, String> {
            let asked: Vec<_> = asked.iter().map(|&name| name.to_owned()).collect();
            Ok(chosen(all(), &asked)?
                .into_iter()
                .map(|it| it.name)
                .collect())
        };
        assert_eq!(names(&[]).unwrap().len(), 3);
        assert_eq!(names(&["01", "02-a"]).unwrap().len(), 3);
        assert_eq!(names(&["01-b"]).unwrap(), ["01-b"]);
        assert!(names(&["01", "3"]).unwrap_err().contains("`3`"));
    }

    #[test]
    fn there_are_patches() {
        assert!(patches().unwrap().len() > 20);
    }
}
