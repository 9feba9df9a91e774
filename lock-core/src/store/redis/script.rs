//! The scripts: kept as files, called by their hash.

use std::borrow::Cow;
use std::io::Write;

use once_cell::sync::Lazy;
use redis::{Cmd, RedisError, RedisResult, RedisWrite, Value};

use super::error::is_made_up;
use super::wire::{Arg, Name};

/// Digits of the largest `u64`.
const LONGEST_NUMBER: usize = 20;

/// The name of each script of the user.
pub(super) const OF_USER: &str = "guarded";

/// A Lua script and its hash, computed once.
pub(in crate::store) struct Script {
    pub(super) name: &'static str,
    pub(in crate::store) source: Cow<'static, str>,
    pub(super) hash: String,
}

macro_rules! script {
    ($name:literal, $($file:literal),+) => {
        Lazy::new(|| $crate::store::redis::Script::new($name, concat!($(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts/", $file))),+)))
    };
}
pub(in crate::store) use script;

pub(super) static BATCH: Lazy<Script> = script!("batch", "mint.lua", "batch.lua");
pub(super) static RAISE: Lazy<Script> = script!("raise", "raise.lua");

impl Script {
    pub(in crate::store) fn new(name: &'static str, source: &'static str) -> Self {
        Self::of(name, source.into())
    }

    /// A script of the user.
    pub(super) fn of_user(source: String) -> Self {
        Self::of(OF_USER, source.into())
    }

    fn of(name: &'static str, source: Cow<'static, str>) -> Self {
        let hash = redis::Script::new(&source).get_hash().to_owned();
        #[cfg(lock_sim)]
        crate::base::sim::know_script(&hash, name);
        Self { name, source, hash }
    }

    /// Runs it by its hash, and by its text if the server has lost it.
    pub(super) async fn run<F>(
        &self,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
        request: impl Fn(Cmd) -> F,
    ) -> RedisResult<Value>
    where
        F: Future<Output = RedisResult<Value>>,
    {
        let answer = request(self.by_hash(keys, args)).await;
        unless_lost(answer, || Some(request(self.by_text(keys, args)))).await
    }

    pub(in crate::store) fn by_hash(&self, keys: &[Name<'_>], args: &[Arg<'_>]) -> Cmd {
        call("EVALSHA", &self.hash, keys, args)
    }

    /// The text goes to the node of the keys and is kept there. `SCRIPT LOAD` would go to every node of a cluster, and fail on
    /// a dead one just after a failover.
    pub(in crate::store) fn by_text(&self, keys: &[Name<'_>], args: &[Arg<'_>]) -> Cmd {
        call("EVAL", &self.source, keys, args)
    }
}

/// Whether the server does not know the script.
pub(super) fn is_lost(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT") && !is_made_up(error)
}

/// The answer to a call by hash. If the server has lost the script, the answer to the call by text, if that is still made.
pub(in crate::store) async fn unless_lost<F>(
    answer: RedisResult<Value>,
    by_text: impl FnOnce() -> Option<F>,
) -> RedisResult<Value>
where
    F: Future<Output = RedisResult<Value>>,
{
    match answer {
        Err(error) if is_lost(&error) => match by_text() {
            // Boxed because it is rare: otherwise every call would carry room for it.
            Some(call) => Box::pin(call).await,
            None => Err(error),
        },
        answer => answer,
    }
}

fn call(verb: &str, script: &str, keys: &[Name<'_>], args: &[Arg<'_>]) -> Cmd {
    // The size is computed first: a command that grows with each argument is allocated ten times over.
    let texts = keys.iter().map(|key| key.len());
    let args_len = args.iter().map(|arg| match arg {
        Arg::Text(text) => text.len(),
        Arg::Bytes(bytes) => bytes.len(),
        Arg::Millis(_) | Arg::AlsoEarlier(_) | Arg::Number(_) => LONGEST_NUMBER,
        Arg::Waits { mode, channel, .. } => mode.len() + LONGEST_NUMBER + channel.len(),
    });
    let size = verb.len() + script.len() + LONGEST_NUMBER + texts.chain(args_len).sum::<usize>();
    let mut command = Cmd::with_capacity(3 + keys.len() + args.len(), size);
    command.arg(verb).arg(script).arg(keys.len());
    for key in keys {
        let mut whole = command.writer_for_next_arg();
        for part in key.0 {
            // A write to memory does not fail.
            let _ = whole.write_all(part.as_bytes());
        }
    }
    for arg in args {
        match arg {
            Arg::Text(text) => command.arg(*text),
            Arg::Bytes(bytes) => command.arg(*bytes),
            Arg::Millis(duration) => command.arg(duration.as_millis() as u64),
            Arg::AlsoEarlier(duration) => command.arg(-(duration.as_millis() as i64)),
            Arg::Number(number) => command.arg(*number),
            Arg::Waits {
                mode,
                alive_for,
                channel,
            } => {
                let mut whole = command.writer_for_next_arg();
                let _ = whole.write_all(mode.as_bytes());
                let _ = write!(whole, " {} ", alive_for.as_millis() as u64);
                let _ = whole.write_all(channel.as_bytes());
                continue;
            }
        };
    }
    command
}
