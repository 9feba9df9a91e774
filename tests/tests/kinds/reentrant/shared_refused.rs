//! One owner in several processes, and a server that refuses a command for a moment: no hold is counted for ever, and no lease is
//! longer than those need that are left.

use lock_core::{LockManager, Owner};
use lock_tests::{LIMIT, TestServer};
use tokio::time::sleep;

use crate::reentrant::apart::{Apart, ApartLock};
use crate::reentrant::support::{LONG, command, hash, in_time, manager_at, ms, until_clean};

/// What the scripts ask for in a tenure.
const COMMANDS: [&str; 11] = [
    "time", "hget", "hmget", "hgetall", "pttl", "pexpire", "hset", "hdel", "hincrby", "del",
    "evalsha",
];

/// Two processes of one owner, the first for a short time and the second for a long one.
struct Rig {
    server: TestServer,
    owner: Owner,
    stranger: LockManager,
    short: ApartLock,
    long: ApartLock,
}

impl Rig {
    async fn start() -> Self {
        let server = TestServer::start().await;
        let owner = Owner::new();
        let lock = async |ttl| {
            let locks = manager_at(&server.url(), LIMIT).await;
            locks.lock_apart("order").owner(&owner).ttl(ttl)
        };
        let (short, long) = (lock(ms(1000)).await, lock(LONG).await);
        let stranger = manager_at(&server.url(), LIMIT).await;
        Self {
            server,
            owner,
            stranger,
            short,
            long,
        }
    }

    async fn counted(&self) -> i64 {
        let fields = hash(&self.server, "order").await;
        fields.get(&self.owner.to_string()).copied().unwrap_or(0)
    }

    async fn permit(&self, sign: char, name: &str) {
        command::<String>(&self.server, &format!("ACL SETUSER default {sign}{name}")).await;
    }
}

#[tokio::test]
async fn a_release_that_is_refused_a_command_is_made_up_for() {
    for refused in COMMANDS {
        let rig = Rig::start().await;
        let (short, long) = (rig.short.acquire().await, rig.long.acquire().await);
        let (short, long) = (short.unwrap(), long.unwrap());
        rig.permit('-', refused).await;
        drop(long);
        sleep(ms(100)).await;
        rig.permit('+', refused).await;
        let counted = async {
            while rig.counted().await > 1 {
                sleep(ms(20)).await;
            }
        };
        in_time(refused, counted).await;
        // What is left is the short one: crashed, it lasts for its ttl.
        std::mem::forget(short);
        let left = rig.server.pttl("order").await;
        assert!(left <= 1000, "{refused}: {left} ms are left");
    }
}

#[tokio::test]
async fn an_acquisition_that_is_refused_a_command_prolongs_nothing() {
    for refused in COMMANDS {
        let rig = Rig::start().await;
        // Not renewed.
        let short = rig.short.clone().renew(false).acquire().await.unwrap();
        rig.permit('-', refused).await;
        let entered = rig.long.try_acquire().await;
        rig.permit('+', refused).await;
        drop(entered);
        std::mem::forget(short);
        let next = rig.stranger.lock_apart("order").ttl(LONG);
        let guard = in_time(refused, next.acquire()).await.unwrap();
        guard.release().await.unwrap();
        until_clean(&rig.server).await;
    }
}

#[tokio::test]
async fn an_acquisition_that_is_refused_a_command_is_not_counted() {
    for refused in COMMANDS {
        let rig = Rig::start().await;
        let held = rig.long.acquire().await.unwrap();
        rig.permit('-', refused).await;
        let entered = rig.long.try_acquire().await;
        rig.permit('+', refused).await;
        drop(entered);
        held.release().await.unwrap();
        until_clean(&rig.server).await;
    }
}
