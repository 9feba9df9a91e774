use std::sync::Arc;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, RedisResult, Value};

use super::Contestant;
use super::floor::{Floor, Held};

/// The raw floor on several servers: each command to all of them at once, and on as soon as a majority has answered. No
/// retry, no time limit for a server, and nothing undone where the votes do not suffice.
#[derive(Clone)]
pub(crate) struct QuorumFloor(Arc<[Floor]>);

impl QuorumFloor {
    pub(crate) async fn connect(urls: &[String]) -> Result<Self> {
        let floors = try_join_all(urls.iter().map(|url| Floor::connect(url))).await?;
        Ok(Self(floors.into()))
    }

    /// Whether a majority gives the answer that is wanted.
    async fn vote(&self, command: Cmd, wanted: fn(&Value) -> bool) -> bool {
        let command = Arc::new(command);
        let mut pending: FuturesUnordered<_> = self
            .0
            .iter()
            .map(|floor| send(floor.connection(), Arc::clone(&command)))
            .collect();
        let majority = self.0.len() / 2 + 1;
        let mut votes = 0;
        while let Some(answer) = pending.next().await {
            if answer.is_ok_and(|answer| wanted(&answer)) {
                votes += 1;
            }
            if votes == majority {
                // A request that nobody waits for would not reach a server that is slow to take it.
                tokio::spawn(async move { while pending.next().await.is_some() {} });
                return true;
            }
        }
        false
    }
}

async fn send(
    mut connection: redis::aio::MultiplexedConnection,
    command: Arc<Cmd>,
) -> RedisResult<Value> {
    connection.send_packed_command(&command).await
}

impl Contestant for QuorumFloor {
    type Guard = Held;

    async fn acquire(&self, key: &str) -> Result<Held> {
        // Tokens and scripts are the same on all.
        let (held, command) = self.0[0].lock(key);
        let granted = self.vote(command, |answer| *answer == Value::Okay).await;
        ensure!(granted, "the floor has no majority for the lock");
        Ok(held)
    }

    async fn release(&self, held: Held) -> Result<()> {
        let command = self.0[0].unlock(&held);
        let released = self.vote(command, |answer| *answer == Value::Int(1)).await;
        ensure!(released, "the floor has no majority for the release");
        Ok(())
    }
}
