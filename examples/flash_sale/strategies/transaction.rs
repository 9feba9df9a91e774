//! The optimist: nobody waits, but EXEC does nothing if the stock was changed since WATCH, and all was in vain.
//!
//! WATCH belongs to a connection, so every purchase needs one of its own while it lasts.

use std::time::Duration;

use lock_examples::Outcome;
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::line::Answer;
use crate::shop::{Order, Till, connect};

/// How many purchases of a process can be under way at a time.
const CONNECTIONS: usize = 8;

pub(crate) struct Counter {
    free: Mutex<Receiver<MultiplexedConnection>>,
    back: Sender<MultiplexedConnection>,
}

impl Counter {
    pub(crate) async fn open(till: &Till) -> Outcome<Self> {
        let (back, free) = channel(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            back.send(connect(&till.url).await?).await?;
        }
        Ok(Self {
            free: Mutex::new(free),
            back,
        })
    }

    pub(crate) async fn sell(&self, till: &Till, order: &Order) -> Outcome<Answer> {
        let connection = self.free.lock().await.recv().await;
        let mut connection = connection.ok_or("the connections are gone")?;
        let answer = loop {
            if let Some(answer) = attempt(till, order, &mut connection).await? {
                break answer;
            }
            // Those who lost together should not meet again.
            tokio::time::sleep(Duration::from_micros(fastrand::u64(..2000))).await;
        };
        self.back.send(connection).await?;
        Ok(answer)
    }
}

/// `None` where another was faster.
async fn attempt(
    till: &Till,
    order: &Order,
    connection: &mut MultiplexedConnection,
) -> Outcome<Option<Answer>> {
    let stock = till.keys.stock();
    till.sends(2);
    let (left,): (Option<i64>,) = redis::pipe()
        .cmd("WATCH")
        .arg(&stock)
        .ignore()
        .get(&stock)
        .query_async(connection)
        .await?;
    if left.unwrap_or(0) <= 0 {
        till.sends(1);
        let () = redis::cmd("UNWATCH").query_async(connection).await?;
        return Ok(Some(Answer::SoldOut));
    }
    till.work(order).await;
    till.sends(4);
    let mut transaction = redis::pipe();
    transaction.atomic().decr(&stock, 1).ignore();
    transaction.xadd(till.keys.orders(), "*", &[("id", &order.id)]);
    let done: Option<(String,)> = transaction.query_async(connection).await?;
    Ok(done.map(|_| Answer::Sold))
}
