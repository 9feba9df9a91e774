//! What `#[distributed_lock]` says to each mistake: one sentence, at the token that is wrong, and nothing after it.

use std::io::Write;
use std::process::Command;

/// The compiler whose own words `tests/ui/compiler` has. Others say the same in other words.
const COMPILER: &str = "rustc 1.95.";

#[test]
fn each_mistake_has_one_message_at_its_place() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    let version = Command::new("rustc").arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&version.stdout);
    if version.starts_with(COMPILER) {
        cases.compile_fail("tests/ui/compiler/*.rs");
    } else {
        // Not `println`, which the test runner keeps to itself.
        let _ = writeln!(
            std::io::stdout(),
            "SKIPPED: ui/compiler: the messages are those of {COMPILER}x, this is {version}"
        );
    }
}
