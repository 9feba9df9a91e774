//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use glob::{Pattern, PatternError};

use crate::run::Limits;

const CODES: &str = "\
Exit codes:
   0  done
   1  no: the lock was not held (unlock), is still held (wait), no majority votes (quorum status),
      a problem was found (doctor)
  64  wrong arguments
  69  the server is not available
  71  an error of this machine
  75  the lock was not acquired in time
  78  the server refuses, or the settings cannot work
  80  the lock was lost, and the command was ended (run)
 126  the command cannot be executed (run)
 127  the command was not found (run)
Otherwise `run` ends as its command does, with 128+N if the signal N has ended that.";

/// Locks of lock-core from the command line.
#[derive(Debug, Parser)]
#[command(name = "lockctl", version, after_help = CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the locks are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// The server, as `redis://host`, `rediss://host`, `redis+sentinel://s1,s2,s3/name`, `redis+cluster://h1,h2` or
    /// `redis+quorum://a,b,c`. A password is safer in the environment, where other users do not see it
    #[arg(long, env = "LOCK_URL", hide_env_values = true, global = true)]
    pub(crate) url: Option<String>,
    /// What the keys of the locks begin with
    #[arg(long, env = "LOCK_PREFIX", default_value = "lock:", global = true)]
    pub(crate) prefix: String,
    /// What all names on the server begin with, if the programs have a namespace
    #[arg(long, env = "LOCK_NAMESPACE", default_value = "", global = true)]
    pub(crate) namespace: String,
    /// How long the server may take to answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration, global = true)]
    pub(crate) deadline: Duration,
    /// The wait of a quorum, if the programs state one
    #[arg(long, value_name = "TIME", env = "LOCK_QUORUM_WAIT", value_parser = humantime::parse_duration, global = true)]
    pub(crate) quorum_wait: Option<Duration>,
    /// Certificates to trust, a PEM file. Default: those of the system
    #[arg(long, value_name = "FILE", env = "LOCK_CA", global = true)]
    pub(crate) ca: Option<PathBuf>,
    /// The certificate of this client, a PEM file
    #[arg(
        long,
        value_name = "FILE",
        env = "LOCK_CERT",
        requires = "cert_key",
        global = true
    )]
    pub(crate) cert: Option<PathBuf>,
    /// The key of the certificate of this client, a PEM file
    #[arg(
        long,
        value_name = "FILE",
        env = "LOCK_CERT_KEY",
        requires = "cert",
        global = true
    )]
    pub(crate) cert_key: Option<PathBuf>,
    /// The name in the certificate of the server, if it is not the host of the URL
    #[arg(long, value_name = "NAME", env = "LOCK_SERVER_NAME", global = true)]
    pub(crate) tls_name: Option<String>,
    /// Does not check the certificate of the server: for tests
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
    /// Uses a server that says a version before 6.2: for compatible servers
    #[arg(long, global = true)]
    pub(crate) any_version: bool,
    /// The user of the sentinels
    #[arg(long, value_name = "NAME", env = "LOCK_SENTINEL_USER", global = true)]
    pub(crate) sentinel_user: Option<String>,
    /// The password of the sentinels
    #[arg(
        long,
        value_name = "PASSWORD",
        env = "LOCK_SENTINEL_PASSWORD",
        hide_env_values = true,
        global = true
    )]
    pub(crate) sentinel_password: Option<String>,
    /// The sentinels are without TLS, and the servers with it
    #[arg(long, global = true)]
    pub(crate) plain_sentinels: bool,
}

/// What `run` starts lockctl as: no commands of users, so that no help, page or completion names them.
#[derive(Debug, Parser)]
#[command(name = "lockctl")]
pub(crate) enum Part {
    /// The parent of the command of `run`
    RunKeeper(RunKeeper),
    /// What becomes the command of `run`
    RunStart(RunStart),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a command while it holds a lock
    ///
    /// The command ends before the lease does: if the lease is not renewed in time, or lockctl dies, it gets SIGTERM and then SIGKILL. If
    /// another client takes the lock, it gets them at once. This counts for the process group of the command. What the command leaves
    /// behind when it ends by itself goes on without the lock.
    ///
    /// The environment of the command has `LOCK_KEY` and `LOCK_FENCING_TOKEN`. SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are
    /// passed on to it. In a terminal, Ctrl-Z stops both; if they are stopped for too long, the lease ends, and the command is killed.
    Run(Run),
    /// Lists the held locks
    Ls(Ls),
    /// The held locks, live in the terminal
    Top(Top),
    /// Shows a lock: its holder or holders, its permits, its waiters, its votes
    Inspect(Inspect),
    /// Takes a lock from its holder, and notifies the holder at once; a semaphore or a read-write lock from all holders
    Unlock(Unlock),
    /// Changes the number of permits of a semaphore, for all processes
    Resize(Resize),
    /// Waits until a lock is free, without acquiring it
    Wait(Wait),
    /// Begins a quorum, or shows its nodes
    #[command(subcommand)]
    Quorum(Quorum),
    /// Prints completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Prints the page for `man`
    Man,
    /// Examines the server: what may cost locks, and what to do about it
    Doctor(Doctor),
}

/// A lock by its key.
#[derive(Debug, Args)]
pub(crate) struct OfLock {
    /// The key of the lock, without the prefix
    pub(crate) key: String,
    /// A reentrant lock: its key has no prefix
    #[arg(long)]
    pub(crate) reentrant: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only keys of this form, as `order:*`
    #[arg(value_parser = pattern)]
    pub(crate) pattern: Option<Pattern>,
    /// One JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

/// `**` is `*`: a key has no folders.
fn pattern(text: &str) -> Result<Pattern, PatternError> {
    let mut text = text.to_owned();
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    Pattern::new(&text)
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The time between two looks at the server
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    pub(crate) every: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) lock: OfLock,
    /// An election: shows the value and the term of its leader
    #[arg(long, conflicts_with = "reentrant")]
    pub(crate) election: bool,
    /// A latch of this count: shows how many ids are left
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["reentrant", "election"])]
    pub(crate) latch: Option<u32>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Unlock {
    #[command(flatten)]
    pub(crate) lock: OfLock,
    /// Does not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Resize {
    /// The key of the semaphore, without the prefix
    pub(crate) key: String,
    /// The number of permits that it has
    pub(crate) from: u32,
    /// The number of permits that it gets
    pub(crate) to: u32,
    /// Does not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Quorum {
    /// Begins a new quorum, once, before its first lock: from then on its nodes vote
    Begin {
        /// The nodes, as `redis://a`. Default: those of the URL
        nodes: Vec<String>,
        /// Replaces what the nodes have: only while no program runs and no lock is held
        #[arg(long)]
        anew: bool,
        /// Does not ask before `--anew`
        #[arg(long, short)]
        yes: bool,
    },
    /// Shows for each node whether it votes, and how far its clock is ahead
    Status {
        /// The nodes, as `redis://a`. Default: those of the URL
        nodes: Vec<String>,
        /// One JSON array
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// One JSON array
    #[arg(long)]
    pub(crate) json: bool,
    /// How many locks to take and give back, to measure the latency
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) rounds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    #[command(flatten)]
    pub(crate) lock: OfLock,
    /// How long to wait, also for a server that is away at the start. Default: without limit, and not for such a server
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) lock: OfLock,
    #[command(flatten)]
    pub(crate) limits: Limits,
    /// How long to wait for the lock, and before that for a server that is away; `0s` tries once. Default: without limit for the
    /// lock, and not for the server
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// What happens to the command when the lock is lost
    #[arg(long, value_enum, default_value_t)]
    pub(crate) on_lost: OnLost,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum OnLost {
    /// It is ended
    #[default]
    Kill,
    /// It goes on, and a line on stderr says so
    Warn,
}

#[derive(Debug, Args)]
pub(crate) struct RunKeeper {
    #[command(flatten)]
    pub(crate) limits: Limits,
    #[arg(long, value_enum, default_value_t)]
    pub(crate) on_lost: OnLost,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct RunStart {
    /// The process ends when its parent does
    #[arg(long)]
    pub(crate) with_parent: bool,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}
