//! Scripts of the user, behind a check that the lock is still held.

use once_cell::sync::Lazy;
use redis::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::error::garbled;
use super::script::Script;
use super::{Arg, RedisStore};
use crate::key::{Name, Names};
use crate::store::{GuardedCall, StoreError};
use crate::sync::lock;

/// The check, in one line, so that the server counts the lines of the script as its author does. What stands in front of the
/// script's own keys and arguments is taken off.
const EXCLUSIVE: &str = "if redis.pcall('GET', table.remove(KEYS, 1)) ~= table.remove(ARGV, 1) then return {'lost'} end";
const REENTRANT: &str = "local lock, holds = table.remove(KEYS, 1), table.remove(KEYS, 1); \
     local owner, token = table.remove(ARGV, 1), table.remove(ARGV, 1); \
     if redis.pcall('HEXISTS', lock, owner) ~= 1 or redis.pcall('HEXISTS', holds, token) ~= 1 then return {'lost'} end";

/// Texts and hashes, made once for each script.
type Known = Mutex<HashMap<(Arc<str>, &'static str), Arc<Script>>>;

/// More scripts than a program has. One that makes them anew each time must not fill the memory.
const MOST: usize = 256;

impl RedisStore {
    /// `None` where the lock is not held; an inner error where the script failed.
    pub(super) async fn run_guarded(
        &self,
        call: GuardedCall<'_>,
    ) -> Result<Result<Option<Value>, String>, StoreError> {
        let lock = Name::from(call.key.lock());
        let token = Arg::Text(call.token.as_str());
        let (check, mut keys, mut args) = match call.key.names() {
            Names::Exclusive { .. } => (EXCLUSIVE, vec![lock], vec![token]),
            Names::Reentrant { holds, .. } => {
                let owner = call.owner.map_or(token, Arg::Text);
                (REENTRANT, vec![lock, holds], vec![owner, token])
            }
        };
        keys.extend(call.keys.iter().map(|key| Name::from(key.as_str())));
        args.extend(call.args.iter().map(|arg| Arg::Bytes(arg)));
        let script = script(call.body, check);
        match self.run(&script, &keys, &args).await {
            Ok(Value::Array(parts)) => {
                let mut parts = parts.into_iter();
                match (parts.next(), parts.next()) {
                    (Some(Value::BulkString(word)), value) if word == b"held" => {
                        Ok(Ok(Some(value.unwrap_or(Value::Nil))))
                    }
                    (Some(Value::BulkString(word)), None) if word == b"lost" => Ok(Ok(None)),
                    _ => Err(garbled()),
                }
            }
            Ok(_) => Err(garbled()),
            Err(StoreError::Misconfigured(reason)) => Ok(Err(reason)),
            Err(error) => Err(error),
        }
    }
}

fn script(body: &Arc<str>, check: &'static str) -> Arc<Script> {
    static KNOWN: Lazy<Known> = Lazy::new(Mutex::default);
    let mut known = lock(&KNOWN);
    if known.len() >= MOST {
        known.clear();
    }
    let make = || {
        let text = format!("{check}; return {{'held', (function() {body}\nend)()}}");
        Arc::new(Script::of_user(text))
    };
    let script = known.entry((Arc::clone(body), check)).or_insert_with(make);
    Arc::clone(script)
}
