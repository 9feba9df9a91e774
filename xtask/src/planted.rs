//! Defects planted on purpose: each, put into a copy of the workspace, has to be found by the simulation.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::run::{Steps, root};
use crate::simulate;

const FILE: &str = "tests/simulation/planted.txt";

/// Seeds in which a defect has to be found.
const SEEDS: &str = "20000";

/// The names of defects that only runs over a quorum show begin so.
const QUORUM: &str = "quorum-";

/// In the description of a defect: the rule that has to find it. Without one any rule will do.
const RULE: &str = "Found by the rule `";

/// A defect.
#[derive(Debug, Default)]
struct Defect {
    name: String,
    rule: Option<String>,
    edits: Vec<Edit>,
}

/// A text that stands once in a file, and what replaces it.
#[derive(Debug, Default)]
struct Edit {
    file: String,
    text: String,
    replacement: String,
}

/// What came of a defect.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Found {
        seed: String,
        rule: String,
    },
    NotFound,
    /// It does not apply, or what it makes does not compile or run.
    Broken(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { seed, rule } => write!(f, "seed {seed}: {rule}"),
            Self::NotFound => write!(f, "NOT FOUND"),
            Self::Broken(why) => write!(f, "BROKEN: {why}"),
        }
    }
}

/// Plants one defect after the other, those whose names begin as asked for. `bounds` are the arguments that end a search.
pub(crate) fn planted(
    steps: &mut Steps,
    names: &[String],
    bounds: &[String],
) -> Result<(), String> {
    let defects = chosen(defects()?, names)?;
    // What the tree as it is shows as well is not the defect.
    let unbroken = simulate::build(steps)?;
    steps.begin("planted defects");
    let folder = root().join("target/planted");
    let mut failed = Vec::new();
    for defect in defects {
        let began = Instant::now();
        let outcome = plant(&defect, &folder, &unbroken, bounds)?;
        println!("{}", row(&defect.name, began.elapsed(), &outcome));
        if !matches!(outcome, Outcome::Found { .. }) {
            failed.push(defect.name);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("planted and not found: {}", failed.join(", ")))
}

fn row(name: &str, took: Duration, outcome: &Outcome) -> String {
    format!("{name:<36} {:>5} s  {outcome}", took.as_secs())
}

fn plant(
    defect: &Defect,
    folder: &Path,
    unbroken: &Path,
    bounds: &[String],
) -> Result<Outcome, String> {
    let tree = folder.join("tree");
    copy_to(&tree).map_err(|error| format!("cannot copy to {}: {error}", tree.display()))?;
    for edit in &defect.edits {
        if let Err(why) = edit.apply(&tree) {
            return Ok(Outcome::Broken(why));
        }
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
    if defect.name.starts_with(QUORUM) {
        search.arg("--quorum");
    }
    search.args(bounds);
    if let Some(rule) = &defect.rule {
        search.args(["--only", rule]);
    }
    Ok(match heard(&mut search)? {
        Ok(_) => Outcome::NotFound,
        Err(said) => finding(&said).unwrap_or(Outcome::Broken(said)),
    })
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
        seed: seed.to_owned(),
        rule: what.split_once(" at ")?.0.to_owned(),
    })
}

fn defects() -> Result<Vec<Defect>, String> {
    let text = fs::read_to_string(root().join(FILE));
    let text = text.map_err(|error| format!("cannot read {FILE}: {error}"))?;
    Ok(text.split("\n== ").skip(1).map(Defect::read).collect())
}

impl Defect {
    /// Reads a section: the name, the description, then files with lines that begin with `-` and `+`.
    fn read(section: &str) -> Self {
        let mut lines = section.lines();
        let mut defect = Self {
            name: lines.next().unwrap_or_default().to_owned(),
            ..Self::default()
        };
        let mut file = "";
        for line in lines {
            if let Some(text) = line.strip_prefix('-') {
                if defect.edits.last().is_none_or(|edit| edit.is_other(file)) {
                    let file = file.to_owned();
                    defect.edits.push(Edit {
                        file,
                        ..Edit::default()
                    });
                }
                if let Some(edit) = defect.edits.last_mut() {
                    edit.text.extend([text, "\n"]);
                }
            } else if let Some(text) = line.strip_prefix('+') {
                if let Some(edit) = defect.edits.last_mut() {
                    edit.replacement.extend([text, "\n"]);
                }
            } else if line.contains(' ') {
                let rule = line.split_once(RULE).map(|(_, rest)| rest);
                defect.rule = rule.and_then(|rest| Some(rest.split_once('`')?.0.to_owned()));
            } else {
                file = line;
            }
        }
        defect
    }
}

impl Edit {
    /// Whether a text that comes now belongs to another edit.
    fn is_other(&self, file: &str) -> bool {
        self.file != file || !self.replacement.is_empty()
    }

    fn apply(&self, tree: &Path) -> Result<(), String> {
        let path = tree.join(&self.file);
        let source = fs::read_to_string(&path);
        let source = source.map_err(|error| format!("{}: {error}", self.file))?;
        fs::write(&path, self.applied(&source)?).map_err(|error| error.to_string())
    }

    fn applied(&self, source: &str) -> Result<String, String> {
        match source.matches(&self.text).count() {
            1 if !self.text.is_empty() => Ok(source.replace(&self.text, &self.replacement)),
            count => Err(format!("{} times in {}:\n{}", count, self.file, self.text)),
        }
    }
}

fn chosen(all: Vec<Defect>, names: &[String]) -> Result<Vec<Defect>, String> {
    for name in names {
        if !all.iter().any(|defect| defect.name.starts_with(name)) {
            return Err(format!("no defect in {FILE} begins with `{name}`"));
        }
    }
    let wanted =
        |it: &Defect| names.is_empty() || names.iter().any(|name| it.name.starts_with(name));
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
        .filter(|file| root().join(file).exists())
        .collect();
    fs::create_dir_all(tree)?;
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if !path.strip_prefix(tree).is_ok_and(|it| files.contains(it)) {
                fs::remove_file(path)?;
            }
        }
    }
    for file in &files {
        let (original, copy) = (root().join(file), tree.join(file));
        if original.is_dir() {
            // A link to another folder of the tree.
            if !copy.is_symlink() {
                symlink(fs::read_link(original)?, copy)?;
            }
            continue;
        }
        let wanted = fs::read(original)?;
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
    use std::collections::BTreeMap;
    use std::fs;

    use super::{Defect, Outcome, chosen, defects, finding};
    use crate::run::root;

    #[test]
    fn the_first_finding_is_what_counts() {
        let said = "exit status: 1: 7 seeds in 0.1 s: 3 operations\nseed quorum 7: left over at 12 ms: k0 at 3 ms: x\n";
        let (seed, rule) = ("quorum 7".to_owned(), "left over".to_owned());
        assert_eq!(finding(said), Some(Outcome::Found { seed, rule }));
        assert_eq!(finding("exit status: 101: thread panicked at x\n"), None);
    }

    #[test]
    fn a_section_is_a_name_a_rule_and_edits() {
        let section = "rule-x\nIt breaks. Found by the rule `left over`.\na.rs\n-one\n-two\n+1\n-three\n+\nb.rs\n-four\n+4\n";
        let defect = Defect::read(section);
        assert_eq!(defect.name, "rule-x");
        assert_eq!(defect.rule.as_deref(), Some("left over"));
        let edits = defect.edits.iter();
        let edits: Vec<_> = edits
            .map(|it| (&*it.file, &*it.text, &*it.replacement))
            .collect();
        assert_eq!(
            edits,
            [
                ("a.rs", "one\ntwo\n", "1\n"),
                ("a.rs", "three\n", "\n"),
                ("b.rs", "four\n", "4\n")
            ]
        );
        assert_eq!(defect.edits[0].applied("one\ntwo\nx\n").unwrap(), "1\nx\n");
        assert!(defect.edits[0].applied("x\n").is_err());
        assert!(defect.edits[1].applied("three\nthree\n").is_err());
    }

    #[test]
    fn defects_are_chosen_by_the_beginning_of_their_names() {
        let names = |asked: &[&str]| -> Result<usize, String> {
            let all = ["x-a", "x-b", "y"].map(Defect::read).into();
            let asked: Vec<_> = asked.iter().map(|&name| name.to_owned()).collect();
            chosen(all, &asked).map(|chosen| chosen.len())
        };
        assert_eq!(names(&[]), Ok(3));
        assert_eq!(names(&["x", "y"]), Ok(3));
        assert_eq!(names(&["x-b"]), Ok(1));
        assert!(names(&["x", "z"]).unwrap_err().contains("`z`"));
    }

    #[test]
    fn each_defect_can_be_planted() {
        let defects = defects().unwrap();
        assert!(defects.len() >= 18, "{} are read", defects.len());
        for defect in defects {
            assert!(!defect.edits.is_empty(), "{}", defect.name);
            let mut files = BTreeMap::new();
            for edit in &defect.edits {
                let read = || fs::read_to_string(root().join(&edit.file)).unwrap();
                let text = files.entry(&edit.file).or_insert_with(read);
                let applied = edit.applied(text);
                *text = applied.unwrap_or_else(|why| panic!("{}: {why}", defect.name));
            }
        }
    }
}
