//! Writing to the server under a lock, in one step with the check that the lock is still held.

use std::fmt;
use std::sync::Arc;

use redis::{FromRedisValue, ToRedisArgs};

use crate::LockError;
use crate::error::LossReason;
use crate::guard::LockGuard;
use crate::slot::slot;
use crate::store::{GuardedCall, Store, StoreError};

/// A Lua script that runs only while a lock is held: see [`LockGuard::guarded`].
///
/// Make it once and keep it; it is sent by its hash. In the script `KEYS` and `ARGV` are those that the call gives.
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
    /// A script from its text. Nothing is sent, and nothing is checked before the first call.
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
    /// Runs a Lua script on the server if, at that moment, this guard holds the lock: the check and the writes are one atomic
    /// step, so a holder that was paused past its lease changes nothing.
    ///
    /// That is what a [fencing token](Self::fencing_token) does for other stores, for data on the lock's own server. The keys of the
    /// script must be in the lock's hash slot, also on a single server, so that the program can move to a cluster: give the
    /// lock and the data the same `{tag}`. Not on `memory://`, which runs no scripts.
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
    /// The next of the script's `KEYS`.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// The next of the script's `ARGV`; several, where the value is a list.
    pub fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.args.extend(arg.to_redis_args());
        self
    }

    /// Sends it, and turns the script's reply into a `T`.
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) where the lock was no longer ours: the script did not run, and the guard is lost from now on.
    /// [`InvalidKey`](LockError::InvalidKey) for a key in another slot than the lock. [`InvalidConfig`](LockError::InvalidConfig) where the
    /// server does not let this user ask who holds the lock, or touch a key: the script did not run, and the guard is as it
    /// was. [`Script`](LockError::Script) where the script failed, or replied something that is no `T`; like any script it may have written
    /// before that.
    /// [`Unavailable`](LockError::Unavailable) where no reply came: then it may have run, and is not repeated.
    ///
    /// # Cancel safety
    ///
    /// A dropped future may or may not have run the script; it may even run after the guard has ended, but never under the
    /// next guard of the lock; of a reentrant lock never under another owner, nor when its owner has it anew. To that end a
    /// guard with a call that was not answered lets go on the server, and hands nothing over inside the process.
    pub async fn run<T: FromRedisValue>(self) -> Result<T, LockError> {
        let view = self.guard.view();
        let shared = &view.engine.shared;
        let lost = |reason| Err(view.lost_error(reason));
        let acquisition = match view.hold.acquisition() {
            Some(acquisition) if view.is_held() => acquisition,
            _ => return lost(view.lost().await),
        };
        let lock = acquisition.key.lock();
        if let Some(stray) = self.keys.iter().find(|key| slot(key) != slot(lock)) {
            return Err(LockError::InvalidKey {
                key: stray.chars().take(64).collect(),
                reason: "it is not in the hash slot of the lock: give both the same `{tag}`",
            });
        }
        let call = GuardedCall {
            key: &acquisition.key,
            token: &shared.token(acquisition),
            owner: acquisition.owner(),
            body: &self.script.body,
            keys: &self.keys,
            args: &self.args,
        };
        let outstanding = acquisition.script_sent();
        let answer = shared.store.guarded(call).await;
        if !matches!(answer, Err(StoreError::Ambiguous(_))) {
            outstanding.answered();
        }
        match answer {
            Ok(Ok(Some(value))) => T::from_redis_value(value).map_err(|error| LockError::Script {
                reason: error.to_string(),
            }),
            Ok(Ok(None)) => {
                if let Some(lease) = acquisition.lease()
                    && lease.lose(LossReason::Gone)
                {
                    shared.lease_due_at(shared.now());
                }
                lost(LossReason::Gone)
            }
            Ok(Err(reason)) => Err(LockError::Script { reason }),
            Err(error) => Err(error.into_lock_error()),
        }
    }
}
