//! `lockctl inspect`: one lock.

use std::process::ExitCode;

use lock_core::LockInfo;
use serde_json::json;

use crate::exit::Failure;
use crate::options::{Inspect, Server};
use crate::shown;

pub(crate) async fn run(server: &Server, options: &Inspect) -> Result<ExitCode, Failure> {
    options.lock.hint(server);
    let locks = server.connect().await?;
    let key = &options.lock.key;
    if let Some(count) = options.latch {
        let left = locks.latch(key, count).left().await?;
        latch(options, count, left);
        return Ok(ExitCode::SUCCESS);
    }
    let (lock, info) = options.lock.look(&locks).await?;
    let mut kind = lock.kind();
    let mut leader = None;
    if options.election {
        (kind, leader) = ("election", locks.election(key).leader().await?);
    }
    if options.json {
        let mut shown = shown::lock(key, &info);
        shown["kind"] = info.is_held().then_some(kind).into();
        if options.election {
            let leader = leader.map(|it| json!({ "value": it.value(), "term": it.term().get() }));
            shown["leader"] = leader.into();
        }
        shown::say(format_args!("{shown:#}"));
        return Ok(ExitCode::SUCCESS);
    }
    shown::print(text(key, kind, &info));
    if let Some(leader) = leader {
        let (value, term) = (shown::plain(leader.value()), leader.term());
        shown::print(format!("leader      {value}\nterm        {term}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn latch(options: &Inspect, count: u32, left: u32) {
    if options.json {
        let (key, open) = (&options.lock.key, left == 0);
        let shown =
            json!({ "key": key, "kind": "latch", "count": count, "left": left, "open": open });
        shown::say(format_args!("{shown:#}"));
        return;
    }
    let state = if left == 0 { "open" } else { "closed" };
    let key = options.lock.shown();
    shown::print(format!(
        "latch       {key}\nstate       {state}\nleft        {left} of {count}\n"
    ));
}

pub(crate) fn text(key: &str, kind: &str, info: &LockInfo) -> String {
    let mut lines = vec![("lock", shown::plain(key))];
    if let Some(kind) = info.foreign() {
        lines.push(("state", format!("no lock, but a {kind}")));
    } else if info.is_held() {
        lines.push(("kind", kind.to_owned()));
        lines.extend(holders(kind, info));
    } else {
        lines.push(("state", "free".to_owned()));
    }
    if let Some(fence) = info.fence() {
        lines.push(("fence", fence.get().to_string()));
    }
    lines.push(("waiters", info.waiters().to_string()));
    for (place, waiter) in info.queue().iter().enumerate() {
        let since = waiter.since().map_or(String::new(), |since| {
            format!(", for {}", shown::ago(since))
        });
        let name = waiter.name().map_or("?".to_owned(), shown::plain);
        lines.push(("", format!("{}. {name}{since}", place + 1)));
    }
    lines.extend(votes(info));
    let lines = lines
        .iter()
        .map(|(name, value)| format!("{name:10}  {value}\n"));
    lines.collect()
}

/// What is said of the holder, or of each of several.
fn holders(kind: &str, info: &LockInfo) -> Vec<(&'static str, String)> {
    let since = |since| format!("{} ({} ago)", shown::stamp(since), shown::ago(since));
    let mut lines = Vec::new();
    let Some((used, max)) = info.permits() else {
        lines.push(("holder", shown::holder(info)));
        lines.extend(info.held_since().map(|at| ("held since", since(at))));
        lines.extend(info.remaining().map(|left| ("ttl left", shown::time(left))));
        if info.holds() > 1 {
            lines.push(("holds", info.holds().to_string()));
        }
        return lines;
    };
    let is_read_write = kind == "read-write";
    if is_read_write {
        let mode = if used == max { "write" } else { "read" };
        lines.push(("mode", mode.to_owned()));
    } else {
        lines.push(("permits", format!("{used} of {max}")));
    }
    let first = if info.holders().len() < 100 {
        ""
    } else {
        "the first "
    };
    lines.push(("holders", format!("{first}{}", info.holders().len())));
    for (place, holder) in info.holders().iter().enumerate() {
        let permits = match holder.permits() {
            _ if is_read_write => String::new(),
            1 => ", 1 permit".to_owned(),
            several => format!(", {several} permits"),
        };
        let since = holder
            .since()
            .map_or(String::new(), |at| format!(", since {}", since(at)));
        let (name, left) = (
            shown::plain(&holder.name()),
            shown::time(holder.remaining()),
        );
        lines.push((
            "",
            format!("{}. {name}{permits}{since}, ttl left {left}", place + 1),
        ));
    }
    lines
}

/// The votes of a quorum.
fn votes(info: &LockInfo) -> impl Iterator<Item = (&'static str, String)> {
    info.nodes().iter().map(|node| {
        let vote = match (node.error(), node.holder()) {
            (Some(why), _) => why.to_owned(),
            (None, None) => "no vote".to_owned(),
            (None, Some(holder)) => {
                let holder = shown::plain(holder);
                let left = node.remaining().unwrap_or_default();
                format!("{holder}, for {}", shown::time(left))
            }
        };
        ("node", format!("{}: {vote}", node.address()))
    })
}
