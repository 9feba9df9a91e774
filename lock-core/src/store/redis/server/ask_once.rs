//! A request without a server that keeps a connection.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Cmd, RedisResult, Value};

use crate::store::redis::connection;
use crate::store::redis::connection::target::Target;

/// Sends a request on a connection of its own, which ends with it.
pub(in crate::store::redis) async fn ask_once(
    target: &Target,
    command: &Cmd,
    limit: Duration,
) -> RedisResult<Value> {
    let connect = async |settings| {
        let config = AsyncConnectionConfig::new();
        connection::connect(target, &settings, config, true, || {}).await
    };
    let (connection, _) = target.logged_in(limit, None, connect).await?;
    connection.request(command).await?.extract_error()
}
