//! The tests that prove each promise: they say so themselves, in the last words of their documentation, `Proves P1, P7.`
//!
//! `docs/promises.md` names the programs alone, so that a test can be renamed without it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::run::root;

/// Where a program of tests is, and what cargo calls it.
const PROGRAMS: [(&str, &str); 3] = [
    ("tests/tests", ""),
    ("lock-core/tests", ""),
    ("lock-core/src", "lock_core"),
];

/// A test that proves a promise.
#[derive(Debug, PartialEq, Eq)]
struct Proof {
    promise: usize,
    program: String,
    test: String,
}

/// Prints the tests of each promise, or of those that are named (`P7`).
pub(crate) fn print(wanted: &[String]) -> Result<(), String> {
    let mut of_promise = BTreeMap::<usize, Vec<String>>::new();
    for proof in proofs() {
        let tests = of_promise.entry(proof.promise).or_default();
        tests.push(format!("{} {}", proof.program, proof.test));
    }
    for name in wanted {
        let known = of_promise
            .keys()
            .any(|number| *name == format!("P{number}"));
        if !known {
            return Err(format!(
                "no test proves `{name}`; the promises are P1 to P{}",
                of_promise.len()
            ));
        }
    }
    for (number, mut tests) in of_promise {
        if wanted.is_empty() || wanted.contains(&format!("P{number}")) {
            tests.sort();
            println!("P{number}\n    {}", tests.join("\n    "));
        }
    }
    Ok(())
}

fn proofs() -> Vec<Proof> {
    let mut proofs = Vec::new();
    for (folder, program) in PROGRAMS {
        read(&root().join(folder), program, &mut proofs);
    }
    proofs
}

/// The proofs in a folder. The program is the first name below it, if it is not given.
fn read(folder: &Path, program: &str, proofs: &mut Vec<Proof>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let program = if program.is_empty() {
            stem.unwrap_or_default()
        } else {
            program
        };
        if path.is_dir() {
            read(&path, program, proofs);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            proofs.extend(proofs_in(&text).map(|(promise, test)| Proof {
                promise,
                program: program.to_owned(),
                test,
            }));
        }
    }
}

/// Each promise that a text says to prove, with the test that follows.
fn proofs_in(text: &str) -> impl Iterator<Item = (usize, String)> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let marked = (0..lines.len()).filter_map(move |at| {
        let mark = lines[at].strip_prefix("//")?;
        let (_, promises) = mark.split_once("Proves P")?;
        let proof = lines[at..]
            .iter()
            .find_map(|line| name(line))
            .unwrap_or_default();
        let promises = promises.trim_end_matches('.').split(", P");
        let promises: Vec<usize> = promises.filter_map(|number| number.parse().ok()).collect();
        Some(
            promises
                .into_iter()
                .map(move |promise| (promise, proof.clone())),
        )
    });
    marked.flatten().collect::<Vec<_>>().into_iter()
}

/// The name of the function, or of the first one that a macro makes.
fn name(line: &str) -> Option<String> {
    if line.starts_with("//") {
        return None;
    }
    let rest = line.split_once("fn ").or_else(|| line.split_once("!("))?.1;
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    Some(rest[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::{proofs, proofs_in};
    use crate::run::root;

    /// What a promise says that has no test for this reason.
    const NOT_BUILT: &str = "Not built yet";

    fn page() -> String {
        fs::read_to_string(root().join("docs/promises.md")).unwrap()
    }

    /// The sections of the promises, with their numbers.
    fn sections(page: &str) -> Vec<(usize, &str)> {
        let parts = page.split("\n## ").skip(1);
        let numbered = parts.filter_map(|part| {
            let (number, _) = part.strip_prefix('P')?.split_once('.')?;
            Some((number.parse().ok()?, part))
        });
        numbered.collect()
    }

    /// The programs that a section names: between "Proved by" and the rules or the end of the sentence.
    fn programs(section: &str) -> BTreeSet<&str> {
        let proved = section
            .split_once("Proved by ")
            .map_or("", |(_, rest)| rest);
        let end = proved.find([';', '.']).unwrap_or(proved.len());
        proved[..end].split('`').skip(1).step_by(2).collect()
    }

    #[test]
    fn the_page_names_the_programs_whose_tests_prove_a_promise() {
        let (page, proofs) = (page(), proofs());
        let sections = sections(&page);
        let numbers: Vec<_> = sections.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
        for (number, section) in sections {
            let of_promise = proofs.iter().filter(|proof| proof.promise == number);
            let proved: BTreeSet<_> = of_promise.map(|proof| proof.program.as_str()).collect();
            assert_eq!(programs(section), proved, "P{number}");
            assert!(
                !proved.is_empty() || section.contains(NOT_BUILT),
                "P{number} has no test"
            );
        }
        let last = numbers.len();
        assert!(
            proofs
                .iter()
                .all(|proof| (1..=last).contains(&proof.promise)),
            "{proofs:?}"
        );
    }

    /// A rule is a checker of the simulation, which has its name as an argument or as the value of a branch.
    #[test]
    fn each_rule_that_the_page_names_is_one_of_the_simulation() {
        let mut folders = vec![root().join("tests/simulation/src")];
        let mut source = String::new();
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
            {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    source += &fs::read_to_string(path).unwrap();
                }
            }
        }
        let page = page();
        let rules: Vec<_> = page
            .split("rule `")
            .skip(1)
            .filter_map(|rest| rest.split('`').next())
            .collect();
        assert!(rules.len() > 20, "{rules:?}");
        for rule in rules {
            let is_there = [",", "\n"]
                .iter()
                .any(|end| source.contains(&format!("\"{rule}\"{end}")));
            assert!(is_there, "{rule}");
        }
    }

    /// Otherwise the tests above would see nothing.
    #[test]
    fn a_mark_is_read_with_the_test_behind_it() {
        let text = "/// It holds. Proves P1, P12.\n#[tokio::test(flavor = \"multi_thread\")]\nasync fn one() {\n    // Proves P3.\n    each!(two, 3);\n/// Proves nothing.\nfn three() {}\n";
        let found: Vec<_> = proofs_in(text).collect();
        let expected = [(1, "one"), (12, "one"), (3, "two")];
        assert_eq!(
            found,
            expected.map(|(promise, test)| (promise, test.to_owned()))
        );
        assert_eq!(
            programs("P1. One\nProved by `a`, `b`; rule `c`.")
                .into_iter()
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
    }
}
