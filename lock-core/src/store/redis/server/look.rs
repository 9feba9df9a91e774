//! A look at the server of the first connection: whether it can hold locks at all. It costs no round trip of its own, unless
//! something is wrong.
//!
//! It refuses only what would fail later. The mode and the role are known from the reply to HELLO, which the connection has
//! seen, or from INFO. One script tries the commands of the locks. What is not answered, or refused for another reason, proves nothing.

use std::collections::HashMap;

use futures_util::future::join4;
use once_cell::sync::Lazy;
use redis::{Cmd, RedisError, RedisResult, Value, cmd, from_redis_value};

use crate::base::error::A_REPLICA;
use crate::store::redis::connection::Connection;
use crate::store::redis::connection::target::Target;
use crate::store::redis::error::{advised, misconfigured};
use crate::store::redis::reply::text;
use crate::store::redis::script::{Script, script};
use crate::store::redis::wire::{Arg, beginning_with};

/// The commands of a lock. A user who may not run the script that tries them is told all of them.
const ALL: &str = "eval evalsha exists get set incr del type pttl pexpire time llen lindex lpop rpush lrem hset hdel hlen hmget hgetall publish subscribe unsubscribe";

static PROBE: Lazy<Script> = script!("probe", "probe.lua");

/// The first version of Redis that has all commands of the locks, and the first that has sharded channels. Valkey counts on from
/// Redis 7.
const MINIMUM: (u32, u32) = (6, 2);
const SHARDED: (u32, u32) = (7, 0);

/// In front of the advice to write a URL that this build refuses.
const FOR_CLUSTER: &str = if cfg!(feature = "cluster") {
    ""
} else {
    "enable the feature `cluster` of lock-core, "
};
const FOR_SENTINELS: &str = if cfg!(feature = "sentinel") {
    ""
} else {
    "enable the feature `sentinel` of lock-core, "
};

/// A look at the server behind a new connection.
pub(in crate::store::redis) struct Look<'a> {
    pub(in crate::store::redis) target: &'a Target,
    pub(in crate::store::redis) connection: &'a Connection,
    /// A tag in a slot of the server, if a master of a cluster is meant.
    pub(in crate::store::redis) in_cluster: Option<&'static str>,
}

impl Look<'_> {
    /// Host and port.
    fn at(&self) -> &str {
        &self.target.address
    }

    /// An error if no lock can work with this server.
    pub(in crate::store::redis) async fn look(&self) -> RedisResult<()> {
        let (info, mut hash) = (cmd("INFO"), cmd("EVALSHA"));
        hash.arg(&PROBE.hash).arg(0);
        let names = [&self.target.namespace, &self.target.prefix];
        let mut args: Vec<_> = names.map(|name| Arg::Text(name)).into();
        args.extend(self.in_cluster.map(Arg::Text));
        let probe = PROBE.by_text(&[], &args);
        let asked = (self.ask(&probe), self.ask(&hash), self.ask(&info));
        // First, since the next command spends it.
        let (asking, refused, by_hash, info) =
            join4(self.asking(), asked.0, asked.1, asked.2).await;
        let info = info.and_then(|info| Ok(from_redis_value::<String>(info)?));
        let (hello, info) = (self.connection.greeted(), info.unwrap_or_default());
        let told = |name, in_info| text(hello.get(name)).or_else(|| field(&info, in_info));
        self.check_kind(told("mode", "redis_mode")).await?;
        if let Some(version) = told("version", "redis_version").filter(|it| is_before(it, MINIMUM))
            && !self.target.any_version
        {
            return Err(misconfigured(format!(
                "the server at {} has version {version}, and locks need Redis 6.2 or later, or Valkey: upgrade the server, or use \
                 `any_version` if it is another server that has the commands of Redis 6.2",
                self.at()
            )));
        }
        if matches!(told("role", "role"), Some("replica" | "slave")) {
            return Err(is_replica(&info));
        }
        let mut missing = match refused {
            Ok(refused) => from_redis_value::<Vec<String>>(refused).unwrap_or_default(),
            Err(error) if is_no_right(&error) => ALL.split(' ').map(str::to_owned).collect(),
            Err(error) if proves(&error) => return Err(error),
            Err(_) => Vec::new(),
        };
        match by_hash {
            Err(error) if is_no_right(&error) && !missing.iter().any(|it| it == "evalsha") => {
                missing.push("evalsha".to_owned());
            }
            Err(error) if proves(&error) => return Err(error),
            _ => {}
        }
        if let Err(error) = asking
            && is_no_right(&error)
        {
            missing.push("asking".to_owned());
        }
        if let Some(at) = missing.iter().position(|word| word == "%") {
            missing.remove(at);
            self.warn_of_prefix();
        }
        if !missing.is_empty() {
            let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
            return Err(lacks(self.target, &missing));
        }
        self.check_memory(&info);
        Ok(())
    }

    /// Whether a lock can be on a server of this kind.
    async fn check_kind(&self, mode: Option<&str>) -> RedisResult<()> {
        match mode {
            Some("sentinel") => Err(self.is_sentinel().await),
            Some("cluster") if self.in_cluster.is_none() => {
                Err(misconfigured(is_of_a_cluster(self.at())))
            }
            Some("standalone") if self.in_cluster.is_some() => Err(misconfigured(format!(
                "the server at {} is no node of a cluster: write `redis://{}`",
                self.at(),
                self.at()
            ))),
            _ => Ok(()),
        }
    }

    /// The command in front of a request for a slot that moves.
    async fn asking(&self) -> RedisResult<Value> {
        match self.in_cluster {
            Some(_) => self.ask(&cmd("ASKING")).await,
            None => Ok(Value::Nil),
        }
    }

    async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        self.connection.request(command).await?.extract_error()
    }

    async fn is_sentinel(&self) -> RedisError {
        let mut masters = cmd("SENTINEL");
        masters.arg("MASTERS");
        let masters = self.ask(&masters).await;
        let masters: Vec<HashMap<String, String>> = masters
            .and_then(|masters| Ok(from_redis_value(masters)?))
            .unwrap_or_default();
        let at = self.at();
        let names = masters.iter().filter_map(|master| master.get("name"));
        let urls: Vec<_> = names
            .map(|name| format!("`redis+sentinel://{at}/{name}`"))
            .collect();
        let instead = match &urls[..] {
            [] => "`redis+sentinel://s1,s2,s3/name`, with the name of a master that it knows"
                .to_owned(),
            urls => urls.join(" or "),
        };
        misconfigured(is_no_server(at, &instead))
    }

    /// The patterns of the user may be narrower than the prefix, and cover its locks.
    fn warn_of_prefix(&self) {
        let (user, prefix) = (self.target.user(), beginning_with(&self.target.prefix));
        tracing::warn!(
            server = self.at(),
            user,
            prefix,
            "the user may not write every key with the prefix of the locks: a lock outside of its patterns is refused"
        );
    }

    fn check_memory(&self, info: &str) {
        let limited = field(info, "maxmemory").is_some_and(|limit| limit != "0");
        if let Some(policy) =
            field(info, "maxmemory_policy").filter(|policy| limited && *policy != "noeviction")
        {
            tracing::warn!(
                server = self.at(),
                "the server deletes keys when its memory is full (maxmemory-policy {policy}), and a lock that is deleted is lost: \
                 set maxmemory-policy to noeviction"
            );
        }
    }
}

fn is_of_a_cluster(at: &str) -> String {
    format!(
        "the server at {at} is a node of a cluster: {FOR_CLUSTER}write `redis+cluster://{at}`, and name other nodes as well"
    )
}

fn is_no_server(at: &str, instead: &str) -> String {
    format!(
        "the server at {at} is a Sentinel, which holds no locks: {FOR_SENTINELS}write {instead}, and name the other sentinels as well"
    )
}

/// Whether the server has sharded channels.
pub(in crate::store::redis) fn has_sharded_channels(connection: &Connection) -> bool {
    let hello = connection.greeted();
    text(hello.get("version")).is_some_and(|version| !is_before(version, SHARDED))
}

fn is_replica(info: &str) -> RedisError {
    let master = field(info, "master_host").zip(field(info, "master_port"));
    let of = master.map_or_else(String::new, |(host, port)| format!(" of {host}:{port}"));
    let why = format!("it is a replica{of}, and only a master holds locks");
    // It may be promoted: trying again may help.
    advised(why, A_REPLICA)
}

/// A version that cannot be read proves nothing.
fn is_before(version: &str, first: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < first,
        _ => false,
    }
}

/// The error of a user that lacks these rights: commands, `?` and a command that the server does not know, `~` for our keys.
pub(in crate::store::redis) fn lacks(target: &Target, missing: &[&str]) -> RedisError {
    let user = &*target.user();
    let at = &target.address;
    let (unknown, known): (Vec<&str>, Vec<&str>) =
        missing.iter().partition(|word| word.starts_with('?'));
    let (keys, commands): (Vec<&str>, Vec<&str>) = known.iter().partition(|word| **word == "~");
    let line = commands.iter().map(|command| format!("+{command}"));
    let (mut what, mut line) = (Vec::new(), line.collect::<Vec<_>>());
    if !keys.is_empty() {
        what.push(format!("may not use the keys `{}`", ours(target)));
        line.insert(0, format!("~{}", ours(target)));
    }
    if !commands.is_empty() {
        what.push(format!("may not run {}", commands.join(", ")));
    }
    let mut sentences = Vec::new();
    if !unknown.is_empty() {
        let unknown = unknown.join(", ").replace('?', "");
        sentences.push(format!(
            "the server at {at} does not know {unknown}, which locks need: it was renamed or disabled (`rename-command` in its settings)"
        ));
    }
    if !what.is_empty() {
        sentences.push(format!(
            "the user `{user}` of the server at {at} {}, which locks need: an administrator permits it with `ACL SETUSER {user} {}`",
            what.join(" and "),
            line.join(" ")
        ));
    }
    misconfigured(sentences.join("; "))
}

/// What to do about a refused subscription, if the user may not use our channels.
pub(in crate::store::redis) fn lacks_channels(
    target: &Target,
    refused: &RedisError,
) -> Option<String> {
    let detail = refused.detail().unwrap_or_default();
    let is_of_channels = refused.code() == Some("NOPERM") && detail.contains("channel");
    let (user, channels) = (target.user(), ours(target));
    is_of_channels.then(|| {
        format!(
            "the user `{user}` may not use the channels `{channels}`: an administrator permits it with `ACL SETUSER {user} \
             &{channels}`"
        )
    })
}

/// The pattern of our names: in a namespace all that are in it.
fn ours(target: &Target) -> String {
    match &*target.namespace {
        "" => "lock-core:*".to_owned(),
        namespace => beginning_with(namespace),
    }
}

pub(in crate::store::redis) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = info.lines().filter_map(|line| line.trim().split_once(':'));
    fields.find_map(|(field, value)| (field == name).then_some(value))
}

pub(in crate::store::redis) fn is_no_right(error: &RedisError) -> bool {
    // A key outside the user's pattern has the same code.
    error.code() == Some("NOPERM")
        && error
            .detail()
            .is_some_and(|detail| detail.contains("permissions to run"))
}

/// Whether no lock can work with a server that answers so.
fn proves(error: &RedisError) -> bool {
    error.code() == Some("NOAUTH")
        || error
            .detail()
            .is_some_and(|detail| detail.contains("unknown command"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_before_six_point_two_is_too_old() {
        for old in ["2.8.19", "5.0.14", "6.0.16", "6.1.240"] {
            assert!(is_before(old, MINIMUM), "{old}");
        }
        for new in [
            "6.2.0",
            "6.10.0",
            "7.2.4",
            "8.0.1",
            "255.255.255",
            "",
            "x.y",
        ] {
            assert!(!is_before(new, MINIMUM), "{new}");
        }
    }

    #[test]
    #[cfg(not(feature = "cluster"))]
    fn a_node_of_a_cluster_without_its_feature_names_the_feature() {
        let expected = "the server at h is a node of a cluster: enable the feature `cluster` of lock-core, write `redis+cluster://h`, \
                        and name other nodes as well";
        assert_eq!(is_of_a_cluster("h"), expected);
    }

    #[test]
    #[cfg(not(feature = "sentinel"))]
    fn a_sentinel_without_its_feature_names_the_feature() {
        let expected = "the server at h is a Sentinel, which holds no locks: enable the feature `sentinel` of lock-core, write x, \
                        and name the other sentinels as well";
        assert_eq!(is_no_server("h", "x"), expected);
    }
}
