//! `lockctl unlock`: a forced release.

use std::io::{IsTerminal, stdin};
use std::process::ExitCode;
use std::time::SystemTime;

use lock_core::LockInfo;

use crate::exit::{Failure, NO};
use crate::options::{Server, Unlock};
use crate::shown;

pub(crate) async fn run(server: &Server, options: &Unlock) -> Result<ExitCode, Failure> {
    options.lock.hint(server);
    let locks = server.connect().await?;
    let key = &options.lock.shown();
    let (mut lock, mut info) = options.lock.look(&locks).await?;
    loop {
        if !info.is_held() && info.foreign().is_none() {
            shown::say(format_args!("{key} is free"));
            return Ok(ExitCode::from(NO));
        }
        if options.yes {
            break;
        }
        if !is_meant(&question(key, lock.kind(), &info))? {
            shown::say(format_args!("{key} stays as it is"));
            return Ok(ExitCode::from(NO));
        }
        // The question may have stood for long.
        let now = options.lock.look(&locks).await?;
        if now.0.kind() == lock.kind() && are_among(&now.1, &holds(&info)) {
            break;
        }
        shown::say("meanwhile the holder has changed");
        (lock, info) = now;
    }
    if lock.force_release().await? {
        shown::say(format_args!(
            "{key} was taken from {}",
            shown::holder(&info)
        ));
        return Ok(ExitCode::SUCCESS);
    }
    shown::say(format_args!("{key} is free"));
    Ok(ExitCode::from(NO))
}

/// What distinguishes a hold from the next one: the name of its client, and when it began.
pub(crate) type Hold = (String, Option<SystemTime>);

/// The hold of a lock, or the holds of a lock that several may hold.
pub(crate) fn holds(info: &LockInfo) -> Vec<Hold> {
    if info.holders().is_empty() {
        let holder = info.holder().map(str::to_owned);
        return holder
            .map(|name| (name, info.held_since()))
            .into_iter()
            .collect();
    }
    let holders = info.holders().iter();
    holders
        .map(|holder| (holder.name(), holder.since()))
        .collect()
}

/// Whether no holder has come since these were seen.
pub(crate) fn are_among(now: &LockInfo, seen: &[Hold]) -> bool {
    holds(now).iter().all(|hold| seen.contains(hold))
}

fn question(key: &str, kind: &str, info: &LockInfo) -> String {
    let since = info
        .held_since()
        .map_or(String::new(), |since| format!(" for {}", shown::ago(since)));
    let (holder, waiters) = (shown::holder(info), info.waiters());
    if info.holders().len() > 1 {
        return format!(
            "{key} ({kind}) is held by {holder}, the first{since}; {waiters} waiting. All holders are told at once, but their work may go on. Take it from all of them?"
        );
    }
    format!(
        "{key} is held by {holder}{since}; {waiters} waiting. The holder is told at once, but its work may go on. Take the lock?"
    )
}

/// Asks at the terminal.
pub(crate) fn is_meant(question: &str) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        let question = "there is no terminal for the question: state `--yes`";
        return Err(Failure::Usage(question.to_owned()));
    }
    shown::print(format!("{question} [y/N] "));
    let mut answer = String::new();
    let read = stdin().read_line(&mut answer);
    read.map_err(|error| Failure::system("the terminal", &error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
