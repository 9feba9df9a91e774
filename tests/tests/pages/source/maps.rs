//! The pages that say where things are, compared with the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{files_below, root};

/// What a page has between backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The tables of `ARCHITECTURE.md` by folder: a table with the heading "File in `folder/`" has a row for each file.
fn tables() -> BTreeMap<String, BTreeSet<String>> {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut tables = BTreeMap::<_, BTreeSet<_>>::new();
    let mut folder = None;
    for line in page.lines() {
        if !line.starts_with('|') {
            folder = None;
        } else if line.starts_with("| File in ") {
            folder = quoted(line).next();
        } else if let Some(folder) = folder {
            let files = line.split('|').nth(1).unwrap();
            let files = quoted(files).map(|file| format!("{folder}{file}"));
            tables.entry(folder.to_owned()).or_default().extend(files);
        }
    }
    tables
}

#[test]
fn the_tables_of_the_architecture_have_each_file_and_no_other() {
    let tables = tables();
    let mut wrong = Vec::new();
    for krate in ["lock-core/src/", "lock-macros/src/"] {
        let files = files_below(&root().join(krate), &["rs"]);
        let files = files.keys().map(|file| format!("{krate}{file}"));
        let files: BTreeSet<_> = files
            .filter(|file| !file.ends_with("tests.rs") && !file.contains("/tests/"))
            .filter(|file| !file.ends_with("/lib.rs"))
            .collect();
        let named: BTreeSet<_> = tables.values().flatten().cloned().collect();
        let named: BTreeSet<_> = named.into_iter().filter(|f| f.starts_with(krate)).collect();
        wrong.extend(files.difference(&named).map(|f| format!("not named: {f}")));
        wrong.extend(named.difference(&files).map(|f| format!("not there: {f}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_path_that_a_page_for_contributors_names_is_there() {
    let files = files_of_the_packages();
    let mut lost = Vec::new();
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for path in text.lines().flat_map(quoted) {
            // `NAME` and `KIND` stand for a name, and what is behind a colon is in the file.
            let path = path.split(':').next().unwrap();
            let is_path = [".rs", ".lua", ".txt", "/"]
                .iter()
                .any(|end| path.ends_with(end))
                && !path.contains([' ', '*'])
                && !path.contains("NAME")
                && !path.contains("KIND");
            let is_there = files.iter().any(|file| match path.strip_suffix('/') {
                Some(folder) => file.contains(&format!("/{folder}/")),
                None => file.ends_with(&format!("/{path}")),
            });
            if is_path && !is_there {
                lost.push(format!("{page}: {path}"));
            }
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
}

fn files_of_the_packages() -> Vec<String> {
    let mut files = Vec::new();
    for package in [
        "lock-core",
        "lock-macros",
        "lock-cli",
        "tests",
        "bench",
        "xtask",
        "examples",
    ] {
        let found = files_below(&root().join(package), &["rs", "lua", "txt"]);
        files.extend(found.keys().map(|file| format!("/{package}/{file}")));
    }
    files
}
