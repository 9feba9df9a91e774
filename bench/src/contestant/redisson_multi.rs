use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Script};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::{Contestant, TTL, floor, some_of};

/// KEYS: lock. ARGV: lease, owner.
const ACQUIRE: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return -1
end
return redis.call('PTTL', KEYS[1])";

/// KEYS: lock, channel. ARGV: lease, owner.
const RELEASE: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
if redis.call('HINCRBY', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
else
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[2], '0')
end
return 1";

/// The wait for all locks of a list, for each of them. Then it gives back what it has, and begins again.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The algorithm of Redisson's `RedissonMultiLock`, written anew: one `RLock` after the other, in the order of the list, each with its
/// script; if one does not come in time, all are released and it begins again. A release wakes one waiter of each process.
///
/// In its favour: the lists are sorted, since it would deadlock until the end of the wait; there is no latch for a release that is
/// repeated; and a process subscribes once to the channel of a lock.
#[derive(Clone)]
pub(crate) struct RedissonMulti {
    connection: MultiplexedConnection,
    scripts: Arc<[Script; 2]>,
    waiting: Arc<Mutex<HashMap<String, Arc<Waiting>>>>,
}

/// The waiters of this process for one lock.
struct Waiting {
    subscribed: OnceCell<()>,
    count: AtomicUsize,
    told: Semaphore,
}

/// The locks of a list.
pub(crate) struct Held {
    owner: String,
    keys: Vec<String>,
}

impl RedissonMulti {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let waiting = Arc::new(Mutex::new(HashMap::new()));
        let hearing = Arc::clone(&waiting);
        let config = AsyncConnectionConfig::new().set_push_sender(move |push| {
            hear(&hearing, &push);
            Ok::<(), Infallible>(())
        });
        Ok(Self {
            connection: floor::connect(url, &config).await?,
            scripts: Arc::new([ACQUIRE, RELEASE].map(Script::new)),
            waiting,
        })
    }

    /// The rest of the holder's lease, if there is one.
    async fn takes(&self, key: &str, owner: &str) -> Result<Option<Duration>> {
        let left: i64 = self.scripts[0]
            .key(key)
            .arg(TTL.as_millis() as u64)
            .arg(owner)
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(u64::try_from(left).ok().map(Duration::from_millis))
    }

    /// Whether the lock came in time.
    async fn waits(&self, key: &str, owner: &str, end: Instant) -> Result<bool> {
        if self.takes(key, owner).await?.is_none() {
            return Ok(true);
        }
        let channel = channel(key);
        let waiting = {
            let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || {
                Arc::new(Waiting {
                    subscribed: OnceCell::new(),
                    count: AtomicUsize::new(0),
                    told: Semaphore::new(0),
                })
            };
            Arc::clone(all.entry(channel.clone()).or_insert_with(new))
        };
        let mut connection = self.connection.clone();
        let subscribing = || async move { connection.subscribe(&channel).await };
        waiting.subscribed.get_or_try_init(subscribing).await?;
        waiting.count.fetch_add(1, Ordering::Relaxed);
        let came = self.told(key, owner, end, &waiting.told).await;
        waiting.count.fetch_sub(1, Ordering::Relaxed);
        came
    }

    async fn told(&self, key: &str, owner: &str, end: Instant, told: &Semaphore) -> Result<bool> {
        while let Some(left) = self.takes(key, owner).await? {
            if Instant::now() >= end {
                return Ok(false);
            }
            let next = end.min(Instant::now() + left);
            if let Ok(told) = timeout_at(next, told.acquire()).await {
                told?.forget();
            }
        }
        Ok(true)
    }

    async fn release_all(&self, owner: &str, keys: &[String]) -> Result<()> {
        let releases = keys.iter().map(async |key| {
            let released: u8 = self.scripts[1]
                .key(key)
                .key(channel(key))
                .arg(TTL.as_millis() as u64)
                .arg(owner)
                .invoke_async(&mut self.connection.clone())
                .await?;
            ensure!(released == 1, "the lock was not ours");
            Ok(())
        });
        try_join_all(releases).await.map(drop)
    }
}

fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}

fn hear(waiting: &Mutex<HashMap<String, Arc<Waiting>>>, push: &PushInfo) {
    let (PushKind::Message, [channel, _]) = (&push.kind, &push.data[..]) else {
        return;
    };
    let channel: String = redis::from_redis_value_ref(channel).unwrap_or_default();
    let all = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(waiting) = all.get(&channel)
        && waiting.count.load(Ordering::Relaxed) > 0
    {
        waiting.told.add_permits(1);
    }
}

impl Contestant for RedissonMulti {
    type Guard = Held;

    async fn acquire(&self, key: &str) -> Result<Held> {
        let (owner, mut keys) = (Uuid::new_v4().to_string(), some_of(key));
        keys.sort();
        'again: loop {
            let end = Instant::now() + PATIENCE * keys.len() as u32;
            for (n, key) in keys.iter().enumerate() {
                if !self.waits(key, &owner, end).await? {
                    self.release_all(&owner, &keys[..n]).await?;
                    continue 'again;
                }
            }
            return Ok(Held { owner, keys });
        }
    }

    async fn release(&self, held: Held) -> Result<()> {
        self.release_all(&held.owner, &held.keys).await
    }
}
