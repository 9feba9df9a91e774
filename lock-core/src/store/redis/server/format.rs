//! The number of the wire format. The first client of a server writes it there, and each client compares it at each connection:
//! clients of different formats would hold one lock at one time, or leave each other's waiters asleep. In a cluster one master has it.
//! The nodes of a quorum have a number of their own, in their notes.

use once_cell::sync::Lazy;
use redis::{RedisError, RedisResult, Value, from_redis_value};

use super::look::lacks;
use crate::store::redis::connection::Connection;
use crate::store::redis::connection::target::Target;
use crate::store::redis::error::{is_about_keys, misconfigured, said};
use crate::store::redis::script::{Script, script};
use crate::store::redis::wire::{Arg, Name};

/// `CONTRIBUTING.md` says what changes it. The cfg is that of the second build in the tests.
const FORMAT: u64 = if cfg!(lock_next_format) { 2 } else { 1 };

static COMPARE: Lazy<Script> = script!("format", "format.lua");

/// An error if other clients of this server use another format. A first connection needs an answer.
pub(in crate::store::redis) async fn compare(
    target: &Target,
    connection: &Connection,
    is_first: bool,
) -> RedisResult<()> {
    let key = Name::ours(&target.namespace, "lock-core:format");
    let compare = COMPARE.by_text(&[key], &[Arg::Number(FORMAT)]);
    let answer = connection.request(&compare).await;
    let known = match answer.and_then(Value::extract_error) {
        Ok(known) => from_redis_value(known).unwrap_or_default(),
        Err(error) if said(&error).contains("WRONGTYPE") => String::new(),
        Err(error) if is_about_keys(&said(&error)) => return Err(lacks(target, &["~"])),
        Err(error) if is_first && !is_elsewhere(&error) => return Err(error),
        Err(_) => return Ok(()),
    };
    let database = match target.info.redis_settings().db() {
        0 => String::new(),
        number => format!(" in database {number}"),
    };
    match differs(&known, FORMAT, &format!("`SET {key} {FORMAT}`{database}")) {
        None => Ok(()),
        Some(why) => Err(misconfigured(format!(
            "the locks on the server at {}{database} have {why}",
            target.address
        ))),
    }
}

/// Another master of the cluster has the number, or the user may not run a command: the look at the server names it if locks need it.
fn is_elsewhere(error: &RedisError) -> bool {
    let of_script = [
        "can't run this command",
        "permissions to run",
        "Unknown Redis",
    ];
    let said = said(error);
    error.code() == Some("MOVED") || of_script.iter().any(|words| said.contains(words))
}

/// Why a client of the format `ours` cannot use locks of this format, and what to do. `begin` is what begins ours.
pub(in crate::store) fn differs(known: &str, ours: u64, begin: &str) -> Option<String> {
    match known.parse::<u64>() {
        Ok(known) if known == ours => None,
        Ok(newer) if newer > ours => Some(format!(
            "format {newer}, and this program knows format {ours}: build it with the version of lock-core of the other programs, or stop \
             those, then {begin}"
        )),
        older => {
            let older = older.map_or("an unknown format".to_owned(), |n| format!("format {n}"));
            Some(format!(
                "{older}, and this program writes format {ours}: stop all programs with an older lock-core, then {begin}"
            ))
        }
    }
}
