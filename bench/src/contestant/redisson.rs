use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Script};
use tokio::sync::{OnceCell, Semaphore};
use uuid::Uuid;

use super::{Contestant, PERMITS, TTL, floor};

/// KEYS: number of free permits, ends of the leases, channel. ARGV: permit, now, end of its lease, number of permits at first.
const ACQUIRE: &str = "
local ended = redis.call('ZREMRANGEBYSCORE', KEYS[2], 0, ARGV[2])
if ended > 0 then redis.call('PUBLISH', KEYS[3], redis.call('INCRBY', KEYS[1], ended)) end
local free = redis.call('GET', KEYS[1])
if not free then
  redis.call('SET', KEYS[1], ARGV[4])
elseif tonumber(free) < 1 then
  return 0
end
redis.call('DECR', KEYS[1])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
return 1";

/// KEYS: as above. ARGV: permit.
const RELEASE: &str = "
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then return 0 end
redis.call('PUBLISH', KEYS[3], redis.call('INCR', KEYS[1]))
return 1";

/// The algorithm of Redisson's `RPermitExpirableSemaphore`, written anew: a counter, the leases by the clock of the client, and a
/// channel on which each release tells the number of free permits. Each process wakes this number of its waiters, which ask again.
///
/// It does not ask again when the next lease ends: none does so early. It subscribes once, since a process always has waiters.
#[derive(Clone)]
pub(crate) struct Redisson {
    connection: MultiplexedConnection,
    scripts: Arc<[Script; 2]>,
    waiting: Arc<Waiting>,
}

/// The waiters of this process, for the only semaphore of a contest.
struct Waiting {
    subscribed: OnceCell<()>,
    count: AtomicUsize,
    /// Has a permit for each waiter that may ask again.
    told: Semaphore,
}

/// A permit.
pub(crate) struct Permit {
    id: Uuid,
    keys: [String; 3],
}

impl Redisson {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let waiting = Arc::new(Waiting {
            subscribed: OnceCell::new(),
            count: AtomicUsize::new(0),
            told: Semaphore::new(0),
        });
        let hearing = Arc::clone(&waiting);
        let config = AsyncConnectionConfig::new().set_push_sender(move |push| {
            hearing.hear(&push);
            Ok::<(), Infallible>(())
        });
        Ok(Self {
            connection: floor::connect(url, &config).await?,
            scripts: Arc::new([ACQUIRE, RELEASE].map(Script::new)),
            waiting,
        })
    }

    async fn takes(&self, permit: &Permit) -> Result<bool> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let taken: u8 = self.scripts[0]
            .key(&permit.keys)
            .arg(permit.id.as_bytes())
            .arg(now.as_millis() as u64)
            .arg((now + TTL).as_millis() as u64)
            .arg(PERMITS)
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(taken == 1)
    }

    async fn wait(&self, permit: &Permit) -> Result<()> {
        let Waiting {
            subscribed, told, ..
        } = &*self.waiting;
        let mut connection = self.connection.clone();
        let subscribing = || async move { connection.subscribe(&permit.keys[2]).await };
        subscribed.get_or_try_init(subscribing).await?;
        // The first time at once: a permit may have come back before the subscription.
        while !self.takes(permit).await? {
            told.acquire().await?.forget();
        }
        Ok(())
    }
}

impl Waiting {
    fn hear(&self, push: &PushInfo) {
        let free = match (&push.kind, &push.data[..]) {
            (PushKind::Message, [_, free]) => redis::from_redis_value_ref(free).unwrap_or(0),
            _ => 0,
        };
        self.told
            .add_permits(self.count.load(Ordering::Relaxed).min(free));
    }
}

impl Contestant for Redisson {
    type Guard = Permit;

    async fn acquire(&self, key: &str) -> Result<Permit> {
        let permit = Permit {
            id: Uuid::new_v4(),
            keys: [
                key.to_owned(),
                format!("{{{key}}}:timeout"),
                format!("redisson_sc:{{{key}}}"),
            ],
        };
        if !self.takes(&permit).await? {
            self.waiting.count.fetch_add(1, Ordering::Relaxed);
            let waited = self.wait(&permit).await;
            self.waiting.count.fetch_sub(1, Ordering::Relaxed);
            waited?;
        }
        Ok(permit)
    }

    async fn release(&self, permit: Permit) -> Result<()> {
        let released: u8 = self.scripts[1]
            .key(&permit.keys)
            .arg(permit.id.as_bytes())
            .invoke_async(&mut self.connection.clone())
            .await?;
        ensure!(released == 1, "the permit was not ours");
        Ok(())
    }
}
