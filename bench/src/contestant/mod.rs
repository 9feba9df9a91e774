//! The locks that are compared, behind one pair of calls.

mod async_redis_lock;
mod floor;
mod ours;
mod ours_multi;
mod ours_reader;
mod ours_semaphore;
mod quorum_floor;
mod redisson;
mod redisson_multi;
mod rslock;

use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

pub(crate) use self::async_redis_lock::AsyncRedisLock;
pub(crate) use self::floor::Floor;
pub(crate) use self::ours::{BEHIND_SENTINEL, OF_CLUSTER, Ours, PATIENCE, PATIENT, settings, url};
pub(crate) use self::ours_multi::OursMulti;
pub(crate) use self::ours_reader::OursReader;
pub(crate) use self::ours_semaphore::OursSemaphore;
pub(crate) use self::quorum_floor::QuorumFloor;
pub(crate) use self::redisson::Redisson;
pub(crate) use self::redisson_multi::RedissonMulti;
pub(crate) use self::rslock::Rslock;

/// The lease that every contestant asks for.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// The permits of a semaphore.
pub(crate) const PERMITS: u32 = 8;

/// Two or three of ten keys, at random.
fn some_of(key: &str) -> Vec<String> {
    let count = 2 + usize::from(fastrand::bool());
    let numbers = fastrand::choose_multiple(0..10_u32, count).into_iter();
    numbers.map(|number| format!("{key}:{number}")).collect()
}

/// A lock library. Its calls are resolved at compile time, so what is measured is the library's own.
pub(crate) trait Contestant: Clone + Send + Sync + 'static {
    type Guard: Send + 'static;

    /// Waits until the lock is granted.
    fn acquire(&self, key: &str) -> impl Future<Output = Result<Self::Guard>> + Send;

    /// Gives the lock back, and waits for the server's word.
    fn release(&self, guard: Self::Guard) -> impl Future<Output = Result<()>> + Send;

    /// Ends the hold, and waits no longer than the library has to: a guard whose drop gives the lock back is dropped.
    fn leave(&self, guard: Self::Guard) -> impl Future<Output = Result<()>> + Send {
        self.release(guard)
    }
}

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Who {
    /// lock-core as it comes.
    Ours,
    /// lock-core with `handover_limit` 1: first come, first served over all processes.
    OursStrict,
    /// lock-core on a cluster of three masters.
    OursCluster,
    OursSemaphore,
    OursReader,
    OursMulti,
    /// The algorithm of Redisson's semaphore.
    Redisson,
    /// The algorithm of Redisson's `RedissonMultiLock`.
    RedissonMulti,
    Rslock,
    /// rslock that asks again within 10 ms.
    RslockTuned,
    AsyncRedisLock,
    /// The least that a lock can be, which cannot wait.
    Floor,
}

impl Who {
    /// Those that this project did not write and that can wait.
    pub(crate) const PEERS: [Self; 3] = [Self::Rslock, Self::RslockTuned, Self::AsyncRedisLock];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "lock-core",
            Self::OursStrict => "lock-core, handover_limit 1",
            Self::OursCluster => "lock-core, cluster",
            Self::OursSemaphore => "lock-core, semaphore",
            Self::OursReader => "lock-core, reader",
            Self::OursMulti => "lock-core, all",
            Self::Redisson | Self::RedissonMulti => "Redisson's algorithm",
            Self::Rslock => "rslock",
            Self::RslockTuned => "rslock, 10 ms retry",
            Self::AsyncRedisLock => "async-redis-lock",
            Self::Floor => "raw floor",
        }
    }

    /// Whether its acquire is a plain SET, and not a script.
    pub(crate) fn locks_by_set(self) -> bool {
        matches!(self, Self::Rslock | Self::RslockTuned | Self::Floor)
    }

    /// On one server, or over a quorum of several.
    pub(crate) async fn connect(self, urls: &[String]) -> Result<Connected> {
        Ok(match (self, urls) {
            (Self::Ours, _) => Connected::Ours(Ours::connect(urls, None).await?),
            (Self::OursStrict, _) => Connected::Ours(Ours::connect(urls, Some(1)).await?),
            (Self::OursCluster, _) => Connected::Ours(Ours::on_cluster().await?),
            (Self::OursSemaphore, _) => {
                Connected::OursSemaphore(OursSemaphore::connect(urls).await?)
            }
            (Self::OursReader, _) => Connected::OursReader(OursReader::connect(urls).await?),
            (Self::OursMulti, _) => Connected::OursMulti(OursMulti::connect(urls).await?),
            (Self::RedissonMulti, [url]) => {
                Connected::RedissonMulti(RedissonMulti::connect(url).await?)
            }
            (Self::Redisson, [url]) => Connected::Redisson(Redisson::connect(url).await?),
            (Self::Redisson | Self::RedissonMulti, _) => {
                bail!("this copy of Redisson knows one server only")
            }
            (Self::Rslock, _) => Connected::Rslock(Rslock::new(urls, None)),
            (Self::RslockTuned, _) => {
                Connected::Rslock(Rslock::new(urls, Some(Duration::from_millis(10))))
            }
            (Self::AsyncRedisLock, [url]) => {
                Connected::AsyncRedisLock(AsyncRedisLock::connect(url).await?)
            }
            (Self::AsyncRedisLock, _) => bail!("async-redis-lock knows one server only"),
            (Self::Floor, [url]) => Connected::Floor(Floor::connect(url).await?),
            (Self::Floor, _) => Connected::QuorumFloor(QuorumFloor::connect(urls).await?),
        })
    }
}

/// A contestant that has its connection.
#[derive(Clone)]
pub(crate) enum Connected {
    Ours(Ours),
    OursSemaphore(OursSemaphore),
    OursReader(OursReader),
    OursMulti(OursMulti),
    Redisson(Redisson),
    RedissonMulti(RedissonMulti),
    Rslock(Rslock),
    AsyncRedisLock(AsyncRedisLock),
    Floor(Floor),
    QuorumFloor(QuorumFloor),
}

/// Runs the same generic code for whichever contestant it is.
macro_rules! with {
    ($connected:expr, $contestant:ident => $body:expr) => {
        match $connected {
            $crate::contestant::Connected::Ours($contestant) => $body,
            $crate::contestant::Connected::OursSemaphore($contestant) => $body,
            $crate::contestant::Connected::OursReader($contestant) => $body,
            $crate::contestant::Connected::OursMulti($contestant) => $body,
            $crate::contestant::Connected::Redisson($contestant) => $body,
            $crate::contestant::Connected::RedissonMulti($contestant) => $body,
            $crate::contestant::Connected::Rslock($contestant) => $body,
            $crate::contestant::Connected::AsyncRedisLock($contestant) => $body,
            $crate::contestant::Connected::Floor($contestant) => $body,
            $crate::contestant::Connected::QuorumFloor($contestant) => $body,
        }
    };
}
pub(crate) use with;
