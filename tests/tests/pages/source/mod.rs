//! Rules for the source of lock-core that the compiler does not know.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use lock_tests::scripts::scripts;

mod maps;
mod pages;
mod structure;
mod test_names;

/// Words that were private to this library, and the words of the field that are used instead.
const PRIVATE_WORDS: [(&str, &str); 11] = [
    ("contender", "acquisition"),
    ("ear", "subscriber"),
    ("ears", "subscriptions"),
    ("errand", "command"),
    ("gather", "batch"),
    ("manner", "fast path"),
    ("peer", "node"),
    ("peers", "nodes"),
    ("pulse", "RTT estimator"),
    ("seeker", "pending acquisition"),
    ("spare", "reserve"),
];

/// Words and phrases that have to be read twice, in names as well as in text.
const RIDDLES: [&[&str]; 5] = [
    &["whoever"],
    &["somebody"],
    &["nobody"],
    &["is", "at", "it"],
    &["can", "not"],
];

/// The files of the engine. Each may use those behind it.
const ENGINE: [&str; 38] = [
    "losses",
    "look",
    "election",
    "resize",
    "mod",
    "together",
    "acquire",
    "task",
    "sweep",
    "jobs",
    "repeats",
    "renewals",
    "refreshes",
    "events",
    "extend",
    "guarded",
    "reweigh",
    "release",
    "pass",
    "announcements",
    "outstanding",
    "observed",
    "own_guard",
    "shared",
    "registry",
    "released",
    "line",
    "acquisition",
    "hold",
    "state",
    "lease",
    "extension",
    "yield_turn",
    "patience",
    "outages",
    "own_thread",
    "news",
    "wake_cell",
];

/// The arrow of the engine that goes up: a guard has its hold, and finds everything else through it.
const UP: [(&str, &str); 1] = [("hold", "acquisition")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn source() -> PathBuf {
    root().join("lock-core/src")
}

/// All files of the source with one of these extensions, by their path from its root.
fn files(extensions: &[&str]) -> BTreeMap<String, String> {
    files_below(&source(), extensions)
}

fn files_below(root: &Path, extensions: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|e| extensions.iter().any(|x| e == *x))
            {
                let name = path.strip_prefix(root).unwrap();
                let text = fs::read_to_string(&path).unwrap();
                found.insert(name.to_str().unwrap().to_owned(), text);
            }
        }
    }
    assert!(!found.is_empty());
    found
}

/// The words that a text is made of: of `RttEstimator` and `rtt_estimator` both are `rtt` and `estimator`.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in text.chars() {
        let begins =
            !letter.is_ascii_alphabetic() || letter.is_uppercase() && before.is_lowercase();
        if begins {
            words.push(String::new());
        }
        if letter.is_ascii_alphabetic() {
            words.last_mut().unwrap().push(letter.to_ascii_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn words_are_found_in_names_of_every_form() {
    let found = words("let the_peer = PeerSet::of(0); // a peer's");
    assert_eq!(
        found,
        ["let", "the", "peer", "peer", "set", "of", "a", "peer", "s"]
    );
}

#[test]
fn no_private_word_is_left() {
    let mut left = Vec::new();
    for (file, text) in files(&["rs", "lua"]) {
        for (number, line) in text.lines().enumerate() {
            let words = words(line);
            for (private, of_the_field) in PRIVATE_WORDS {
                if words.iter().any(|word| word == private) {
                    left.push(format!(
                        "{file}:{}: `{private}`, say {of_the_field}",
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(left.is_empty(), "{}", left.join("\n"));
}

#[test]
fn no_riddle_is_left_in_source_and_pages() {
    let mut texts = BTreeMap::new();
    for folder in ["lock-core", "lock-macros", "docs"] {
        for (file, text) in files_below(&root().join(folder), &["rs", "lua", "md"]) {
            texts.insert(format!("{folder}/{file}"), text);
        }
    }
    let mut left = Vec::new();
    for (file, text) in texts {
        for (number, line) in text.lines().enumerate() {
            let words = words(line);
            for riddle in RIDDLES {
                if words.windows(riddle.len()).any(|found| found == riddle) {
                    left.push(format!("{file}:{}: {}", number + 1, riddle.join(" ")));
                }
            }
        }
    }
    assert!(left.is_empty(), "{}", left.join("\n"));
}

/// The value of a constant: `const NAME: type = 7;` or `local NAME = 7`.
fn constant(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| {
        let words: Vec<_> = line.split([' ', ':']).collect();
        words.contains(&name) && (words.contains(&"const") || words.contains(&"local"))
    });
    let (_, value) = line.and_then(|line| line.split_once(" = ")).expect(name);
    value.trim_end_matches(';').replace(['\'', '"'], "")
}

#[test]
fn the_scripts_and_the_client_have_the_same_numbers() {
    let files = files(&["rs", "lua"]);
    let prelude = &files["scripts/prelude.lua"];
    for (ours, file, theirs) in [
        ("ID", "base/token.rs", "CLIENT_LEN"),
        ("CHANNELS", "store/redis/wire.rs", "CHANNELS"),
        ("OURS", "base/key.rs", "RESERVED"),
        ("RESERVE", "engine/line.rs", "RESERVE_FOR_ONE"),
        (
            "RESERVE",
            "store/memory/kinds/permits.rs",
            "RESERVE_IF_QUEUED",
        ),
    ] {
        let client = constant(&files[file], theirs);
        assert_eq!(constant(prelude, ours), client, "{file}: {theirs}");
    }
}

#[test]
fn imports_of_the_engine_run_down() {
    let place = |name: &str| {
        let found = ENGINE.iter().position(|known| *known == name);
        found.unwrap_or_else(|| panic!("{name} has no place in the engine"))
    };
    let mut up = Vec::new();
    for (file, text) in files(&["rs"]) {
        let Some(name) = file
            .strip_prefix("engine/")
            .and_then(|f| f.strip_suffix(".rs"))
        else {
            continue;
        };
        // The parts of a module are declared by it, and tests use what they need.
        if name == "mod" || name.starts_with("tests/") {
            continue;
        }
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap();
        for line in code.lines() {
            let used = line
                .strip_prefix("use super::")
                .or(line.strip_prefix("use crate::engine::"));
            let Some(used) = used else { continue };
            let to: String = used
                .chars()
                .take_while(|c| c.is_lowercase() || *c == '_')
                .collect();
            let to = if to.is_empty() { "mod" } else { &to };
            if place(to) <= place(name) {
                up.push((name.to_owned(), to.to_owned()));
            }
        }
    }
    let known = UP.map(|(from, to)| (from.to_owned(), to.to_owned()));
    assert_eq!(up, known);
}

#[test]
fn the_wire_document_names_the_files_of_each_script() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/wire.md");
    let document = fs::read_to_string(document).unwrap();
    for (name, script) in scripts() {
        let file = |file: &String| file.trim_end_matches(".lua").replace("quorum/", "");
        let list: Vec<_> = script.files.iter().map(file).collect();
        let name = name.trim_start_matches("quorum ");
        let row = format!("| {name} | {} |", list.join(", "));
        assert!(document.contains(&row), "docs/wire.md has no `{row}`");
    }
}
