//! A connection that the user provides.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use once_cell::sync::OnceCell;
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, Value};

use crate::base::timers::{OF_CALLER, Timers};

/// Any asynchronous connection of the `redis` crate, with its type erased.
#[derive(Clone)]
pub(crate) struct UserConnection {
    connection: Arc<dyn AnyConnection>,
    timers: OnceCell<Timers>,
}

impl fmt::Debug for UserConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserConnection")
    }
}

impl UserConnection {
    pub(crate) fn new<C>(connection: C) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self {
            connection: Arc::new(connection),
            timers: OnceCell::new(),
        }
    }

    pub(in crate::store::redis) fn attach(&self, timers: Timers) {
        let _ = self.timers.set(timers);
    }

    pub(in crate::store::redis) fn timers(&self) -> &Timers {
        self.timers.get().unwrap_or(&OF_CALLER)
    }

    pub(in crate::store::redis) async fn request(&self, command: Cmd) -> RedisResult<Value> {
        // The connection may have time limits of its own.
        self.timers().lend(self.connection.request(command)).await
    }
}

trait AnyConnection: Send + Sync {
    fn request(&self, command: Cmd) -> BoxFuture<'static, RedisResult<Value>>;
}

impl<C> AnyConnection for C
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn request(&self, command: Cmd) -> BoxFuture<'static, RedisResult<Value>> {
        let mut connection = self.clone();
        Box::pin(async move { command.query_async(&mut connection).await })
    }
}
