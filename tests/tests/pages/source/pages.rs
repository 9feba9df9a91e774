//! The page for operators has each line that the log may have.

use std::fs;

use super::{files, root};

/// The messages of these macros: the last literal of each call, as it is read.
fn messages(text: &str, macros: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for name in macros {
        for call in text.split(&format!("tracing::{name}!(")).skip(1) {
            let call = call.split_once(");").map_or(call, |(call, _)| call);
            let message = call.trim_end().trim_end_matches(',').trim_end();
            let message = message.strip_suffix('"').and_then(|m| m.rsplit_once('"'));
            let (_, message) = message.unwrap_or_else(|| panic!("no message: {call}"));
            // A long one goes on in the next line.
            let parts = message.split('\\').map(str::trim_start);
            found.push(parts.collect::<String>());
        }
    }
    found
}

#[test]
fn messages_are_found_in_calls_of_every_form() {
    let text = r#"
        tracing::warn!(key = key.name(), %reason, "a lock was lost");
        tracing::info!("one \
             line");
    "#;
    assert_eq!(
        messages(text, &["warn", "info", "error"]),
        ["a lock was lost", "one line"]
    );
}

#[test]
fn each_line_of_the_log_is_on_the_page_for_operators() {
    let page = fs::read_to_string(root().join("docs/observability.md")).unwrap();
    let mut number = 0;
    for (file, text) in files(&["rs"]) {
        for (macro_name, level) in [("warn", "WARN"), ("info", "INFO"), ("error", "ERROR")] {
            for message in messages(&text, &[macro_name]) {
                // In the page no code is inside of code.
                let message = message.replace("`begin_quorum`", "begin_quorum");
                let message = message.replace('`', "'").replace("{policy}", "..");
                let row = format!("| {level} | `{message}` | ");
                assert!(page.contains(&row), "{file}: {row}");
                number += 1;
            }
        }
    }
    let rows = page.lines().filter(|line| {
        let levels = ["| WARN | `", "| INFO | `", "| ERROR | `"];
        levels.iter().any(|level| line.starts_with(level))
    });
    assert_eq!(rows.count(), number, "a line of the page is not in the log");
}
