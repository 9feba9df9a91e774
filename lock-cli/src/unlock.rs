//! `lockctl unlock`: a forced release.

use std::io::{IsTerminal, stdin};
use std::process::ExitCode;

use lock_core::LockInfo;

use crate::exit::{Failure, NO};
use crate::options::{Server, Unlock};
use crate::shown;

pub(crate) async fn run(server: &Server, options: &Unlock) -> Result<ExitCode, Failure> {
    options.lock.hint(server);
    let locks = server.connect().await?;
    let key = &options.lock.shown();
    let mut info = options.lock.inspect(&locks).await?;
    loop {
        if !info.is_held() && info.foreign().is_none() {
            shown::say(format_args!("{key} is free"));
            return Ok(ExitCode::from(NO));
        }
        if options.yes {
            break;
        }
        if !is_meant(&question(key, &info))? {
            shown::say(format_args!("{key} stays as it is"));
            return Ok(ExitCode::from(NO));
        }
        // The question may have stood for long.
        let now = options.lock.inspect(&locks).await?;
        if is_same_hold(&now, &info) {
            break;
        }
        shown::say("meanwhile the holder has changed");
        info = now;
    }
    if options.lock.force_release(&locks).await? {
        shown::say(format_args!(
            "{key} was taken from {}",
            shown::holder(&info)
        ));
        return Ok(ExitCode::SUCCESS);
    }
    shown::say(format_args!("{key} is free"));
    Ok(ExitCode::from(NO))
}

/// Whether both show the same hold.
pub(crate) fn is_same_hold(one: &LockInfo, other: &LockInfo) -> bool {
    let hold = |info: &LockInfo| (info.holder().map(str::to_owned), info.held_since());
    hold(one) == hold(other)
}

fn question(key: &str, info: &LockInfo) -> String {
    let since = info
        .held_since()
        .map_or(String::new(), |since| format!(" for {}", shown::ago(since)));
    format!(
        "{key} is held by {}{since}; {} waiting. The holder is told at once, but its work may go on. Take the lock?",
        shown::holder(info),
        info.waiters()
    )
}

/// Asks at the terminal.
pub(crate) fn is_meant(question: &str) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        let question = "there is no terminal for the question: state `--yes`";
        return Err(Failure::Usage(question.to_owned()));
    }
    shown::print(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let read = stdin().read_line(&mut answer);
    read.map_err(|error| Failure::system("the terminal", &error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
