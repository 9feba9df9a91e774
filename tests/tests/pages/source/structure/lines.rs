//! The lines of each folder of lock-core: a budget.

use std::collections::BTreeMap;

use super::check;
use super::lists::LINES;
use crate::source::files;

/// Lines that a folder may have less than its number.
const SLACK: usize = 50;

/// The longest of these folders that has the file. The root, `""`, has what no folder has.
fn folder_of<'a>(folders: &[&'a str], file: &str) -> &'a str {
    let has = |folder: &&&str| folder.is_empty() || file.starts_with(&format!("{folder}/"));
    let having = folders.iter().filter(has);
    having.max_by_key(|folder| folder.len()).expect("no root")
}

/// What is wrong with a number.
fn fault(folder: &str, today: usize, budget: usize) -> Option<String> {
    if today > budget {
        let more = today - budget;
        Some(format!(
            "{folder:?} has {today} lines, {more} more than its budget"
        ))
    } else if today + SLACK <= budget {
        Some(format!(
            "{folder:?} has {today} lines: lower its budget of {budget}"
        ))
    } else {
        None
    }
}

/// A number as `lists.rs` has it: `12_345`.
fn shown(number: usize) -> String {
    match (number / 1000, number % 1000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{thousands}_{rest:03}"),
    }
}

#[test]
fn no_folder_of_lock_core_exceeds_its_lines() {
    let folders: Vec<_> = LINES.iter().map(|(folder, _, _)| *folder).collect();
    let mut today: BTreeMap<_, _> = folders.iter().map(|folder| (*folder, 0)).collect();
    for (file, text) in files(&["rs", "lua"]) {
        *today.get_mut(folder_of(&folders, &file)).unwrap() += text.lines().count();
    }
    let wrong = LINES.iter();
    let wrong = wrong.filter_map(|(folder, budget, _)| fault(folder, today[folder], *budget));
    let rows = LINES.iter().map(|(folder, _, reason)| {
        let number = shown(today[folder]);
        format!("({folder:?}, {number}, {reason:?}),")
    });
    let all: usize = today.values().sum();
    let rows: Vec<_> = rows.chain([format!("// {all} lines in all")]).collect();
    check(&wrong.collect::<Vec<_>>(), "LINES", &rows);
}

/// Otherwise the test above would see nothing.
#[test]
fn a_folder_with_more_lines_or_far_fewer_is_found() {
    assert!(fault("engine", 101, 100).is_some());
    assert_eq!(fault("engine", 100, 100), None);
    assert_eq!(fault("engine", 51, 100), None);
    assert!(fault("engine", 50, 100).is_some());
    let folders = ["", "store", "store/redis"];
    assert_eq!(
        folder_of(&folders, "store/redis/kinds/mod.rs"),
        "store/redis"
    );
    assert_eq!(folder_of(&folders, "store/any.rs"), "store");
    assert_eq!(folder_of(&folders, "storeroom/mod.rs"), "");
}
