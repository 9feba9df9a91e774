//! `lockctl inspect`: one lock.

use std::process::ExitCode;

use lock_core::{LockError, LockInfo, LockManager};

use crate::exit::Failure;
use crate::options::{Inspect, OfLock, Server};
use crate::shown;

/// What all commands do with a lock of either kind.
impl OfLock {
    /// The key for people.
    pub(crate) fn shown(&self) -> String {
        shown::plain(&self.key)
    }

    /// Says on stderr if the key looks like the name on the server.
    pub(crate) fn hint(&self, server: &Server) {
        let (key, prefix) = (self.shown(), &server.prefix);
        if !self.reentrant && !prefix.is_empty() && self.key.starts_with(prefix.as_str()) {
            eprintln!(
                "lockctl: the key is stated without the prefix: this is the lock `{prefix}{key}` on the server"
            );
        }
    }

    pub(crate) async fn inspect(&self, locks: &LockManager) -> Result<LockInfo, LockError> {
        if self.reentrant {
            locks.reentrant_lock(&self.key).inspect().await
        } else {
            locks.lock(&self.key).inspect().await
        }
    }

    pub(crate) async fn force_release(&self, locks: &LockManager) -> Result<bool, LockError> {
        if self.reentrant {
            locks.reentrant_lock(&self.key).force_release().await
        } else {
            locks.lock(&self.key).force_release().await
        }
    }
}

pub(crate) async fn run(server: &Server, options: &Inspect) -> Result<ExitCode, Failure> {
    options.lock.hint(server);
    let locks = server.connect().await?;
    let info = options.lock.inspect(&locks).await?;
    let key = &options.lock.key;
    if options.json {
        shown::say(format_args!("{:#}", shown::lock(key, &info)));
    } else {
        shown::print(&text(key, &info));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn text(key: &str, info: &LockInfo) -> String {
    let mut lines = vec![("lock", shown::plain(key))];
    if let Some(kind) = info.foreign() {
        lines.push(("state", format!("no lock, but a {kind}")));
    } else if let Some(left) = info.remaining() {
        lines.push(("holder", shown::holder(info)));
        if let Some(since) = info.held_since() {
            let since = format!("{} ({} ago)", shown::stamp(since), shown::ago(since));
            lines.push(("held since", since));
        }
        lines.push(("ttl left", shown::time(left)));
        if info.holds() > 1 {
            lines.push(("holds", info.holds().to_string()));
        }
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
    for node in info.nodes() {
        let vote = match (node.error(), node.holder()) {
            (Some(why), _) => why.to_owned(),
            (None, None) => "no vote".to_owned(),
            (None, Some(holder)) => {
                let holder = shown::plain(holder);
                let left = node.remaining().unwrap_or_default();
                format!("{holder}, for {}", shown::time(left))
            }
        };
        lines.push(("node", format!("{}: {vote}", node.address())));
    }
    let lines = lines
        .iter()
        .map(|(name, value)| format!("{name:10}  {value}\n"));
    lines.collect()
}
