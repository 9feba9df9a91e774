//! A client that does on the wire what Redisson does, and knows nothing of ours.
//!
//! It is written from a description of the protocol: a hash of the owner and its count, a ttl on the hash, `0` on the
//! channel of the lock when it is let go. Its scripts go as `EVAL`, so that the server's statistics tell them from ours.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lock_tests::{LIMIT, TestServer, connect};
use redis::aio::{MultiplexedConnection, PubSub};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Grants a free lock, or one more hold to its owner: nil. To others it tells how long the lease lasts.
const TRY_LOCK: &str = "
    local free = redis.call('EXISTS', KEYS[1]) == 0
    if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
        redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
        redis.call('PEXPIRE', KEYS[1], ARGV[1])
        return false
    end
    return redis.call('PTTL', KEYS[1])";

/// Nil: not the owner. 0: still held, and the ttl is written anew. 1: free, and announced.
const UNLOCK: &str = "
    if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return false end
    if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        return 0
    end
    redis.call('DEL', KEYS[1])
    redis.call('PUBLISH', KEYS[2], ARGV[1])
    return 1";

/// The watchdog: 1 for each lock whose owner holds it, which gets a new ttl; else 0.
const RENEW: &str = "
    local answers = {}
    for i, name in ipairs(KEYS) do
        answers[i] = redis.call('HEXISTS', name, ARGV[i + 1])
        if answers[i] == 1 then redis.call('PEXPIRE', name, ARGV[1]) end
    end
    return answers";

const FORCE: &str = "
    if redis.call('DEL', KEYS[1]) == 0 then return 0 end
    redis.call('PUBLISH', KEYS[2], ARGV[1])
    return 1";

/// What an unlock was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unlocked {
    NotOwner,
    StillHeld,
    Free,
}

/// One thread of one Redisson instance: one owner.
pub(crate) struct Redisson {
    url: String,
    connection: MultiplexedConnection,
    pub(crate) owner: String,
    /// It has subscribed, asked again, and waits now.
    pub(crate) parked: Notify,
}

/// `tag(name)` of the protocol: braces around a name that has none.
pub(crate) fn channel(name: &str) -> String {
    if name.contains('{') {
        format!("redisson_lock__channel:{name}")
    } else {
        format!("redisson_lock__channel:{{{name}}}")
    }
}

fn random_uuid() -> String {
    let bits = fastrand::u128(..);
    let hex = format!("{bits:032x}");
    let variant = ["8", "9", "a", "b"][fastrand::usize(..4)];
    format!(
        "{}-{}-4{}-{variant}{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..]
    )
}

impl Redisson {
    pub(crate) async fn new(server: &TestServer) -> Self {
        Self {
            url: server.url(),
            connection: server.connection().await,
            owner: format!("{}:{}", random_uuid(), fastrand::u16(1..)),
            parked: Notify::new(),
        }
    }

    async fn eval<T: redis::FromRedisValue>(
        &self,
        script: &str,
        keys: &[&str],
        args: &[&str],
    ) -> T {
        let mut command = redis::cmd("EVAL");
        command.arg(script).arg(keys.len()).arg(keys).arg(args);
        command
            .query_async(&mut self.connection.clone())
            .await
            .unwrap()
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &mut redis::Cmd) -> T {
        command
            .query_async(&mut self.connection.clone())
            .await
            .unwrap()
    }

    /// `None` where it was acquired, else the PTTL.
    pub(crate) async fn try_lock(&self, name: &str, lease: Duration) -> Option<i64> {
        let lease = lease.as_millis().to_string();
        self.eval(TRY_LOCK, &[name], &[&lease, &self.owner]).await
    }

    pub(crate) async fn unlock(&self, name: &str, lease: Duration) -> Unlocked {
        let lease = lease.as_millis().to_string();
        let answer: Option<i64> = self
            .eval(UNLOCK, &[name, &channel(name)], &["0", &lease, &self.owner])
            .await;
        match answer {
            None => Unlocked::NotOwner,
            Some(0) => Unlocked::StillHeld,
            Some(1) => Unlocked::Free,
            Some(other) => panic!("{other}"),
        }
    }

    /// One tick of its watchdog over this lock. False where it finds the lock gone.
    pub(crate) async fn renew(&self, name: &str, lease: Duration) -> bool {
        let lease = lease.as_millis().to_string();
        let answers: Vec<i64> = self.eval(RENEW, &[name], &[&lease, &self.owner]).await;
        answers == [1]
    }

    pub(crate) async fn force_unlock(&self, name: &str) -> bool {
        let answer: i64 = self.eval(FORCE, &[name, &channel(name)], &["0"]).await;
        answer == 1
    }

    pub(crate) async fn is_locked(&self, name: &str) -> bool {
        self.ask(redis::cmd("EXISTS").arg(name)).await
    }

    pub(crate) async fn hold_count(&self, name: &str) -> u64 {
        let count: Option<u64> = self
            .ask(redis::cmd("HGET").arg(name).arg(&self.owner))
            .await;
        count.unwrap_or(0)
    }

    pub(crate) async fn remain_time_to_live(&self, name: &str) -> i64 {
        self.ask(redis::cmd("PTTL").arg(name)).await
    }

    /// Listens to the lock's channel; the server has confirmed it when this returns.
    pub(crate) async fn subscribe(&self, name: &str) -> PubSub {
        let client = redis::Client::open(&*self.url).unwrap();
        let mut pubsub = client.get_async_pubsub().await.unwrap();
        pubsub.subscribe(channel(name)).await.unwrap();
        pubsub
    }

    /// Waits as Redisson does: a try, a subscription, a try after its confirmation, then parked for the PTTL at most.
    /// True where it was woken by a message at least once.
    pub(crate) async fn lock(&self, name: &str, lease: Duration) -> bool {
        let start = Instant::now();
        let mut woken = false;
        if self.try_lock(name, lease).await.is_none() {
            return woken;
        }
        let mut pubsub = self.subscribe(name).await;
        let mut messages = pubsub.on_message();
        while let Some(pttl) = self.try_lock(name, lease).await {
            assert!(start.elapsed() < LIMIT * 2, "never acquired");
            self.parked.notify_one();
            // No ttl: a cap of its own.
            let park = u64::try_from(pttl).map_or(LIMIT, Duration::from_millis);
            match timeout(park, messages.next()).await {
                Ok(Some(message)) => {
                    assert_eq!(message.get_payload_bytes(), b"0");
                    woken = true;
                }
                Ok(None) => panic!("the subscription ended"),
                Err(_) => {}
            }
        }
        woken
    }

    /// Renews a lock three times a lease until it is dropped.
    pub(crate) async fn watchdog(&self, name: &str, lease: Duration) -> Watchdog {
        let twin = Self {
            url: self.url.clone(),
            connection: connect(&*self.url).await,
            owner: self.owner.clone(),
            parked: Notify::new(),
        };
        let name = name.to_owned();
        Watchdog(tokio::spawn(async move {
            while twin.renew(&name, lease).await {
                tokio::time::sleep(lease / 3).await;
            }
        }))
    }
}

pub(crate) struct Watchdog(JoinHandle<()>);

impl Watchdog {
    /// It has found its lock gone, and has ended.
    pub(crate) async fn gave_up(&mut self) {
        timeout(LIMIT, &mut self.0)
            .await
            .expect("the watchdog ends")
            .unwrap();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.abort();
    }
}
