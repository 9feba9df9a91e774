//! A latch on a server: a hash of the ids that were counted.

use std::time::Duration;

use once_cell::sync::Lazy;
use redis::Value;

use super::error::garbled;
use super::reply::{Parsed, number, text, word};
use super::script::{Script, script};
use super::servers::RedisStore;
use super::wire::{Arg, announced};
use crate::base::key::{Announced, LockKey};
use crate::base::snapshot::LatchSnapshot;

static COUNT_DOWN: Lazy<Script> =
    script!("latch count_down", "prelude.lua", "latch/count_down.lua");

/// Counts an id, and reads what is left. Without an id it only reads.
pub(in crate::store) async fn count_down(
    store: &RedisStore,
    key: &LockKey,
    count: u32,
    ttl: Duration,
    id: Option<&str>,
) -> Parsed<LatchSnapshot> {
    let args = [
        Arg::Number(count.into()),
        Arg::Millis(ttl),
        Arg::Text(id.unwrap_or_default()),
    ];
    let given = if id.is_some() { 3 } else { 2 };
    let keys = [announced(key, Announced::Latch)];
    let value = store.run(&COUNT_DOWN, &keys, &args[..given]).await?;
    let count = |value| u32::try_from(number(value)?).map_err(|_| garbled());
    match &value {
        Value::Int(_) => Ok(LatchSnapshot::Left(count(&value)?)),
        Value::Array(parts) => match (text(parts.first()), &parts[..]) {
            (Some("count"), [_, made_for]) => Ok(LatchSnapshot::OtherCount(count(made_for)?)),
            (Some("foreign"), [_, kind]) => Ok(LatchSnapshot::Foreign { kind: word(kind)? }),
            _ => Err(garbled()),
        },
        _ => Err(garbled()),
    }
}
