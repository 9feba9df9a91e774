//! A latch on a server: a hash of the ids that were counted.

use std::time::Duration;

use once_cell::sync::Lazy;
use redis::Value;

use crate::base::key::LockKey;
use crate::base::latch::LATCH;
use crate::base::refusal::Refusal;
use crate::store::OrRefused;
use crate::store::redis::error::garbled;
use crate::store::redis::reply::{number, text, word};
use crate::store::redis::route::RedisStore;
use crate::store::redis::script::{Script, script};
use crate::store::redis::wire::{Arg, announced};

static COUNT_DOWN: Lazy<Script> =
    script!("latch count_down", "prelude.lua", "latch/count_down.lua");

/// Counts an id, and reads what is left. Without an id it only reads.
pub(in crate::store) async fn count_down(
    store: &RedisStore,
    key: &LockKey,
    count: u32,
    ttl: Duration,
    id: Option<&str>,
) -> OrRefused<u32> {
    let args = [
        Arg::Number(count.into()),
        Arg::Millis(ttl),
        Arg::Text(id.unwrap_or_default()),
    ];
    let given = if id.is_some() { 3 } else { 2 };
    let keys = [announced(key, LATCH)];
    let value = store.run(&COUNT_DOWN, &keys, &args[..given]).await?;
    let count = |value| u32::try_from(number(value)?).map_err(|_| garbled());
    match &value {
        Value::Int(_) => Ok(Ok(count(&value)?)),
        Value::Array(parts) => match (text(parts.first()), &parts[..]) {
            (Some("count"), [_, made_for]) => Ok(Err(Refusal::OtherCount(count(made_for)?))),
            (Some("foreign"), [_, kind]) => Ok(Err(Refusal::Foreign(word(kind)?))),
            _ => Err(garbled()),
        },
        _ => Err(garbled()),
    }
}
