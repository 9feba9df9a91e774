//! `lockctl ls`: all held locks.

use std::process::ExitCode;

use serde_json::Value;

use crate::exit::Failure;
use crate::options::{Ls, Server};
use crate::shown;

pub(crate) async fn run(server: &Server, options: &Ls) -> Result<ExitCode, Failure> {
    let locks = server.connect().await?;
    let mut list = locks.list();
    let mut found = Vec::new();
    while let Some(page) = list.next_page().await? {
        let matching = page.into_iter().filter(|lock| {
            let pattern = options.pattern.as_ref();
            pattern.is_none_or(|pattern| pattern.matches(lock.key()))
        });
        found.extend(matching);
    }
    found.sort_by(|a, b| a.key().cmp(b.key()));
    if options.json {
        let locks = found.iter().map(|lock| {
            let mut shown = shown::lock(lock.key(), lock.info());
            shown["kind"] = lock.kind().into();
            shown
        });
        println!("{:#}", locks.collect::<Value>());
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = found
        .iter()
        .map(|lock| {
            let info = lock.info();
            vec![
                lock.key().to_owned(),
                lock.kind().to_owned(),
                info.holder().unwrap_or("-").to_owned(),
                info.held_since().map_or("-".to_owned(), shown::ago),
                info.remaining().map_or("-".to_owned(), shown::time),
                info.waiters().to_string(),
            ]
        })
        .collect();
    print!(
        "{}",
        shown::table(
            &["KEY", "KIND", "HOLDER", "HELD", "TTL LEFT", "WAITERS"],
            &rows
        )
    );
    Ok(ExitCode::SUCCESS)
}
