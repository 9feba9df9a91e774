//! What is sent in one go and has one answer.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};

pub(super) trait Request: Send + Sync {
    /// Sends it, and waits for its answer.
    fn send(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> impl Future<Output = RedisResult<Value>> + Send;
}

impl<R: Request> Request for &R {
    fn send(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> impl Future<Output = RedisResult<Value>> + Send {
        (**self).send(connection)
    }
}

impl Request for Cmd {
    async fn send(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        connection.send_packed_command(self).await
    }
}

/// Commands that are written together. The answer is the list of theirs. Between two of them a server may do something else:
/// to keep it from that, by MULTI, costs us twice as much, as there are twice as many answers.
pub(super) struct InARow(Pipeline);

impl InARow {
    pub(super) fn of(commands: impl IntoIterator<Item = Cmd>) -> Self {
        let mut all = redis::pipe();
        for command in commands {
            all.add_command(command);
        }
        Self(all)
    }
}

impl Request for InARow {
    async fn send(&self, connection: &mut MultiplexedConnection) -> RedisResult<Value> {
        let answers = connection.send_packed_commands(&self.0, 0, self.0.len());
        answers.await.map(Value::Array)
    }
}
