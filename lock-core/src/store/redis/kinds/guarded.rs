//! Scripts of the user, behind a check that the lock is still held.

use once_cell::sync::Lazy;
use redis::{FromRedisValue, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::of_kind;
use crate::base::sync::lock;
use crate::store::redis::error::{fault_of_script, garbled, passed_on};
use crate::store::redis::route::RedisStore;
use crate::store::redis::script::Script;
use crate::store::redis::server::call::Purpose;
use crate::store::redis::wire::{Arg, Guard, Name};
use crate::store::{GuardedCall, StoreError};

/// What a script of the user has returned.
pub(crate) struct ReplyOfUser(Value);

impl ReplyOfUser {
    pub(crate) fn read<T: FromRedisValue>(self) -> Result<T, String> {
        T::from_redis_value(self.0).map_err(|error| error.to_string())
    }
}

/// A key of another type is certainly not our lock. A command that was refused (an ACL) proves nothing. The data of a replica may
/// be old, and it refuses the write, which changes nothing.
const VERDICT: &str = "local is, must = asked[1], asked[2]; \
     if is ~= must and type(is) ~= 'table' then is = redis.pcall('HDEL', lock, 'lock-core:none') end; \
     if type(is) == 'table' and not string.find(is.err, 'WRONGTYPE', 1, true) then return {'refused', is.err} end; \
     if is ~= must then return {'lost'} end";

/// Marks an error that the script returns. It differs from an error of the check, and from one that kept the
/// script from running. A script that only reads proves nothing on a replica. Its write comes last: a full server refuses the first one.
const REPLY: &str = "if type(reply) == 'table' and type(reply.err) == 'string' then return {'failed', reply.err} end; \
     local wrote = redis.pcall('HDEL', KEYS[1], 'lock-core:none'); \
     if type(wrote) == 'table' and string.find(wrote.err, 'READONLY', 1, true) then return {'refused', wrote.err} end; \
     return {'held', reply}";

/// Scripts with their texts and hashes, each made once.
type Known = Mutex<HashMap<(Arc<str>, &'static str), Arc<Script>>>;

/// Maximum known scripts: more than a program has, but a program that generates its scripts does not fill the memory.
const MAX_SCRIPTS: usize = 256;

impl RedisStore {
    /// `None` if the lock is not held; an inner error if the script failed.
    pub(in crate::store) async fn guarded(
        &self,
        call: GuardedCall<'_>,
    ) -> Result<Result<Option<ReplyOfUser>, String>, StoreError> {
        let Guard {
            check,
            mut keys,
            mut args,
        } = of_kind!(call.key.kind(), kind => kind::guard(&call));
        keys.extend(call.keys.iter().map(|key| Name::from(key.as_str())));
        args.extend(call.args.iter().map(|arg| Arg::Bytes(arg)));
        let script = script(call.body, check);
        match self.run_for(Purpose::Grant, &script, &keys, &args).await {
            Ok(Value::Array(parts)) => answer(parts),
            Ok(_) => Err(garbled()),
            Err(StoreError::Misconfigured(wrong)) => match fault_of_script(&wrong) {
                Some(fault) => Ok(Err(fault)),
                None => Err(StoreError::Misconfigured(wrong)),
            },
            Err(error) => Err(error),
        }
    }
}

fn answer(parts: Vec<Value>) -> Result<Result<Option<ReplyOfUser>, String>, StoreError> {
    let mut parts = parts.into_iter();
    let Some(Value::BulkString(word)) = parts.next() else {
        return Err(garbled());
    };
    match (&*word, parts.next()) {
        (b"held", value) => Ok(Ok(Some(ReplyOfUser(value.unwrap_or(Value::Nil))))),
        (b"lost", None) => Ok(Ok(None)),
        (b"refused", Some(Value::BulkString(why))) => {
            Err(passed_on(&String::from_utf8_lossy(&why)))
        }
        (b"failed", Some(Value::BulkString(why))) => {
            let why = String::from_utf8_lossy(&why);
            match passed_on(&why) {
                StoreError::Misconfigured(_) => Ok(Err(why.into_owned())),
                not_now => Err(not_now),
            }
        }
        _ => Err(garbled()),
    }
}

fn script(body: &Arc<str>, check: &'static str) -> Arc<Script> {
    static KNOWN: Lazy<Known> = Lazy::new(Mutex::default);
    let mut known = lock(&KNOWN);
    if known.len() >= MAX_SCRIPTS {
        known.clear();
    }
    let make = || {
        // One line up to the body, so that the server counts the lines as the author does. No name of the library is
        // visible to the body.
        let text = format!(
            "do local lock = KEYS[1]; for _, asked in ipairs({{{check}}}) do {VERDICT} end end; local reply = (function() {body}\nend)(); {REPLY}"
        );
        Arc::new(Script::of_user(text))
    };
    let script = known.entry((Arc::clone(body), check)).or_insert_with(make);
    Arc::clone(script)
}
