//! `lockctl ls`: all held locks.

use std::process::ExitCode;

use lock_core::{ListedLock, LockError, LockManager};
use serde_json::Value;

use crate::exit::Failure;
use crate::options::{Ls, Server};
use crate::shown;

/// All held locks, in no order.
pub(crate) async fn all(locks: &LockManager) -> Result<Vec<ListedLock>, LockError> {
    let mut list = locks.list();
    let mut found = Vec::new();
    while let Some(page) = list.next_page().await? {
        found.extend(page);
    }
    Ok(found)
}

pub(crate) async fn run(server: &Server, options: &Ls) -> Result<ExitCode, Failure> {
    let locks = server.connect().await?;
    let mut found = all(&locks).await?;
    if let Some(pattern) = &options.pattern {
        found.retain(|lock| pattern.matches(lock.key()));
    }
    found.sort_by(|a, b| a.key().cmp(b.key()));
    if options.json {
        let locks = found.iter().map(|lock| {
            let mut shown = shown::lock(lock.key(), lock.info());
            shown["kind"] = lock.kind().into();
            shown
        });
        shown::say(format_args!("{:#}", locks.collect::<Value>()));
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = found
        .iter()
        .map(|lock| {
            let info = lock.info();
            vec![
                shown::plain(lock.key()),
                lock.kind().to_owned(),
                shown::holder(info),
                info.held_since().map_or("-".to_owned(), shown::ago),
                info.remaining().map_or("-".to_owned(), shown::time),
                info.waiters().to_string(),
            ]
        })
        .collect();
    let head = ["KEY", "KIND", "HOLDER", "HELD", "TTL LEFT", "WAITERS"];
    shown::print(shown::table(&head, &rows));
    Ok(ExitCode::SUCCESS)
}
