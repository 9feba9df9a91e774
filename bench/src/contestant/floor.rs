use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo, ProtocolVersion, Script};
use uuid::Uuid;

use super::{Contestant, TTL};

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// `SET NX PX` and a compare-and-delete, on a connection like the one that lock-core uses: no waiting, no queue, no
/// fencing, no watchdog.
#[derive(Clone)]
pub(crate) struct Floor {
    connection: MultiplexedConnection,
    release: String,
    /// Tokens are this and a number: a new random one each time would be dearer.
    client: Uuid,
    count: Arc<AtomicU64>,
}

/// A connection like the one that lock-core uses.
pub(super) async fn connect(
    url: &str,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection> {
    let info = url.into_connection_info()?;
    let settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3);
    let info = info
        .set_redis_settings(settings)
        .set_tcp_settings(TcpSettings::default().set_nodelay(true));
    redis::Client::open(info)?
        .get_multiplexed_async_connection_with_config(config)
        .await
        .context("no connection")
}

impl Floor {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let mut connection = connect(url, &AsyncConnectionConfig::new()).await?;
        let release = Script::new(RELEASE)
            .prepare_invoke()
            .load_async(&mut connection)
            .await?;
        Ok(Self {
            connection,
            release,
            client: Uuid::new_v4(),
            count: Arc::default(),
        })
    }

    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// The command that takes the lock, and what it makes of it.
    pub(super) fn lock(&self, key: &str) -> (Held, Cmd) {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let token = format!("{}:{count}", self.client.simple());
        let mut command = redis::cmd("SET");
        command
            .arg(key)
            .arg(&token)
            .arg("NX")
            .arg("PX")
            .arg(TTL.as_millis() as u64);
        let key = key.to_owned();
        (Held { key, token }, command)
    }

    /// The command that gives it back.
    pub(super) fn unlock(&self, held: &Held) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&self.release)
            .arg(1)
            .arg(&held.key)
            .arg(&held.token);
        command
    }
}

/// What has to be told to release.
pub(crate) struct Held {
    key: String,
    token: String,
}

impl Contestant for Floor {
    type Guard = Held;

    async fn acquire(&self, key: &str) -> Result<Held> {
        let (held, command) = self.lock(key);
        let granted: Option<String> = command.query_async(&mut self.connection()).await?;
        ensure!(granted.is_some(), "the lock of the raw floor is taken");
        Ok(held)
    }

    async fn release(&self, guard: Held) -> Result<()> {
        let command = self.unlock(&guard);
        let released: u8 = command.query_async(&mut self.connection()).await?;
        ensure!(released == 1, "the lock of the raw floor was not ours");
        Ok(())
    }
}
