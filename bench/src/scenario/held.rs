//! Many locks held: (e).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lock_tests::Child;
use redis::aio::MultiplexedConnection;

use super::{Kind, Step};
use crate::commands::Snapshot;
use crate::contestant::Who;
use crate::crew::said;
use crate::options::Options;
use crate::stage::Stage;

const PROGRAM: &str = "lock-bench-held";
const COUNT: usize = 10_000;
/// A client that looks at the server this often would notice a call that takes long.
const BETWEEN_PINGS: Duration = Duration::from_micros(500);
/// Calls of the server that take less, in microseconds, are not looked at.
const SLOW: u64 = 20;
/// Number of locks that one call renews.
const RENEWED: usize = 350;
/// The time between two bare calls: that between two renewals is at most as long.
const BETWEEN_CALLS: Duration = Duration::from_millis(20);
/// How long the server is watched while it has nothing to do.
const IDLE: Duration = Duration::from_secs(2);

pub(super) fn steps() -> Vec<Step> {
    [Who::Ours, Who::AsyncRedisLock]
        .map(|who| Step {
            scenario: "e",
            variant: "10,000 locks".to_owned(),
            kind: Kind::Held(who),
        })
        .into()
}

type Figures = Vec<(&'static str, Option<f64>)>;

pub(super) async fn measure(who: Who, options: &Options, stage: &mut Stage) -> Result<Figures> {
    let (ttl, idle) = if options.quick {
        (Duration::from_secs(3), IDLE / 10)
    } else {
        (Duration::from_secs(30), IDLE)
    };
    // Renewed when a third has passed; a tenth more, so that stragglers are in.
    let renewals = |rounds: u32| ttl / 3 * rounds + ttl / 30;
    let (name, rounds) = match who {
        Who::AsyncRedisLock => ("async-redis-lock", 1),
        _ => ("ours", 2),
    };
    stage.clear().await?;
    let mut holder = Holder::start(&stage.server().url(), name, ttl)?;
    ensure!(
        said(&mut holder.0).await? == "ready",
        "{PROGRAM} is not ready"
    );

    // What the server does and how it answers while nothing is renewed.
    let mut admin = stage.admin();
    let (_, resting) = watched(&mut admin, &mut holder, idle).await?;
    let calm = pings(stage.server().addr(), idle)?;

    let bytes: f64 = holder.ask("fill").await?;
    watch_slow_calls(&mut admin).await?;
    let (client, server) = watched(&mut admin, &mut holder, renewals(rounds)).await?;
    let busy = pings(stage.server().addr(), renewals(1))?;
    let slowest = slowest_call(&mut admin).await?;
    let bare = bare_calls(&mut admin, COUNT / RENEWED * rounds as usize).await?;
    let held: usize = holder.ask("count").await?;
    ensure!(held > COUNT, "of {COUNT} locks only {held} are still held");

    let millis = |time: Duration| Some(time.as_secs_f64() * 1e3);
    Ok(vec![
        ("bytes_per_lock", Some(bytes)),
        ("client_percent", Some(client)),
        ("client_ms_per_minute", Some(client * 600.0)),
        ("server_percent", Some((server - resting).max(0.0))),
        (
            "server_ms_per_minute",
            Some((server - resting).max(0.0) * 600.0),
        ),
        ("server_idle_percent", Some(resting)),
        ("slowest_call_ms", Some(slowest)),
        ("slowest_bare_call_ms", Some(bare)),
        ("ping_longest_ms", millis(busy)),
        ("ping_longest_idle_ms", millis(calm)),
    ])
}

/// The process that holds the locks.
struct Holder(Child);

impl Holder {
    fn start(url: &str, name: &str, ttl: Duration) -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        ensure!(
            program.exists(),
            "{PROGRAM} is not built: `cargo xtask bench` builds it"
        );
        let (count, ttl) = (COUNT.to_string(), ttl.as_millis().to_string());
        let args = [url, name, &count, &ttl];
        Ok(Self(Child::spawn(program, args, [("RUST_BACKTRACE", "0")])))
    }

    async fn ask<T: std::str::FromStr>(&mut self, order: &str) -> Result<T> {
        self.0.send(order);
        let line = said(&mut self.0)
            .await
            .with_context(|| format!("asked to `{order}`"))?;
        line.parse()
            .ok()
            .with_context(|| format!("`{line}` is no answer to `{order}`"))
    }
}

/// How much of a core the client and the server use.
async fn watched(
    admin: &mut MultiplexedConnection,
    holder: &mut Holder,
    time: Duration,
) -> Result<(f64, f64)> {
    let worked: u64 = holder.ask("worked").await?;
    let first = Snapshot::take(admin).await?;
    tokio::time::sleep(time).await;
    let last = Snapshot::take(admin).await?;
    let worked = holder.ask::<u64>("worked").await? - worked;
    let percent = |work: u64| work as f64 * 100.0 / (last.at - first.at) as f64;
    Ok((percent(worked), percent(last.cpu - first.cpu)))
}

/// The longest time that another client waits for an answer.
fn pings(server: SocketAddr, time: Duration) -> Result<Duration> {
    let mut server = TcpStream::connect(server)?;
    server.set_nodelay(true)?;
    let mut longest = Duration::ZERO;
    let start = Instant::now();
    while start.elapsed() < time {
        let sent = Instant::now();
        server.write_all(b"PING\r\n")?;
        server.read_exact(&mut [0; b"+PONG\r\n".len()])?;
        longest = longest.max(sent.elapsed());
        std::thread::sleep(BETWEEN_PINGS);
    }
    Ok(longest)
}

/// The longest of so many calls that do the least a renewal of so many locks could do: set the ttl of that many keys. In
/// milliseconds, by the server's own clock.
async fn bare_calls(admin: &mut MultiplexedConnection, calls: usize) -> Result<f64> {
    let keys: Vec<String> = (0..RENEWED)
        .map(|key| format!("bench:bare:{key}"))
        .collect();
    let mut set = redis::cmd("MSET");
    for key in &keys {
        set.arg(key).arg("");
    }
    set.exec_async(admin).await?;
    let script =
        redis::Script::new("for i = 1, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[i]) end");
    let mut call = script.prepare_invoke();
    for key in &keys {
        call.key(key).arg(60_000);
    }
    call.load_async(admin).await?;
    watch_slow_calls(admin).await?;
    for _ in 0..calls {
        let () = call.invoke_async(admin).await?;
        tokio::time::sleep(BETWEEN_CALLS).await;
    }
    slowest_call(admin).await
}

async fn watch_slow_calls(admin: &mut MultiplexedConnection) -> Result<()> {
    for (name, value) in [
        ("slowlog-log-slower-than", SLOW),
        ("slowlog-max-len", 100_000),
    ] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET")
            .arg(name)
            .arg(value)
            .exec_async(admin)
            .await?;
    }
    Ok(redis::cmd("SLOWLOG").arg("RESET").exec_async(admin).await?)
}

/// In milliseconds, by the server's own clock.
async fn slowest_call(admin: &mut MultiplexedConnection) -> Result<f64> {
    let entries: Vec<Vec<redis::Value>> = redis::cmd("SLOWLOG")
        .arg("GET")
        .arg(-1)
        .query_async(admin)
        .await?;
    redis::cmd("CONFIG")
        .arg(&["SET", "slowlog-log-slower-than", "-1"])
        .exec_async(admin)
        .await?;
    // An entry: number, time, microseconds, the command and its arguments, ...
    let calls = entries.iter().filter_map(|entry| {
        let command: Vec<String> = redis::from_redis_value(entry.get(3)?.clone()).ok()?;
        let micros: u64 = redis::from_redis_value(entry.get(2)?.clone()).ok()?;
        let is_call = command.first()?.eq_ignore_ascii_case("EVALSHA");
        is_call.then_some(micros)
    });
    Ok(calls.max().unwrap_or(SLOW) as f64 / 1e3)
}
