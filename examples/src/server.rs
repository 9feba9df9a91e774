use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::Outcome;

/// Starts the server and ends it as soon as our end of the pipe is closed: on drop, and also if this process is killed.
/// The shell keeps no hold of the server's output, so that the end of the output is the end of the server.
const KEEPER: &str =
    r#""$@" </dev/null 2>&1 & exec >/dev/null 2>&1; read -r _; kill -KILL "$!"; wait "$!""#;

/// How often a port that another process took first is given up for another one.
const TRIES: usize = 5;

/// A `redis-server` of our own, on a free loopback port and without files; ended on drop.
#[derive(Debug)]
pub struct PrivateServer {
    keeper: Child,
    port: u16,
    program: String,
}

impl PrivateServer {
    /// Starts the program in `REDIS_SERVER_BIN`, else the `redis-server` of `PATH`, and returns once it answers.
    ///
    /// # Errors
    ///
    /// A sentence that says what is missing.
    pub fn start() -> Outcome<Self> {
        let program = env::var_os("REDIS_SERVER_BIN")
            .filter(|program| !program.is_empty())
            .unwrap_or_else(|| OsString::from("redis-server"));
        let name = Path::new(&program).display().to_string();
        if let Err(error) = Command::new(&program).arg("--version").output() {
            return Err(format!(
                "cannot run `{name}` ({error}): install redis-server, name it in REDIS_SERVER_BIN, \
                 or set REDIS_URL to a server that runs"
            )
            .into());
        }
        let mut last_words = String::new();
        for _ in 0..TRIES {
            let port = free_port()?;
            let mut keeper = launch(&program, port)?;
            let output = keeper.stdout.take().ok_or("the server has no output")?;
            let server = Self {
                keeper,
                port,
                program: name.clone(),
            };
            match until_ready(output) {
                Ok(()) => return Ok(server),
                Err(words) => last_words = words,
            }
        }
        Err(format!("`{name}` does not start; it says: {last_words}").into())
    }

    /// Where it listens, as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends the server at once, as a crash does.
    ///
    /// # Errors
    ///
    /// Where the system refuses.
    pub fn kill(&mut self) -> Outcome {
        drop(self.keeper.stdin.take());
        self.keeper.wait()?;
        Ok(())
    }

    /// Sends the server a signal, `STOP` for one.
    ///
    /// # Errors
    ///
    /// Where it does not run any more.
    pub fn signal(&self, name: &str) -> Outcome {
        // The server is the keeper's only child.
        let children = format!("/proc/{0}/task/{0}/children", self.keeper.id());
        let server = std::fs::read_to_string(&children)?;
        let server = server
            .split_whitespace()
            .next()
            .ok_or("the server has ended")?;
        let status = Command::new("kill").args(["-s", name, server]).status()?;
        if !status.success() {
            return Err(format!("the server got no {name}").into());
        }
        Ok(())
    }

    /// The program that runs.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        // Closes the pipe; the keeper ends the server, and then itself.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

fn launch(program: &OsString, port: u16) -> Outcome<Child> {
    let mut keeper = Command::new("sh");
    keeper
        .args(["-c", KEEPER, "sh"])
        .arg(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .arg("--dir")
        .arg(env::temp_dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C is for the example, which then ends its server in its own time.
        .process_group(0);
    Ok(keeper.spawn()?)
}

/// Reads the server's log up to the line that says it is ready; the error is what it said instead.
fn until_ready(output: ChildStdout) -> Result<(), String> {
    let mut log = BufReader::new(output);
    let mut words = String::new();
    for line in log.by_ref().lines() {
        let line = line.map_err(|error| error.to_string())?;
        if line.to_lowercase().contains("ready to accept connections") {
            // Read on, so that the server never waits for a reader of its log.
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return Ok(());
        }
        words = line;
    }
    Err(words)
}
