//! How long the name of a test is: the runner prints it in one line, and pages name it.

use std::fs;

use super::{files_below, root};

/// Maximum characters of a name, without its modules.
const LONGEST: usize = 70;

/// The functions that a text declares, also those without a mark: macros make tests of them.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split("fn ").skip(1).map(move |rest| {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn test_names_have_at_most_seventy_characters() {
    let mut long = Vec::new();
    for entry in fs::read_dir(root()).unwrap().flatten() {
        let folder = entry.file_name().to_str().unwrap().to_owned();
        // A package, and not what was built, where packages are unpacked as well.
        if folder == "target" || !entry.path().join("Cargo.toml").is_file() {
            continue;
        }
        for (file, text) in files_below(&entry.path(), &["rs"]) {
            for name in functions(&text) {
                if name.len() > LONGEST {
                    long.push(format!("{folder}/{file}: {name}: {}", name.len()));
                }
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// Otherwise the test above would see nothing.
#[test]
fn functions_are_found_in_a_text() {
    let text = "fn one() {}\nasync fn two<T>(t: T) {}\n    pub(crate) fn three_3(";
    let found: Vec<_> = functions(text).collect();
    assert_eq!(found, ["one", "two", "three_3"]);
}
