//! Everything a server knows, but for its scripts.

use std::fmt::Write;

use crate::commands::{Action, COMMANDS, Command};
use crate::connections::Connections;
use crate::faults::Faults;
use crate::keyspace::Keyspace;
use crate::pubsub::Channels;
use crate::reply::{Answer, Refusal, Reply, wrong_arity};
use crate::{ConnectionId, admin};

/// What scripts and clients work on.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) keyspace: Keyspace,
    pub(crate) faults: Faults,
    pub(crate) connections: Connections,
    pub(crate) channels: Channels,
    pub(crate) shard_channels: Channels,
    pub(crate) run: Run,
    pub(crate) counts: Counts,
    pub(crate) script: RunningScript,
}

/// The run of the server program.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) since_micros: u64,
}

/// How often each command ran, by its place in the table.
#[derive(Debug)]
pub(crate) struct Counts([u64; COMMANDS]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; COMMANDS])
    }
}

impl Counts {
    pub(crate) fn of(&self, name: &str) -> u64 {
        Command::find(name.as_bytes()).map_or(0, |(place, _)| self.0[place])
    }
}

/// What a script has done so far.
#[derive(Debug, Default)]
pub(crate) struct RunningScript {
    /// After the first write nothing is refused any more: a script cannot be rolled back.
    has_written: bool,
    out_of_memory: bool,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Connection(ConnectionId),
    /// A client outside the simulation.
    Foreign,
    Script,
}

const OUT_OF_MEMORY: Refusal =
    Refusal::Borrowed("OOM command not allowed when used memory > 'maxmemory'.");
const READ_ONLY: Refusal =
    Refusal::Borrowed("READONLY You can't write against a read only replica.");

impl State {
    /// The command that the words name, where the caller may run it now.
    pub(crate) fn admit(
        &mut self,
        words: &[&[u8]],
        caller: Caller,
    ) -> Result<&'static Command, Refusal> {
        let (place, command) = Command::find(words[0]).ok_or_else(|| unknown(words))?;
        if !command.takes(words.len()) {
            return Err(wrong_arity(command.name));
        }
        if self.faults.denies(command.name) {
            let name = admin::full_name(command, words);
            let why = format!("NOPERM this user has no permissions to run the '{name}' command");
            return Err(why.into());
        }
        if matches!(command.action, Action::Script(_)) && self.faults.denies_a_key(words) {
            return Err(
                "NOPERM this user has no permissions to access one of the keys used as arguments"
                    .into(),
            );
        }
        if self.faults.no_channels && command.names_channels() {
            let why = "NOPERM this user has no permissions to access one of the channels used as arguments";
            return Err(why.into());
        }
        if self.faults.out_of_memory && command.grows() {
            return Err(OUT_OF_MEMORY);
        }
        if self.faults.read_only && command.writes() {
            return Err(READ_ONLY);
        }
        if !command.is_for_subscribers()
            && let Caller::Connection(id) = caller
            && self.is_confined(id)
        {
            let name = admin::full_name(command, words);
            let rest = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
            return Err(format!("ERR Can't execute '{name}': {rest}").into());
        }
        self.counts.0[place] += 1;
        Ok(command)
    }

    /// A script begins.
    pub(crate) fn begin_script(&mut self) {
        self.script = RunningScript {
            has_written: false,
            out_of_memory: self.faults.out_of_memory,
        };
    }

    /// Runs a command of a script.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> Answer {
        let (place, command) =
            Command::find(words[0]).ok_or("ERR Unknown Redis command called from script")?;
        if !command.takes(words.len()) {
            return Err("ERR Wrong number of args calling Redis command from script".into());
        }
        if !command.is_for_scripts() {
            return Err("ERR This Redis command is not allowed from script".into());
        }
        if self.faults.denies(command.name) {
            let why = "ERR The user executing the script can't run this command or subcommand";
            return Err(why.into());
        }
        if self.faults.no_channels && command.names_channels() {
            let why = "ERR The user executing the script can't access at least one of the channels mentioned in the command arguments";
            return Err(why.into());
        }
        if !self.script.has_written {
            if command.writes() && self.faults.read_only {
                return Err(READ_ONLY);
            }
            if command.grows() && self.script.out_of_memory {
                return Err(OUT_OF_MEMORY);
            }
        }
        self.script.has_written |= command.writes();
        self.counts.0[place] += 1;
        self.run_command(command, words, Caller::Script)
    }

    /// Runs a command that is no script.
    pub(crate) fn run_command(
        &mut self,
        command: &Command,
        words: &[&[u8]],
        caller: Caller,
    ) -> Answer {
        match command.action {
            Action::Data(run) => run(&mut self.keyspace, words),
            Action::Server(which) => self.serve(which, words, caller),
            Action::Script(_) => Err("ERR This Redis command is not allowed from script".into()),
        }
    }

    /// Whether a client of the second protocol is subscribed, and may do little else.
    pub(crate) fn is_confined(&self, id: ConnectionId) -> bool {
        let connection = self.connections.get(id);
        connection.is_some_and(|connection| connection.protocol == crate::reply::Protocol::Resp2)
            && self.channels.count(id) + self.shard_channels.count(id) > 0
    }

    /// Tells all who listen; how many those are.
    pub(crate) fn publish(&mut self, kind: &str, channel: &[u8], message: &[u8]) -> usize {
        let channels = if kind == "message" {
            &self.channels
        } else {
            &self.shard_channels
        };
        let listeners = channels.listeners(channel);
        if listeners.is_empty() {
            return 0;
        }
        let words = [kind.as_bytes(), channel, message];
        let push = Reply::Push(words.map(Reply::bulk).into());
        for id in listeners {
            self.connections.write(*id, &push);
        }
        listeners.len()
    }

    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.connections.remove(id);
        self.channels.forget(id);
        self.shard_channels.forget(id);
    }
}

/// As the server says it, with the first words of what came.
fn unknown(words: &[&[u8]]) -> Refusal {
    let mut args = String::new();
    for word in &words[1..] {
        if args.len() >= 128 {
            break;
        }
        let word = &word[..word.len().min(128 - args.len())];
        // To memory: it does not fail.
        let _ = write!(args, "'{}' ", String::from_utf8_lossy(word));
    }
    let name = &words[0][..words[0].len().min(128)];
    let name = String::from_utf8_lossy(name);
    format!("ERR unknown command '{name}', with args beginning with: {args}").into()
}
