//! The commands about the server and its clients.

use crate::commands::{Action, Command, ServerCommand};
use crate::number;
use crate::pubsub::Channels;
use crate::reply::{Answer, NO_INTEGER, Protocol, Refusal, Reply, SYNTAX, wrong_arity};
use crate::state::{Caller, State};

const VERSION: &str = "7.0.15";

/// The name of a command with the subcommand that was asked for.
pub(crate) fn full_name(command: &Command, words: &[&[u8]]) -> String {
    let has_subcommands = matches!(
        command.action,
        Action::Server(ServerCommand::Client | ServerCommand::Config) | Action::Script(_)
    ) && !command.name.starts_with("eval");
    match words.get(1).filter(|_| has_subcommands) {
        None => command.name.to_owned(),
        Some(word) => {
            let sub = String::from_utf8_lossy(word).to_ascii_lowercase();
            format!("{}|{sub}", command.name)
        }
    }
}

/// The error for a subcommand that there is not.
pub(crate) fn unknown_subcommand(command: &str, word: &[u8]) -> Refusal {
    let word = String::from_utf8_lossy(word);
    format!("ERR unknown subcommand '{word}'. Try {command} HELP.").into()
}

impl State {
    pub(crate) fn serve(
        &mut self,
        command: ServerCommand,
        words: &[&[u8]],
        caller: Caller,
    ) -> Answer {
        match command {
            ServerCommand::Publish => Ok(Reply::count(self.publish("message", words[1], words[2]))),
            ServerCommand::ShardPublish => {
                Ok(Reply::count(self.publish("smessage", words[1], words[2])))
            }
            ServerCommand::Ping => self.ping(words, caller),
            ServerCommand::Echo => Ok(Reply::bulk(words[1])),
            ServerCommand::Select => match number::parse(words[1]) {
                Some(0) => Ok(Reply::OK),
                Some(_) => Err("ERR DB index is out of range".into()),
                None => Err(NO_INTEGER),
            },
            ServerCommand::Info => Ok(Reply::Verbatim(self.info(&words[1..]))),
            ServerCommand::Role => Ok(self.role()),
            ServerCommand::Config => config(words),
            ServerCommand::Auth => auth(&words[1..]).map(|()| Reply::OK),
            ServerCommand::Hello => self.hello(words, caller),
            ServerCommand::Client => self.client(words, caller),
            ServerCommand::Quit => {
                if let Some(connection) = self.connection(caller) {
                    connection.closing = true;
                }
                Ok(Reply::OK)
            }
            ServerCommand::Reset => {
                if let Caller::Connection(id) = caller {
                    self.channels.forget(id);
                    self.shard_channels.forget(id);
                }
                if let Some(connection) = self.connection(caller) {
                    connection.protocol = Protocol::Resp2;
                    connection.name.clear();
                }
                Ok(Reply::Status("RESET".into()))
            }
            ServerCommand::Subscribe => self.subscribe("subscribe", words, caller),
            ServerCommand::ShardSubscribe => self.subscribe("ssubscribe", words, caller),
            ServerCommand::Unsubscribe => self.unsubscribe("unsubscribe", words, caller),
            ServerCommand::ShardUnsubscribe => self.unsubscribe("sunsubscribe", words, caller),
        }
    }

    fn connection(&mut self, caller: Caller) -> Option<&mut crate::connections::Connection> {
        match caller {
            Caller::Connection(id) => self.connections.get_mut(id),
            Caller::Foreign | Caller::Script => None,
        }
    }

    fn ping(&mut self, words: &[&[u8]], caller: Caller) -> Answer {
        if words.len() > 2 {
            return Err(wrong_arity("ping"));
        }
        if let Caller::Connection(id) = caller
            && self.is_confined(id)
        {
            let word = words.get(1).copied().unwrap_or_default();
            return Ok(Reply::Array(vec![Reply::bulk("pong"), Reply::bulk(word)]));
        }
        Ok(words
            .get(1)
            .map_or(Reply::Status("PONG".into()), Reply::bulk))
    }

    fn hello(&mut self, words: &[&[u8]], caller: Caller) -> Answer {
        let protocol = match words.get(1).map(|word| number::parse(word)) {
            None => None,
            Some(None) => {
                return Err("ERR Protocol version is not an integer or out of range".into());
            }
            Some(Some(2)) => Some(Protocol::Resp2),
            Some(Some(3)) => Some(Protocol::Resp3),
            Some(Some(_)) => return Err("NOPROTO unsupported protocol version".into()),
        };
        let mut rest = words.get(2..).unwrap_or_default();
        loop {
            rest = match rest {
                [] => break,
                [option, user, password, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    auth(&[user, password])?;
                    rest
                }
                [option, name, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    self.set_name(name, caller)?;
                    rest
                }
                [option, ..] => {
                    let option = String::from_utf8_lossy(option);
                    return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
                }
            };
        }
        let role = if self.faults.read_only {
            "replica"
        } else {
            "master"
        };
        let (mut number, mut now) = (0, Protocol::Resp2);
        if let Some(connection) = self.connection(caller) {
            connection.protocol = protocol.unwrap_or(connection.protocol);
            (number, now) = (connection.number, connection.protocol);
        }
        let proto = if now == Protocol::Resp3 { 3 } else { 2 };
        let pair = |name: &str, value| (Reply::bulk(name), value);
        Ok(Reply::Map(vec![
            pair("server", Reply::bulk("redis")),
            pair("version", Reply::bulk(VERSION)),
            pair("proto", Reply::Int(proto)),
            pair("id", Reply::Int(number)),
            pair("mode", Reply::bulk("standalone")),
            pair("role", Reply::bulk(role)),
            pair("modules", Reply::Array(Vec::new())),
        ]))
    }

    fn set_name(&mut self, name: &[u8], caller: Caller) -> Result<(), Refusal> {
        if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
            let why = "ERR Client names cannot contain spaces, newlines or special characters.";
            return Err(why.into());
        }
        if let Some(connection) = self.connection(caller) {
            connection.name = name.to_vec();
        }
        Ok(())
    }

    fn client(&mut self, words: &[&[u8]], caller: Caller) -> Answer {
        let sub = words[1].to_ascii_lowercase();
        let (arity, name) = match &*sub {
            b"id" => (2, "client|id"),
            b"getname" => (2, "client|getname"),
            b"setname" => (3, "client|setname"),
            _ => return Err(unknown_subcommand("CLIENT", words[1])),
        };
        if words.len() != arity {
            return Err(wrong_arity(name));
        }
        if arity == 3 {
            return self.set_name(words[2], caller).map(|()| Reply::OK);
        }
        let connection = self.connection(caller);
        Ok(match &*sub {
            b"id" => Reply::Int(connection.map_or(0, |connection| connection.number)),
            _ => connection
                .filter(|connection| !connection.name.is_empty())
                .map_or(Reply::Nil, |connection| Reply::bulk(&connection.name)),
        })
    }

    fn role(&self) -> Reply {
        if self.faults.read_only {
            let parts = [Reply::bulk("slave"), Reply::bulk("127.0.0.1")];
            let rest = [Reply::Int(0), Reply::bulk("connect"), Reply::Int(-1)];
            return Reply::Array(parts.into_iter().chain(rest).collect());
        }
        Reply::Array(vec![
            Reply::bulk("master"),
            Reply::Int(0),
            Reply::Array(Vec::new()),
        ])
    }

    /// The sections that clients read, and of those the lines that they read.
    fn info(&self, sections: &[&[u8]]) -> String {
        let wants = |name: &str| {
            let all = ["default", "all", "everything"];
            sections.is_empty()
                || sections.iter().any(|section| {
                    let section = String::from_utf8_lossy(section).to_ascii_lowercase();
                    section == name || all.contains(&&*section)
                })
        };
        let mut parts = Vec::new();
        if wants("server") {
            let uptime = self
                .keyspace
                .now_micros()
                .saturating_sub(self.run.since_micros);
            parts.push(format!(
                "# Server\r\nredis_version:{VERSION}\r\nredis_mode:standalone\r\nrun_id:{}\r\nuptime_in_seconds:{}\r\n",
                self.run.id,
                uptime / 1_000_000
            ));
        }
        if wants("clients") {
            parts.push(format!(
                "# Clients\r\nconnected_clients:{}\r\n",
                self.connections.len()
            ));
        }
        if wants("replication") {
            let role = if self.faults.read_only {
                "slave"
            } else {
                "master"
            };
            parts.push(format!(
                "# Replication\r\nrole:{role}\r\nconnected_slaves:0\r\n"
            ));
        }
        if wants("keyspace") {
            let keys = self.keyspace.len();
            let line = if keys == 0 {
                String::new()
            } else {
                format!("db0:keys={keys}\r\n")
            };
            parts.push(format!("# Keyspace\r\n{line}"));
        }
        parts.join("\r\n")
    }

    fn channels(&mut self, command: &str) -> &mut Channels {
        if command.starts_with('s') && command != "subscribe" {
            &mut self.shard_channels
        } else {
            &mut self.channels
        }
    }

    /// Each channel is confirmed at once.
    fn subscribe(&mut self, command: &str, words: &[&[u8]], caller: Caller) -> Answer {
        let Caller::Connection(id) = caller else {
            return Err("ERR only a connection can subscribe".into());
        };
        let confirm = |channel: &&[u8]| {
            let channels = self.channels(command);
            channels.join(id, channel);
            let count = Reply::count(channels.count(id));
            Reply::Push(vec![Reply::bulk(command), Reply::bulk(channel), count])
        };
        Ok(Reply::Frames(words[1..].iter().map(confirm).collect()))
    }

    fn unsubscribe(&mut self, command: &str, words: &[&[u8]], caller: Caller) -> Answer {
        let Caller::Connection(id) = caller else {
            return Err("ERR only a connection can unsubscribe".into());
        };
        let channels = self.channels(command);
        let named: Vec<_> = match &words[1..] {
            [] => channels.channels(id),
            named => named.iter().map(|channel| channel.to_vec()).collect(),
        };
        let confirm = |channel, count| Reply::Push(vec![Reply::bulk(command), channel, count]);
        if named.is_empty() {
            let count = Reply::count(channels.count(id));
            return Ok(Reply::Frames(vec![confirm(Reply::Nil, count)]));
        }
        let leave = |channel: Vec<u8>| {
            channels.leave(id, &channel);
            confirm(Reply::Bulk(channel), Reply::count(channels.count(id)))
        };
        Ok(Reply::Frames(named.into_iter().map(leave).collect()))
    }
}

/// The server has one user, without a password: any will do.
fn auth(words: &[&[u8]]) -> Result<(), Refusal> {
    match words {
        [b"default", _] => Ok(()),
        [_] => Err("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?".into()),
        [_, _] => Err("WRONGPASS invalid username-password pair or user is disabled.".into()),
        _ => Err(SYNTAX),
    }
}

/// What clients ask about the settings. Nothing can be set.
fn config(words: &[&[u8]]) -> Answer {
    if !words[1].eq_ignore_ascii_case(b"GET") {
        return Err(unknown_subcommand("CONFIG", words[1]));
    }
    if words.len() < 3 {
        return Err(wrong_arity("config|get"));
    }
    let known = [
        ("appendonly", "no"),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("save", ""),
    ];
    let asked = |name: &str| {
        words[2..]
            .iter()
            .any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let pairs = known.iter().filter(|(name, _)| asked(name));
    Ok(Reply::Map(
        pairs
            .map(|(name, value)| (Reply::bulk(name), Reply::bulk(value)))
            .collect(),
    ))
}
