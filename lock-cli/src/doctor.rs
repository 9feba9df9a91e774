//! `lockctl doctor`: what may cost locks.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use lock_core::{LockError, LockManager, Severity};
use serde_json::{Value, json};

use crate::exit::{Failure, NO, said, translated};
use crate::options::{Doctor, Server};
use crate::shown;

/// A cycle that takes longer is noticed by every caller.
const SLOW: Duration = Duration::from_millis(50);

/// A line of the result.
struct Line {
    server: String,
    severity: Severity,
    what: String,
    advice: Option<String>,
}

pub(crate) async fn run(server: &Server, options: &Doctor) -> Result<ExitCode, Failure> {
    let lines = match server.connect().await {
        Ok(locks) => examined(&locks, options.rounds).await,
        // Without a manager there is nothing else to examine.
        Err(Failure::Lock(error)) => vec![refused(&error)],
        Err(other) => return Err(other),
    };
    if options.json {
        shown::say(format_args!(
            "{:#}",
            lines.iter().map(Line::object).collect::<Value>()
        ));
    } else {
        for line in &lines {
            shown::print(line.text());
        }
    }
    let is_ill = lines.iter().any(|line| line.severity == Severity::Problem);
    Ok(ExitCode::from(if is_ill { NO } else { 0 }))
}

async fn examined(locks: &LockManager, rounds: u32) -> Vec<Line> {
    let findings = locks.examine().await;
    let mut lines: Vec<_> = findings
        .into_iter()
        .map(|finding| Line {
            server: finding.server().to_owned(),
            severity: finding.severity(),
            what: translated(finding.what()),
            advice: finding.advice().map(translated),
        })
        .collect();
    if rounds > 0 {
        lines.push(match latency(locks, rounds).await {
            Ok(times) => of_latency(&times),
            // A user may have rights to other names only.
            Err(error @ LockError::InvalidConfig { .. }) => Line {
                severity: Severity::Advice,
                what: format!("the latency was not measured: {}", said(&error)),
                ..refused(&error)
            },
            Err(error) => refused(&error),
        });
    }
    lines
}

/// The times of this many cycles of acquire and release, sorted.
async fn latency(locks: &LockManager, rounds: u32) -> Result<Vec<Duration>, LockError> {
    let lock = locks.lock(format!("lockctl:doctor:{}", std::process::id()));
    let mut times = Vec::new();
    for _ in 0..rounds {
        let began = Instant::now();
        let held = lock.acquire_within(Duration::from_secs(3)).await?;
        held.release().await?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times)
}

fn of_latency(times: &[Duration]) -> Line {
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    let is_slow = median > SLOW;
    let advice = "look at the load of the server and the network: SLOWLOG GET, LATENCY DOCTOR";
    Line {
        server: String::new(),
        severity: if is_slow {
            Severity::Advice
        } else {
            Severity::Fine
        },
        what: format!(
            "a lock is acquired and released in {median:.1?}, at most {most:.1?} ({} rounds)",
            times.len()
        ),
        advice: is_slow.then(|| advice.to_owned()),
    }
}

/// The error says what to do.
fn refused(error: &LockError) -> Line {
    Line {
        server: String::new(),
        severity: Severity::Problem,
        what: said(error),
        advice: None,
    }
}

impl Line {
    fn word(&self) -> &'static str {
        match self.severity {
            Severity::Problem => "problem",
            Severity::Advice => "advice",
            _ => "fine",
        }
    }

    fn text(&self) -> String {
        let server = if self.server.is_empty() {
            String::new()
        } else {
            format!("{}: ", self.server)
        };
        let advice = self
            .advice
            .as_ref()
            .map_or(String::new(), |advice| format!(": {advice}"));
        format!(
            "{:8} {server}{}{advice}\n",
            self.word(),
            shown::plain(&self.what)
        )
    }

    fn object(&self) -> Value {
        json!({
            "server": self.server,
            "severity": self.word(),
            "what": self.what,
            "advice": self.advice,
        })
    }
}
