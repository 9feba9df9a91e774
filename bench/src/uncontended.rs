//! What a free lock costs over the least that a lock can be.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lock_core::{LockError, LockManager};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, ProtocolVersion, Script};
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::rounds::{Plan, Round, alternate};
use crate::scenario::{Flavor, Scenario, as_task};

const TTL: Duration = Duration::from_secs(30);

/// Lock and release against `SET NX PX` and a compare-and-delete: no waiting, no queue, no fencing, no watchdog.
pub(crate) struct Uncontended {
    flavor: Flavor,
    runtime: Runtime,
    locks: LockManager,
    floor: Floor,
}

impl Uncontended {
    pub(crate) fn new(url: &str, flavor: Flavor) -> Result<Self> {
        let runtime = flavor.runtime()?;
        let (locks, floor) = runtime.block_on(async {
            let locks = LockManager::connect(url).await?;
            anyhow::Ok((locks, Floor::connect(url).await?))
        })?;
        Ok(Self {
            flavor,
            runtime,
            locks,
            floor,
        })
    }
}

impl Scenario for Uncontended {
    fn name(&self) -> &'static str {
        "uncontended"
    }

    fn variant(&self) -> String {
        self.flavor.name().to_owned()
    }

    fn sides(&self) -> [&'static str; 2] {
        ["lock", "raw floor"]
    }

    fn demanded(&self) -> Option<f64> {
        None
    }

    fn round(&self, plan: Plan) -> Result<Round> {
        let (locks, floor) = (self.locks.clone(), self.floor.clone());
        as_task(&self.runtime, async move {
            let (locks, floor) = (&locks, &floor);
            let lock = || async { Ok(lock_and_release(locks).await?) };
            alternate(plan, lock, || floor.lock_and_release()).await
        })
    }
}

async fn lock_and_release(locks: &LockManager) -> Result<(), LockError> {
    let lock = locks.lock("bench:uncontended").ttl(TTL);
    lock.acquire().await?.release().await
}

/// The least that a lock can be: two commands on one connection.
#[derive(Clone)]
struct Floor {
    connection: MultiplexedConnection,
    release: String,
}

impl Floor {
    const KEY: &'static str = "bench:floor";
    const RELEASE: &'static str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

    async fn connect(url: &str) -> Result<Self> {
        let info = url.into_connection_info()?;
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        let info = info
            .set_redis_settings(settings)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let mut connection = redis::Client::open(info)?
            .get_multiplexed_async_connection_with_config(&AsyncConnectionConfig::new())
            .await
            .context("no connection for the raw floor")?;
        let release = Script::new(Self::RELEASE)
            .prepare_invoke()
            .load_async(&mut connection)
            .await?;
        Ok(Self {
            connection,
            release,
        })
    }

    async fn lock_and_release(&self) -> Result<()> {
        let mut connection = self.connection.clone();
        let token = Uuid::new_v4().to_string();
        let granted: Option<String> = redis::cmd("SET")
            .arg(Self::KEY)
            .arg(&token)
            .arg("NX")
            .arg("PX")
            .arg(TTL.as_millis() as u64)
            .query_async(&mut connection)
            .await?;
        ensure!(granted.is_some(), "the lock of the raw floor is taken");
        let released: u8 = redis::cmd("EVALSHA")
            .arg(&self.release)
            .arg(1)
            .arg(Self::KEY)
            .arg(&token)
            .query_async(&mut connection)
            .await?;
        ensure!(released == 1, "the lock of the raw floor was not ours");
        Ok(())
    }
}
