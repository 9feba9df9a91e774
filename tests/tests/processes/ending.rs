//! P5: the end of a program.

use std::io::Write;
use std::process::Command;

use lock_tests::{Child, LIMIT, TestServer};

use crate::contender::{FENCE, NO_ENV, nothing_is_left};

const LAST_ACT: &str = env!("CARGO_BIN_EXE_last-act");
const FLAVOURS: [&str; 2] = ["current", "multi"];

#[tokio::test]
async fn guards_dropped_as_the_last_act_before_shutdown_leave_no_key() {
    for flavour in FLAVOURS {
        let server = TestServer::start().await;
        let url = server.url();
        let args = [url.as_str(), flavour, "100", "60000", "shutdown"];
        let mut program = Child::spawn(LAST_ACT, args, NO_ENV);
        program.expect("took").await;
        assert_eq!(program.expect("left").await, "0", "{flavour}");
        assert!(program.wait().await.success());
        assert_eq!(server.keys().await, [FENCE], "{flavour}");
    }
}

/// Proves P5.
#[tokio::test]
async fn a_program_that_ends_without_shutdown_leaves_nothing_after_the_ttl() {
    for flavour in FLAVOURS {
        let server = TestServer::start().await;
        let url = server.url();
        let args = [url.as_str(), flavour, "100", "2000", "leave"];
        let mut program = Child::spawn(LAST_ACT, args, NO_ENV);
        program.expect("took").await;
        assert!(program.wait().await.success());
        // How many there are depends on the scheduler: this is why `shutdown` exists.
        let left = server.keys().await.len().saturating_sub(1);
        println!("{flavour}: without `shutdown` {left} of 100 locks wait for their ttl");
        nothing_is_left(&server, LIMIT).await;
    }
}

/// Proves P2.
#[tokio::test]
async fn a_program_runs_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        // Not `println`, which the test runner keeps to itself.
        let _ = writeln!(
            std::io::stdout(),
            "SKIPPED: processes ending::a_program_runs_under_valgrind: install Debian's package `valgrind`"
        );
        return;
    }
    for flavour in FLAVOURS {
        let server = TestServer::start().await;
        let url = server.url();
        // The tool that only runs the program: every other one runs it the same way.
        let tool = ["--quiet", "--tool=none", LAST_ACT];
        let args = [&url, flavour, "10", "60000", "shutdown"];
        let mut program = Child::spawn("valgrind", tool.iter().chain(&args), NO_ENV);
        program.expect("took").await;
        assert_eq!(program.expect("left").await, "0", "{flavour}");
        assert!(program.wait().await.success());
        assert_eq!(server.keys().await, [FENCE], "{flavour}");
    }
}
