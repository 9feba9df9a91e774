//! `lockctl` as its users run it: the binary, on real servers.

mod doctor;
mod look;
mod permits;
mod run;
mod top;

use std::process::{Output, Stdio};

use tokio::process::Command;

/// The program with a server and arguments in words. Nothing else of the environment names a server.
fn lockctl(url: &str, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockctl"));
    command.args(words.split_whitespace()).env("LOCK_URL", url);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// What the program has said, and its exit code.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

async fn answer(url: &str, words: &str) -> Ended {
    lockctl(url, words).output().await.unwrap().into()
}

/// What it prints when it succeeds.
async fn says(url: &str, words: &str) -> String {
    let ended = answer(url, words).await;
    assert_eq!(
        (ended.code, &*ended.err),
        (Some(0), ""),
        "{words}: {}",
        ended.out
    );
    ended.out
}

/// The same as JSON.
async fn json(url: &str, words: &str) -> serde_json::Value {
    serde_json::from_str(&says(url, &format!("{words} --json")).await).unwrap()
}
