//! What the server did, in its own words.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;

use crate::clock;
use crate::contestant::Who;

/// What a server has done since it started.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// When it said so.
    pub(crate) at: u64,
    calls: BTreeMap<String, u64>,
    /// Nanoseconds.
    pub(crate) cpu: u64,
}

impl Snapshot {
    pub(crate) async fn take(connection: &mut MultiplexedConnection) -> Result<Self> {
        let text: String = redis::cmd("INFO")
            .arg("commandstats")
            .arg("cpu")
            .query_async(connection)
            .await?;
        Ok(Self {
            at: clock::now(),
            calls: calls(&text),
            cpu: cpu(&text).context("the server does not tell its CPU time")?,
        })
    }

    /// Adds what another server has done.
    pub(crate) fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        for (name, calls) in other.calls {
            *self.calls.entry(name).or_default() += calls;
        }
    }

    /// Commands that a client sent from the first snapshot to this one.
    ///
    /// The server counts what a script runs as well; those are left out by name. The scenario with one task counts
    /// requests in the network too, so that a mistake here would show.
    pub(crate) fn commands_since(&self, first: &Self, who: Who) -> u64 {
        self.calls
            .iter()
            .filter(|(name, _)| is_sent(name, who))
            .map(|(name, calls)| calls - first.calls.get(name).unwrap_or(&0).min(calls))
            .sum()
    }
}

/// Whether clients send this command themselves.
fn is_sent(name: &str, who: Who) -> bool {
    let (command, _) = name.split_once('|').unwrap_or((name, ""));
    match command {
        "eval" | "evalsha" | "script" | "fcall" | "subscribe" | "ssubscribe" | "unsubscribe"
        | "sunsubscribe" | "ping" | "hello" | "client" | "auth" | "select" => true,
        "set" => who.locks_by_set(),
        _ => false,
    }
}

/// Lines such as `cmdstat_get:calls=1,usec=2,...`.
fn calls(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .filter_map(|(name, rest)| Some((name.to_owned(), rest.split(',').next()?.parse().ok()?)))
        .collect()
}

/// Lines such as `used_cpu_user:0.5`, in nanoseconds.
fn cpu(text: &str) -> Option<u64> {
    let of = |name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(((of("used_cpu_sys:")? + of("used_cpu_user:")?) * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use super::{Snapshot, calls, cpu};
    use crate::contestant::Who;

    const TEXT: &str = "# CPU\r\nused_cpu_sys:0.250000\r\nused_cpu_user:1.500000\r\nused_cpu_sys_children:9.0\r\n\
        # Commandstats\r\ncmdstat_set:calls=3,usec=9\r\ncmdstat_evalsha:calls=5,usec=1\r\n\
        cmdstat_client|setinfo:calls=2,usec=1\r\ncmdstat_get:calls=7,usec=1\r\ncmdstat_info:calls=1,usec=1\r\n";

    fn snapshot(text: &str) -> Snapshot {
        Snapshot {
            at: 0,
            calls: calls(text),
            cpu: cpu(text).unwrap(),
        }
    }

    #[test]
    fn the_time_of_the_server_is_its_own_two() {
        assert_eq!(snapshot(TEXT).cpu, 1_750_000_000);
    }

    #[test]
    fn commands_of_scripts_do_not_count() {
        let none = snapshot("used_cpu_sys:0\r\nused_cpu_user:0\r\n");
        let all = snapshot(TEXT);
        // Five scripts and the two of the handshake; `set` is a client's own only where the lock is one.
        assert_eq!(all.commands_since(&none, Who::Ours), 7);
        assert_eq!(all.commands_since(&none, Who::Floor), 10);
        assert_eq!(all.commands_since(&all, Who::Floor), 0);
    }
}
