//! How long the name of a test is: the runner prints it in one line, and pages name it.

use std::fs;

use super::{files_below, root};

/// Maximum characters of a name, without its modules.
const LONGEST: usize = 70;

/// Names of lock-core that are longer, until they are mended.
const KNOWN: [&str; 6] = [
    "a_listener_that_goes_while_the_channel_is_subscribed_leaves_nothing_on_the_server",
    "a_new_connection_subscribes_to_all_that_is_wanted_and_tells_who_may_have_missed_something",
    "a_server_that_was_a_replica_meanwhile_is_another_run_and_a_backup_is_none",
    "all_attempts_of_a_token_and_its_later_editions_have_the_ticket_of_the_first",
    "an_answer_confirms_on_the_connection_of_the_vote_or_a_second_after_its_end",
    "an_undo_may_follow_what_is_sent_on_another_connection_until_it_is_answered",
];

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
                if name.len() > LONGEST && !KNOWN.contains(&name) {
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
