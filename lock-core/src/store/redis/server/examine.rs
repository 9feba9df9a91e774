//! A server as its operator would like it: memory, persistence, replicas, clock. Nothing here refuses work: see `look.rs` for that.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join;
use redis::{cmd, from_redis_value};

use super::Server;
use super::look::field;
use crate::base::finding::{Finding, Severity};
use crate::store::StoreError;
use crate::store::redis::connection::Connection;
use crate::store::redis::error::{classify, garbled, said};

/// Maximum difference between two clocks that a delay of the network explains. It is the default skew of a quorum.
const APART: Duration = Duration::from_millis(500);

impl Server {
    /// Examines this server.
    pub(in crate::store) async fn examine(self: &Arc<Self>) -> Vec<Finding> {
        if let Err(error) = self.ready().await {
            return vec![unreachable(&self.address(), error)];
        }
        let clock = async {
            self.clock_ahead(&*self.connection().await.map_err(classify)?)
                .await
        };
        let (info, clock) = join(self.request(cmd("INFO")), clock).await;
        let at = &*self.address();
        let mut findings = match info.and_then(|info| Ok(from_redis_value::<String>(info)?)) {
            Ok(info) => of_info(at, &info),
            Err(error) => vec![Finding::of(
                at,
                Severity::Advice,
                format!("its settings cannot be read ({})", said(&error)),
                "permit `+info` to the user",
            )],
        };
        findings.extend(clock.ok().map(|ahead| of_clock(at, ahead)));
        findings
    }

    /// How far its clock is ahead of ours, ms.
    pub(in crate::store) async fn clock_ahead(
        self: &Arc<Self>,
        connection: &Connection,
    ) -> Result<i64, StoreError> {
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let before = now().unwrap_or_default();
        let answer = self.request_on(connection, &cmd("TIME"), false).await;
        let answer = answer.map_err(classify)?;
        // The answer was on its way for about half of the time.
        let ours = before + now().unwrap_or_default().saturating_sub(before) / 2;
        let theirs = from_redis_value::<(u64, u64)>(answer);
        let (seconds, micros) = theirs.map_err(|_| garbled())?;
        let theirs = Duration::from_secs(seconds) + Duration::from_micros(micros);
        Ok(theirs.as_millis() as i64 - ours.as_millis() as i64)
    }
}

/// A server that does not answer.
pub(in crate::store) fn unreachable(at: &str, error: StoreError) -> Finding {
    let why = error.into_lock_error().to_string();
    Finding::of(
        at,
        Severity::Problem,
        why,
        "nothing works on this server until then",
    )
}

fn of_clock(at: &str, ahead_ms: i64) -> Finding {
    let apart = Duration::from_millis(ahead_ms.unsigned_abs());
    if apart <= APART {
        return Finding::fine(at, "its clock agrees with that of this machine");
    }
    let how = if ahead_ms > 0 { "ahead of" } else { "behind" };
    Finding::of(
        at,
        Severity::Problem,
        format!("its clock is {apart:.1?} {how} that of this machine"),
        "synchronise the clocks (NTP): a quorum does not lock while they differ, and ages of locks are wrong",
    )
}

/// What the reply to INFO tells.
fn of_info(at: &str, info: &str) -> Vec<Finding> {
    let number = |name| field(info, name).and_then(|text| text.parse::<u64>().ok());
    let version = field(info, "valkey_version").or_else(|| field(info, "redis_version"));
    let mut findings = vec![Finding::fine(
        at,
        format!("version {}", version.unwrap_or("unknown")),
    )];
    let policy = field(info, "maxmemory_policy");
    let limit = number("maxmemory").unwrap_or(0);
    findings.push(match (limit, policy) {
        (_, None) => Finding::of(
            at,
            Severity::Advice,
            "it does not say its maxmemory-policy",
            "see to it that it deletes no keys to save memory: a lock that is deleted is lost",
        ),
        (_, Some("noeviction")) => Finding::fine(at, "it deletes no keys to save memory"),
        (0, Some(policy)) => Finding::of(
            at,
            Severity::Advice,
            format!("maxmemory-policy is {policy}, though without a limit of memory"),
            "set `maxmemory-policy noeviction` before a limit is set: a lock that is deleted is lost",
        ),
        (_, Some(policy)) => Finding::of(
            at,
            Severity::Problem,
            format!("it deletes keys when its memory is full (maxmemory-policy {policy})"),
            "set `maxmemory-policy noeviction`: a lock that is deleted is lost",
        ),
    });
    let used = number("used_memory").unwrap_or(0);
    if limit > 0 && used > limit / 10 * 9 {
        findings.push(Finding::of(
            at,
            Severity::Problem,
            format!("{} % of its memory is in use", used * 100 / limit),
            "give it more memory: a full server grants no locks",
        ));
    }
    findings.push(of_file(at, info));
    findings.push(of_replicas(
        at,
        info,
        number("connected_slaves").unwrap_or(0),
    ));
    findings
}

fn of_file(at: &str, info: &str) -> Finding {
    match field(info, "aof_enabled") {
        Some("1") => Finding::fine(at, "it writes an append-only file"),
        Some(_) => Finding::of(
            at,
            Severity::Advice,
            "it writes no append-only file",
            "set `appendonly yes`, `appendfsync everysec`: without it a server that restarts has forgotten the locks that are held",
        ),
        None => Finding::of(
            at,
            Severity::Advice,
            "it does not say whether it writes an append-only file",
            "see to it that it keeps its data over a restart: else it has forgotten the locks that are held",
        ),
    }
}

fn of_replicas(at: &str, info: &str, replicas: u64) -> Finding {
    // The field is there only if `min-replicas-to-write` is set.
    let needs = field(info, "min_slaves_good_slaves").is_some();
    let has = match replicas {
        0 => "it has no replica".to_owned(),
        1 => "it has 1 replica".to_owned(),
        many => format!("it has {many} replicas"),
    };
    match (replicas, needs) {
        (0, false) => Finding::fine(at, has),
        (_, true) => Finding::fine(at, format!("{has}, and needs replicas to write")),
        (_, false) => Finding::of(
            at,
            Severity::Advice,
            format!("{has}, and min-replicas-to-write is 0"),
            "set `min-replicas-to-write 1`: else a master that is cut off from its replicas grants locks that a failover forgets",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severities(info: &str) -> Vec<Severity> {
        let findings = of_info("h:1", info);
        findings.iter().map(Finding::severity).collect()
    }

    #[test]
    fn settings_that_may_cost_locks_are_found() {
        use Severity::{Advice, Fine, Problem};
        let good = "redis_version:7.2.4\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:1\r\n\
                    min_slaves_good_slaves:1\r\n";
        assert_eq!(severities(good), [Fine; 4]);
        let poor = "maxmemory:100\r\nused_memory:95\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\nconnected_slaves:2\r\n";
        assert_eq!(severities(poor), [Fine, Problem, Problem, Advice, Advice]);
        assert_eq!(severities("maxmemory_policy:volatile-ttl\r\n")[1], Advice);
        // Another server does not say all of it.
        assert_eq!(
            severities("redis_version:7.0.0\r\n"),
            [Fine, Advice, Advice, Fine]
        );
    }

    #[test]
    fn a_clock_may_be_half_a_second_off() {
        for ahead in [0, 500, -500] {
            assert_eq!(of_clock("h:1", ahead).severity(), Severity::Fine);
        }
        let of = |ahead| of_clock("h:1", ahead).what().to_owned();
        assert_eq!(of(1500), "its clock is 1.5s ahead of that of this machine");
        assert_eq!(of(-3000), "its clock is 3.0s behind that of this machine");
    }
}
