//! The number of the wire format. The first client of a server writes it there, and each client compares it at each connection:
//! clients of different formats would hold one lock at one time, or leave each other's waiters asleep.

use once_cell::sync::Lazy;
use redis::{RedisResult, from_redis_value};

use super::error::misconfigured;
use super::script::{Script, script};
use super::socket::Socket;
use super::target::Target;
use super::wire::{Arg, Name};

/// `CONTRIBUTING.md` says what changes it. The cfg is that of the second build in the tests.
const FORMAT: u64 = if cfg!(lock_next_format) { 2 } else { 1 };

static COMPARE: Lazy<Script> = script!("format", "format.lua");

/// An error if other clients of this server use another format. In a cluster each master has a number, behind a tag in one of its
/// slots. No answer proves nothing, and neither does a refusal.
pub(super) async fn compare(
    target: &Target,
    socket: &Socket,
    in_cluster: Option<&str>,
) -> RedisResult<()> {
    let key = match in_cluster {
        Some(tag) => Name([&target.namespace, "lock-core:format:", tag]),
        None => Name::ours(&target.namespace, "lock-core:format"),
    };
    let compare = COMPARE.by_text(&[key], &[Arg::Number(FORMAT)]);
    let answer = socket.clone().request(&compare).await;
    let answer = answer.and_then(redis::Value::extract_error);
    let Ok(known) = answer.and_then(|known| Ok(from_redis_value::<String>(known)?)) else {
        return Ok(());
    };
    let at = &target.address;
    match known.parse::<u64>() {
        Ok(FORMAT) => Ok(()),
        Ok(newer) if newer > FORMAT => Err(misconfigured(format!(
            "the locks on the server at {at} have format {newer}, and this program knows format {FORMAT}: build it with the version \
             of lock-core that the other programs use"
        ))),
        _ => Err(misconfigured(format!(
            "the locks on the server at {at} have format {}, and this program writes format {FORMAT}: stop all programs with an older \
             lock-core, then `SET {key} {FORMAT}`",
            known.chars().take(20).collect::<String>().escape_debug()
        ))),
    }
}
