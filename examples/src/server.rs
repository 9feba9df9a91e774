use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Display, Path};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::Outcome;

/// Arguments: program, mode, lines of the configuration file.
/// Starts the server in a folder of its own, and ends it as soon as our end of the pipe is closed: on drop, and also if this process
/// is killed. The shell keeps no hold of the server's output, so that the end of the output is the end of the server.
const KEEPER: &str = r#"
folder=$(mktemp -d) || exit
printf '%s\ndir "%s"\n' "$3" "$folder" >"$folder/server.conf"
"$1" "$folder/server.conf" $2 </dev/null 2>&1 & exec >/dev/null 2>&1
read -r _; kill -KILL "$!"; wait "$!"; rm -r "$folder""#;

/// The mode of a Sentinel.
const SENTINEL: &str = "--sentinel";

/// How often a port that another process took first is given up for another one.
const TRIES: usize = 5;

/// A `redis-server` of our own, on a free loopback port and with a folder of its own; ended, and the folder removed, on drop.
#[derive(Debug)]
pub struct PrivateServer {
    keeper: Child,
    port: u16,
    program: OsString,
}

impl PrivateServer {
    /// Starts the program in `REDIS_SERVER_BIN`, else the `redis-server` of `PATH`, and returns once it answers. It stores nothing.
    ///
    /// # Errors
    ///
    /// A sentence that says what is missing.
    pub fn start() -> Outcome<Self> {
        Self::start_with("")
    }

    /// As [`start`](Self::start), with more lines of its configuration file.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(config: &str) -> Outcome<Self> {
        Self::on_free_port("", config)
    }

    /// Starts a Sentinel with these lines of its configuration file.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_sentinel(config: &str) -> Outcome<Self> {
        Self::on_free_port(SENTINEL, config)
    }

    fn on_free_port(mode: &str, config: &str) -> Outcome<Self> {
        let program = env::var_os("REDIS_SERVER_BIN")
            .filter(|program| !program.is_empty())
            .unwrap_or_else(|| OsString::from("redis-server"));
        let name = Path::new(&program).display();
        if let Err(error) = Command::new(&program).arg("--version").output() {
            return Err(format!(
                "cannot run `{name}` ({error}): install redis-server, name it in REDIS_SERVER_BIN, \
                 or set REDIS_URL to a server that runs"
            )
            .into());
        }
        let mut last_words = String::new();
        for _ in 0..TRIES {
            match Self::launch(&program, free_port()?, mode, config)? {
                Ok(server) => return Ok(server),
                Err(words) => last_words = words,
            }
        }
        Err(format!("`{name}` does not start; it says: {last_words}").into())
    }

    /// The inner error is what it said.
    fn launch(
        program: &OsStr,
        port: u16,
        mode: &str,
        config: &str,
    ) -> Outcome<Result<Self, String>> {
        let config = format!(
            "port {port}\nbind 127.0.0.1\nsave \"\"\nappendonly no\ndaemonize no\n{config}"
        );
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(program)
            .args([mode, &config])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the example, which then ends its server in its own time.
            .process_group(0)
            .spawn()?;
        let output = keeper.stdout.take().ok_or("the server has no output")?;
        let server = Self {
            keeper,
            port,
            program: program.to_owned(),
        };
        Ok(until_ready(output).map(|()| server))
    }

    /// Kills the server if it runs, and starts it again: empty, on the same port, with these lines of its configuration file.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn restart_with(&mut self, config: &str) -> Outcome {
        self.kill()?;
        let again = Self::launch(&self.program, self.port, "", config)?;
        *self = again.map_err(|words| format!("the server does not start again: {words}"))?;
        Ok(())
    }

    /// The loopback port on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
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
    pub fn program(&self) -> Display<'_> {
        Path::new(&self.program).display()
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

/// Reads the server's log up to the line that says it is ready; the error is what it said instead.
fn until_ready(output: ChildStdout) -> Result<(), String> {
    let mut log = BufReader::new(output);
    let mut words = String::new();
    for line in log.by_ref().lines() {
        let line = line.map_err(|error| error.to_string())?;
        // The last words of a Sentinel that begins are the master that it watches.
        if line.to_lowercase().contains("ready to accept connections") || line.contains("+monitor")
        {
            // Read on, so that the server never waits for a reader of its log.
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return Ok(());
        }
        words = line;
    }
    Err(words)
}
