//! A real server of a test's own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, IntoConnectionInfo};

use crate::admin;
use crate::binary::ServerBinary;
use crate::port::Port;
use crate::supervise::Supervised;
use crate::wait::LIMIT;

/// A server on a free loopback port, with a folder of its own; ended, and its
/// folder removed, on drop.
///
/// It keeps nothing on disk unless asked: `.arg("--appendonly", "yes")`.
#[derive(Debug)]
pub struct TestServer {
    binary: ServerBinary,
    under: Vec<String>,
    args: Vec<String>,
    port: Port,
    dir: PathBuf,
    process: Mutex<Supervised>,
}

/// Options of a [`TestServer`].
#[derive(Debug, Default)]
#[must_use = "nothing starts before `start`"]
pub struct TestServerBuilder {
    binary: Option<ServerBinary>,
    under: Vec<String>,
    args: Vec<String>,
}

impl TestServerBuilder {
    /// Adds an option of the server's command line; it wins over a default.
    pub fn arg(mut self, name: &str, value: &str) -> Self {
        self.args.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Runs this program in place of the default server.
    ///
    /// # Panics
    ///
    /// When it is no server.
    pub fn binary(mut self, path: impl AsRef<Path>) -> Self {
        self.binary = Some(ServerBinary::at(path));
        self
    }

    /// Runs the server in a session of its own, as a service runs. Linux shares
    /// the processors out between sessions first, and takes a server and its
    /// clients in one session for one program: that is of no matter to a test,
    /// and changes what a benchmark measures.
    pub fn in_own_session(self) -> Self {
        self.under(["setsid"])
    }

    /// Runs the server under a command that becomes the server, or runs it
    /// inside of its own process.
    pub fn under<'a>(mut self, command: impl IntoIterator<Item = &'a str>) -> Self {
        self.under = command.into_iter().map(str::to_owned).collect();
        self
    }

    /// Starts the server, and returns once it answers.
    ///
    /// # Panics
    ///
    /// When it does not start; the message holds its log.
    pub async fn start(self) -> TestServer {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lock-tests-{}-{count}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", dir.display()));

        let binary = self.binary.unwrap_or_else(ServerBinary::find);
        for _ in 0..50 {
            let port = Port::free();
            let process = launch(&binary, &self.under, &self.args, port.number, &dir).await;
            match process {
                Ok(process) => {
                    return TestServer {
                        binary,
                        under: self.under,
                        args: self.args,
                        port,
                        dir,
                        process: Mutex::new(process),
                    };
                }
                Err(Failure::PortTaken) => {}
                Err(Failure::Other(why)) => {
                    let _ = fs::remove_dir_all(&dir);
                    panic!("{binary:?} did not start: {why}");
                }
            }
        }
        panic!("50 free ports were taken before {binary:?} could use them");
    }
}

impl TestServer {
    /// Starts the default server.
    ///
    /// # Panics
    ///
    /// As [`TestServerBuilder::start`].
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A server with options.
    pub fn builder() -> TestServerBuilder {
        TestServerBuilder::default()
    }

    /// The program that runs.
    #[must_use]
    pub fn binary(&self) -> &ServerBinary {
        &self.binary
    }

    /// `redis://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr())
    }

    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number).into()
    }

    /// The port it listens on; a restart keeps it.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The server's own process id; a restart changes it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// The folder of its files and log.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Pauses the server (SIGSTOP). It has stopped when this returns; the
    /// kernel still accepts connections and bytes for it.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn stop(&self) {
        self.process().stop().expect("the server runs");
    }

    /// Lets a paused server run on (SIGCONT).
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn cont(&self) {
        self.process().cont().expect("the server runs");
    }

    /// Kills the server (SIGKILL). It is gone when this returns.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn kill(&self) {
        self.process().kill().expect("own child can be killed");
    }

    /// Kills the server if it runs and starts it again on the same port:
    /// empty, or with what its append-only file holds.
    ///
    /// # Panics
    ///
    /// When it does not start, or the port stays taken.
    pub async fn restart(&self) {
        self.kill();
        let start = Instant::now();
        loop {
            let (under, port) = (&self.under, self.port.number);
            match launch(&self.binary, under, &self.args, port, &self.dir).await {
                Ok(process) => {
                    *self.process() = process;
                    return;
                }
                Err(Failure::PortTaken) if start.elapsed() < LIMIT => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(Failure::PortTaken) => panic!("port {} stays taken", self.port.number),
                Err(Failure::Other(why)) => panic!("{:?} did not restart: {why}", self.binary),
            }
        }
    }

    /// A new connection (RESP2, response limit [`LIMIT`]).
    ///
    /// # Panics
    ///
    /// When the server cannot be reached.
    pub async fn connection(&self) -> MultiplexedConnection {
        connect(self.url()).await
    }

    /// Every key, sorted, without the number of the format, which each connection writes.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(redis::cmd("KEYS").arg("*")).await;
        keys.retain(|key| !key.contains("lock-core:format"));
        keys.sort();
        keys
    }

    /// Whether the key exists.
    pub async fn exists(&self, key: &str) -> bool {
        self.ask(redis::cmd("EXISTS").arg(key)).await
    }

    /// The string at the key.
    pub async fn get(&self, key: &str) -> Option<String> {
        self.ask(redis::cmd("GET").arg(key)).await
    }

    /// Milliseconds the key has left; -1: no limit, -2: no such key.
    pub async fn pttl(&self, key: &str) -> i64 {
        self.ask(redis::cmd("PTTL").arg(key)).await
    }

    /// Removes every key.
    pub async fn flushall(&self) {
        self.ask::<()>(&redis::cmd("FLUSHALL")).await;
    }

    /// The server's wall clock: time since 1970.
    pub async fn time(&self) -> Duration {
        let (seconds, micros): (u64, u64) = self.ask(&redis::cmd("TIME")).await;
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    }

    /// Calls of each command since the start or [`reset_stats`](Self::reset_stats),
    /// by its lower-case name (`evalsha`, `config|get`). Commands a script ran
    /// count as well; what this server is asked through its own methods counts, too.
    pub async fn commandstats(&self) -> BTreeMap<String, u64> {
        let text: String = self.ask(redis::cmd("INFO").arg("commandstats")).await;
        parse_commandstats(&text)
    }

    /// Sets the counts of [`commandstats`](Self::commandstats) to zero (its
    /// own `config|resetstat` may remain as one).
    pub async fn reset_stats(&self) {
        self.ask::<()>(redis::cmd("CONFIG").arg("RESETSTAT")).await;
    }

    /// Closes every other connection, from the server's side; answers how
    /// many there were.
    ///
    /// # Panics
    ///
    /// When the server cannot be reached.
    pub async fn client_kill_all(&self) -> u64 {
        let mut killed = 0;
        for kind in ["normal", "pubsub"] {
            let mut command = redis::cmd("CLIENT");
            command.arg("KILL").arg("TYPE").arg(kind);
            killed += self.ask::<u64>(command.arg("SKIPME").arg("yes")).await;
        }
        killed
    }

    async fn ask<T: FromRedisValue>(&self, command: &redis::Cmd) -> T {
        admin::ask(self.addr(), command).await
    }

    fn process(&self) -> MutexGuard<'_, Supervised> {
        // A panic of another test thread does not make the process invalid.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // Ended first: it writes into the folder.
        let _ = self.process().kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A connection to any URL, a [`Proxy`](crate::Proxy)'s for instance, with
/// response limit [`LIMIT`]. Ask for RESP3 with `?protocol=resp3`.
///
/// # Panics
///
/// When it cannot be made.
pub async fn connect(url: impl IntoConnectionInfo) -> MultiplexedConnection {
    let info = url.into_connection_info().expect("a valid URL");
    let addr = info.addr().clone();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(LIMIT))
        .set_response_timeout(Some(LIMIT));
    redis::Client::open(info)
        .expect("a usable URL")
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap_or_else(|error| panic!("no connection to {addr}: {error}"))
}

enum Failure {
    PortTaken,
    Other(String),
}

async fn launch(
    binary: &ServerBinary,
    under: &[String],
    args: &[String],
    port: u16,
    dir: &Path,
) -> Result<Supervised, Failure> {
    let other = |error: std::io::Error| Failure::Other(error.to_string());
    let log = dir.join("server.log");
    let out = File::create(&log).map_err(other)?;
    let mut command = match under {
        [] => Command::new(binary.path()),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(binary.path());
            command
        }
    };
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .arg("--dir")
        .arg(dir);
    // Older servers always allow DEBUG and refuse an option they do not know.
    if binary.major() >= 7 {
        command.args(["--enable-debug-command", "yes"]);
    }
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(other)?)
        .stderr(out);
    let process = if under.is_empty() {
        Supervised::spawn(&mut command, Some(dir))
    } else {
        // `setsid` runs the program in its own place only where it does not lead a group.
        Supervised::spawn_as_it_is(&mut command, Some(dir))
    };
    let mut process = process.map_err(|error| {
        let program = command.get_program().display();
        Failure::Other(format!("{program} cannot be run: {error}"))
    })?;

    let start = Instant::now();
    loop {
        let text = fs::read_to_string(&log).unwrap_or_default();
        if process.status().map_err(other)?.is_some() {
            // Read once more: the last words may have come after the reading.
            let text = fs::read_to_string(&log).unwrap_or_default();
            return Err(if text.contains("Address already in use") {
                Failure::PortTaken
            } else {
                Failure::Other(format!("it ended with this log:\n{text}"))
            });
        }
        // Its own log tells that it is ours which answers on this port, and
        // not a server another process put there a moment ago.
        if text.contains("Ready to accept connections") && answers(port).await {
            return Ok(process);
        }
        if start.elapsed() > LIMIT {
            return Err(Failure::Other(format!("no answer; its log:\n{text}")));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Whether PING gets an answer; a demand for a password is one too.
async fn answers(port: u16) -> bool {
    let ping = redis::cmd("PING");
    let reply = admin::exchange((Ipv4Addr::LOCALHOST, port).into(), &ping);
    match tokio::time::timeout(Duration::from_secs(1), reply).await {
        Ok(Ok(reply)) => reply == b"+PONG\r\n" || reply.starts_with(b"-NOAUTH"),
        _ => false,
    }
}

/// Lines such as `cmdstat_get:calls=1,usec=2,...`.
fn parse_commandstats(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .filter_map(|(name, rest)| {
            let calls = rest.split(',').next()?.parse().ok()?;
            Some((name.to_owned(), calls))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::parse_commandstats;

    #[test]
    fn commandstats_gives_the_calls_of_each_command() {
        let text = "# Commandstats\r\ncmdstat_get:calls=3,usec=9,usec_per_call=3.00\r\n\
                    cmdstat_config|resetstat:calls=1,usec=80\r\n";
        let stats = parse_commandstats(text);
        assert_eq!(stats.get("get"), Some(&3));
        assert_eq!(stats.get("config|resetstat"), Some(&1));
        assert_eq!(stats.len(), 2);
    }
}
