//! Writes to the server under a lock, in one step with the check that the lock is still held.

use std::fmt;
use std::sync::Arc;

use redis::{FromRedisValue, ToRedisArgs};

use crate::base::error::{LockError, LossReason};
use crate::base::slot::slot_of;
use crate::engine::guarded;
use crate::face::guard::LockGuard;

/// A Lua script that runs only while a lock is held: see [`LockGuard::guarded`].
///
/// Make it once and keep it; it is sent by its hash. In the script, `KEYS` and `ARGV` are the keys and arguments of the call.
///
/// # Examples
///
/// ```
/// let take_one = lock_core::GuardedScript::new(
///     "if tonumber(redis.call('GET', KEYS[1]) or 0) < 1 then return -1 end
///      return redis.call('DECR', KEYS[1])",
/// );
/// # let _ = take_one;
/// ```
#[derive(Clone)]
pub struct GuardedScript {
    pub(crate) body: Arc<str>,
}

impl fmt::Debug for GuardedScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedScript").finish_non_exhaustive()
    }
}

impl GuardedScript {
    /// A script from its text. No I/O, and no check before the first call.
    #[must_use]
    pub fn new(source: &str) -> Self {
        Self {
            body: source.into(),
        }
    }
}

/// One call of a [`GuardedScript`], made by [`LockGuard::guarded`].
#[must_use = "it does nothing before `run`"]
pub struct Guarded<'a> {
    guard: &'a LockGuard,
    script: &'a GuardedScript,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl fmt::Debug for Guarded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

impl LockGuard {
    /// Runs a Lua script on the server if this guard holds the lock at that moment: the check and the writes are one atomic step,
    /// so a holder that was paused past its lease changes nothing.
    ///
    /// For data on the lock's own server, this replaces a check of the [fencing token](crate::LockView::fencing_token). The keys of the script
    /// must be in the lock's hash slot, also on a single server, so that the program can move to a cluster: give the lock and the
    /// data the same `{tag}`. Not for `memory://`, which runs no scripts.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// # let locks = lock_core::LockManager::connect("redis://127.0.0.1").await?;
    /// let take_one = lock_core::GuardedScript::new("return redis.call('DECR', KEYS[1])");
    /// let guard = locks.lock("{iphone}:sale").acquire().await?;
    /// let left: i64 = guard.guarded(&take_one).key("{iphone}:stock").run().await?;
    /// # let _ = left; Ok(()) }
    /// ```
    pub fn guarded<'a>(&'a self, script: &'a GuardedScript) -> Guarded<'a> {
        Guarded {
            guard: self,
            script,
            keys: Vec::new(),
            args: Vec::new(),
        }
    }
}

impl Guarded<'_> {
    /// Adds the next of the script's `KEYS`.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// Adds the next of the script's `ARGV`; several if the value is a list.
    pub fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.args.extend(arg.to_redis_args());
        self
    }

    /// Sends the script, and converts its reply into a `T`.
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) if the lock was no longer held: the script did not run, and the guard is lost from now on.
    /// [`InvalidKey`](LockError::InvalidKey) for a key in another slot than the lock. [`InvalidConfig`](LockError::InvalidConfig)
    /// if the server does not permit this user to read the holder or to use a key: the script did not run, and the guard is
    /// unchanged. [`Script`](LockError::Script) if the script failed, or its reply is not a `T`; like any script, it may have
    /// written before that. [`Unavailable`](LockError::Unavailable) if no reply came: the script may have run, and is not repeated.
    ///
    /// # Cancel safety
    ///
    /// A dropped future may or may not have run the script. It may run even after the guard has ended, but never under the next
    /// guard of the lock; for a reentrant lock, never under another owner, and never after its owner has acquired it afresh. For
    /// this reason a guard with an unanswered call releases on the server, without a local hand-over.
    pub async fn run<T: FromRedisValue>(self) -> Result<T, LockError> {
        let view = self.guard.view();
        let lost = |reason| Err(view.lost_error(reason));
        let acquisition = match view.hold.acquisition() {
            Some(acquisition) if view.is_held() => acquisition,
            _ => return lost(view.lost().await),
        };
        let lock = acquisition.key.lock();
        if let Some(stray) = self.keys.iter().find(|key| slot_of(key) != slot_of(lock)) {
            return Err(LockError::InvalidKey {
                key: stray.chars().take(64).collect(),
                reason: "it is not in the hash slot of the lock: give both the same `{tag}`",
            });
        }
        let (body, keys, args) = (&self.script.body, &self.keys, &self.args);
        let running = guarded(&view.engine.shared, acquisition, body, keys, args);
        match running.await? {
            Some(reply) => reply.read().map_err(|reason| LockError::Script { reason }),
            None => lost(LossReason::Gone),
        }
    }
}
