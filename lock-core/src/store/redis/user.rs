//! A connection that the user provides.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisResult, Value};

/// Any asynchronous connection of the `redis` crate, with its type erased.
#[derive(Clone)]
pub(crate) struct UserConnection(Arc<dyn AnyConnection>);

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
        Self(Arc::new(connection))
    }

    pub(super) fn request(&self, command: Cmd) -> BoxFuture<'static, RedisResult<Value>> {
        self.0.request(command)
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
