//! The table of commands: names, numbers of words, and what a server asks before it runs one.

use crate::keyspace::Keyspace;
use crate::reply::Answer;
use crate::{hashes, keys, lists, strings};

/// A command that a server knows.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// How many words it takes, its name included; negative where that is the least.
    arity: i32,
    flags: u8,
    pub(crate) action: Action,
}

/// Who runs a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    /// The keyspace alone.
    Data(fn(&mut Keyspace, &[&[u8]]) -> Answer),
    /// The server, which knows its clients.
    Server(ServerCommand),
    /// The interpreter of scripts.
    Script(ScriptCommand),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerCommand {
    Auth,
    Client,
    Config,
    Echo,
    Hello,
    Info,
    Ping,
    Publish,
    Quit,
    Reset,
    Role,
    Select,
    ShardPublish,
    ShardSubscribe,
    ShardUnsubscribe,
    Subscribe,
    Unsubscribe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptCommand {
    ByText,
    ByHash,
    Cache,
}

/// It changes data, or may: a replica refuses it.
const WRITE: u8 = 1;
/// It may need memory.
const GROWS: u8 = 2;
/// Not for scripts.
const NO_SCRIPT: u8 = 4;
/// It names channels.
const CHANNEL: u8 = 8;
/// Allowed to a client of the second protocol that is subscribed.
const SUBSCRIBED: u8 = 16;

impl Command {
    /// The command of this name, in either case, and its place in the table.
    pub(crate) fn find(name: &[u8]) -> Option<(usize, &'static Self)> {
        let mut lower = [0; 16];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let place = TABLE
            .binary_search_by(|command| command.name.as_bytes().cmp(lower))
            .ok()?;
        Some((place, &TABLE[place]))
    }

    pub(crate) fn takes(&self, words: usize) -> bool {
        let words = i32::try_from(words).unwrap_or(i32::MAX);
        if self.arity < 0 {
            words >= -self.arity
        } else {
            words == self.arity
        }
    }

    pub(crate) fn writes(&self) -> bool {
        self.flags & WRITE != 0
    }

    pub(crate) fn grows(&self) -> bool {
        self.flags & GROWS != 0
    }

    pub(crate) fn is_for_scripts(&self) -> bool {
        self.flags & NO_SCRIPT == 0
    }

    pub(crate) fn names_channels(&self) -> bool {
        self.flags & CHANNEL != 0
    }

    pub(crate) fn is_for_subscribers(&self) -> bool {
        self.flags & SUBSCRIBED != 0
    }
}

const fn data(
    name: &'static str,
    arity: i32,
    flags: u8,
    run: fn(&mut Keyspace, &[&[u8]]) -> Answer,
) -> Command {
    let action = Action::Data(run);
    Command {
        name,
        arity,
        flags,
        action,
    }
}

const fn server(name: &'static str, arity: i32, flags: u8, command: ServerCommand) -> Command {
    let action = Action::Server(command);
    Command {
        name,
        arity,
        flags,
        action,
    }
}

const fn script(name: &'static str, arity: i32, command: ScriptCommand) -> Command {
    let action = Action::Script(command);
    Command {
        name,
        arity,
        flags: NO_SCRIPT,
        action,
    }
}

/// How many commands there are.
pub(crate) const COMMANDS: usize = TABLE.len();

/// Sorted by name.
static TABLE: &[Command] = &[
    data("append", 3, WRITE | GROWS, strings::append),
    server("auth", -2, NO_SCRIPT, ServerCommand::Auth),
    server("client", -2, NO_SCRIPT, ServerCommand::Client),
    server("config", -2, NO_SCRIPT, ServerCommand::Config),
    data("dbsize", 1, 0, keys::dbsize),
    data("decr", 2, WRITE | GROWS, strings::decr),
    data("decrby", 3, WRITE | GROWS, strings::decrby),
    data("del", -2, WRITE, keys::del),
    server("echo", 2, 0, ServerCommand::Echo),
    script("eval", -3, ScriptCommand::ByText),
    script("evalsha", -3, ScriptCommand::ByHash),
    data("exists", -2, 0, keys::exists),
    data("expire", -3, WRITE, keys::expire),
    data("expireat", -3, WRITE, keys::expireat),
    data("flushall", -1, WRITE, keys::flush),
    data("flushdb", -1, WRITE, keys::flush),
    data("get", 2, 0, strings::get),
    data("getdel", 2, WRITE, strings::getdel),
    data("getset", 3, WRITE | GROWS, strings::getset),
    data("hdel", -3, WRITE, hashes::hdel),
    server("hello", -1, NO_SCRIPT, ServerCommand::Hello),
    data("hexists", 3, 0, hashes::hexists),
    data("hget", 3, 0, hashes::hget),
    data("hgetall", 2, 0, hashes::hgetall),
    data("hincrby", 4, WRITE | GROWS, hashes::hincrby),
    data("hkeys", 2, 0, hashes::hkeys),
    data("hlen", 2, 0, hashes::hlen),
    data("hmget", -3, 0, hashes::hmget),
    data("hmset", -4, WRITE | GROWS, hashes::hset),
    data("hset", -4, WRITE | GROWS, hashes::hset),
    data("hsetnx", 4, WRITE | GROWS, hashes::hsetnx),
    data("hstrlen", 3, 0, hashes::hstrlen),
    data("hvals", 2, 0, hashes::hvals),
    data("incr", 2, WRITE | GROWS, strings::incr),
    data("incrby", 3, WRITE | GROWS, strings::incrby),
    server("info", -1, 0, ServerCommand::Info),
    data("keys", 2, 0, keys::keys),
    data("lindex", 3, 0, lists::lindex),
    data("linsert", 5, WRITE | GROWS, lists::linsert),
    data("llen", 2, 0, lists::llen),
    data("lpop", -2, WRITE, lists::lpop),
    data("lpush", -3, WRITE | GROWS, lists::lpush),
    data("lrange", 4, 0, lists::lrange),
    data("lrem", 4, WRITE, lists::lrem),
    data("ltrim", 4, WRITE, lists::ltrim),
    data("mget", -2, 0, strings::mget),
    data("persist", 2, WRITE, keys::persist),
    data("pexpire", -3, WRITE, keys::pexpire),
    data("pexpireat", -3, WRITE, keys::pexpireat),
    server("ping", -1, SUBSCRIBED, ServerCommand::Ping),
    data("psetex", 4, WRITE | GROWS, strings::psetex),
    data("pttl", 2, 0, keys::pttl),
    server("publish", 3, CHANNEL, ServerCommand::Publish),
    server("quit", -1, NO_SCRIPT | SUBSCRIBED, ServerCommand::Quit),
    server("reset", 1, NO_SCRIPT | SUBSCRIBED, ServerCommand::Reset),
    server("role", 1, NO_SCRIPT, ServerCommand::Role),
    data("rpop", -2, WRITE, lists::rpop),
    data("rpush", -3, WRITE | GROWS, lists::rpush),
    script("script", -2, ScriptCommand::Cache),
    server("select", 2, 0, ServerCommand::Select),
    data("set", -3, WRITE | GROWS, strings::set),
    data("setex", 4, WRITE | GROWS, strings::setex),
    data("setnx", 3, WRITE | GROWS, strings::setnx),
    server("spublish", 3, CHANNEL, ServerCommand::ShardPublish),
    server(
        "ssubscribe",
        -2,
        NO_SCRIPT | CHANNEL | SUBSCRIBED,
        ServerCommand::ShardSubscribe,
    ),
    data("strlen", 2, 0, strings::strlen),
    server(
        "subscribe",
        -2,
        NO_SCRIPT | CHANNEL | SUBSCRIBED,
        ServerCommand::Subscribe,
    ),
    server(
        "sunsubscribe",
        -1,
        NO_SCRIPT | SUBSCRIBED,
        ServerCommand::ShardUnsubscribe,
    ),
    data("time", 1, 0, keys::time),
    data("ttl", 2, 0, keys::ttl),
    data("type", 2, 0, keys::kind),
    data("unlink", -2, WRITE, keys::del),
    server(
        "unsubscribe",
        -1,
        NO_SCRIPT | SUBSCRIBED,
        ServerCommand::Unsubscribe,
    ),
];

#[cfg(test)]
mod tests {
    use super::{Command, TABLE};

    #[test]
    fn every_command_is_found_by_its_name() {
        assert!(TABLE.is_sorted_by_key(|command| command.name));
        for command in TABLE {
            let upper = command.name.to_ascii_uppercase();
            let (_, found) = Command::find(upper.as_bytes()).expect(command.name);
            assert_eq!(found.name, command.name);
        }
        assert!(Command::find(b"").is_none());
        assert!(Command::find(b"a name that is far too long").is_none());
    }
}
