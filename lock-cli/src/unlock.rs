//! `lockctl unlock`: a forced release.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::process::ExitCode;

use lock_core::LockInfo;

use crate::exit::{Failure, NO};
use crate::options::{Server, Unlock};
use crate::shown;

pub(crate) async fn run(server: &Server, options: &Unlock) -> Result<ExitCode, Failure> {
    let locks = server.connect().await?;
    let key = &options.lock.key;
    let info = options.lock.inspect(&locks).await?;
    if !info.is_held() && info.foreign().is_none() {
        shown::say(format_args!("{key} is free"));
        return Ok(ExitCode::from(NO));
    }
    if !options.yes && !is_meant(key, &info)? {
        shown::say(format_args!("{key} stays as it is"));
        return Ok(ExitCode::from(NO));
    }
    if options.lock.force_release(&locks).await? {
        shown::say(format_args!(
            "{key} was taken from {}",
            info.holder().unwrap_or("its holder")
        ));
        return Ok(ExitCode::SUCCESS);
    }
    shown::say(format_args!("{key} is free"));
    Ok(ExitCode::from(NO))
}

fn is_meant(key: &str, info: &LockInfo) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        let question = "without a terminal it asks nobody: state `--yes` to take the lock";
        return Err(Failure::Usage(question.to_owned()));
    }
    let holder = info.holder().unwrap_or("an unknown client");
    let since = info
        .held_since()
        .map_or(String::new(), |since| format!(" for {}", shown::ago(since)));
    print!(
        "{key} is held by {holder}{since}; {} waiting. The holder is told at once, but its work may go on. Take the lock? [y/N] ",
        info.waiters()
    );
    let read = stdout().flush().and_then(|()| {
        let mut answer = String::new();
        stdin().read_line(&mut answer).map(|_| answer)
    });
    let answer = read.map_err(|error| Failure::system("the terminal", &error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
