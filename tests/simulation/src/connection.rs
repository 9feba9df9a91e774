//! The connection of a program that brings its own, as the redis crate's `ConnectionManager` is one: many share it, and it
//! is made again when it breaks.

use std::sync::Arc;

use lock_core::sim;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, RedisFuture,
    RedisResult, Value,
};
use tokio::sync::Mutex;

/// The host that it names; there is one server.
const HOST: &str = "server";

#[derive(Clone)]
pub(crate) struct UserConnection {
    process: Arc<dyn sim::Process>,
    made: Arc<Mutex<Option<MultiplexedConnection>>>,
}

impl UserConnection {
    pub(crate) fn new(process: Arc<dyn sim::Process>) -> Self {
        Self {
            process,
            made: Arc::default(),
        }
    }

    /// By a task, as in the crate: no caller that does not run keeps the others from it.
    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        if let Ok(made) = self.made.try_lock()
            && let Some(connection) = &*made
        {
            return Ok(connection.clone());
        }
        let this = self.clone();
        let made = sim::spawn_in(&self.process, async move { this.make().await });
        made.await
            .map_err(|_| RedisError::from((ErrorKind::Io, "the runtime has ended")))?
    }

    async fn make(&self) -> RedisResult<MultiplexedConnection> {
        let mut made = self.made.lock().await;
        if let Some(connection) = &*made {
            return Ok(connection.clone());
        }
        let stream = self.process.connect(HOST, 6379).await?;
        let (connection, driver) = MultiplexedConnection::new_with_config(
            &RedisConnectionInfo::default(),
            stream,
            AsyncConnectionConfig::new(),
        )
        .await?;
        sim::spawn_in(&self.process, driver);
        *made = Some(connection.clone());
        Ok(connection)
    }

    async fn settle<T>(&self, outcome: RedisResult<T>) -> RedisResult<T> {
        if let Err(error) = &outcome
            && error.is_connection_dropped()
        {
            *self.made.lock().await = None;
        }
        outcome
    }
}

impl ConnectionLike for UserConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let outcome = self.connection().await?.send_packed_command(command).await;
            self.settle(outcome).await
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let mut connection = self.connection().await?;
            let outcome = connection
                .send_packed_commands(pipeline, offset, count)
                .await;
            self.settle(outcome).await
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}
