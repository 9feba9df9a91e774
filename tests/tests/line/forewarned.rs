//! What a process is told before its turn.

use std::pin::pin;

use futures_util::{Stream, StreamExt};
use lock_core::Lock;
use lock_tests::TestServer;
use redis::aio::MultiplexedConnection;

use crate::support::{LONG, NAME, direct, granted, in_line, in_time, ms, patient};
use crate::support::{until_clean, until_waiting, waiters};

const QUEUE: &str = "lock-core:queue:{lock:k}";

/// What the clients of a server are told on their channels, but for what every hand-over says.
async fn told(server: &TestServer) -> impl Stream<Item = String> + use<> {
    let client = redis::Client::open(server.url()).unwrap();
    let mut pubsub = client.get_async_pubsub().await.unwrap();
    pubsub.psubscribe("lock-core:client:*").await.unwrap();
    let messages = pubsub.into_on_message();
    messages.filter_map(async |message| {
        let text: String = message.get_payload().unwrap();
        text.starts_with("soon ").then_some(text)
    })
}

async fn first_in_queue(connection: &mut MultiplexedConnection) -> String {
    let mut command = redis::cmd("LINDEX");
    command.arg(&[QUEUE, "0"]);
    command.query_async(connection).await.unwrap()
}

/// A handle whose process may keep the lock for as long as somebody waits there.
async fn lasting(server: &TestServer) -> Lock {
    let locks = patient().handover_time(ms(10_000));
    let locks = locks.connect(&server.url()).await.unwrap();
    locks.lock(NAME).ttl(LONG)
}

#[tokio::test]
async fn the_next_process_is_told_once_when_the_last_hold_of_a_turn_begins() {
    let server = TestServer::start().await;
    let (lock, other) = (lasting(&server).await, lasting(&server).await);
    let barrier = direct(&server).await.lock(NAME).ttl(LONG);
    let barrier = barrier.acquire().await.unwrap();
    let (first, second, third) = (
        in_line(&lock).await,
        in_line(&lock).await,
        in_line(&lock).await,
    );
    let rival = tokio::spawn(async move { other.acquire().await.unwrap() });
    until_waiting(&lock, 4).await;
    let mut told = pin!(told(&server).await);

    barrier.release().await.unwrap();
    for waiter in [first, second] {
        let guard = granted(waiter).await;
        // Long enough to be worth a message.
        tokio::time::sleep(ms(3)).await;
        guard.release().await.unwrap();
    }
    let guard = granted(third).await;
    let message = in_time("the message", told.next()).await.unwrap();
    let mut connection = server.connection().await;
    let next = first_in_queue(&mut connection).await;
    assert_eq!(message, format!("soon {next}"));
    // One more comes, so the turn does not end yet; but who is told is awake.
    let fourth = in_line(&lock).await;
    tokio::time::sleep(ms(3)).await;
    guard.release().await.unwrap();
    granted(fourth).await.release().await.unwrap();
    granted(rival).await.release().await.unwrap();

    let () = redis::cmd("PUBLISH")
        .arg(&["lock-core:client:", "soon over"])
        .query_async(&mut connection)
        .await
        .unwrap();
    let message = in_time("the message", told.next()).await.unwrap();
    assert_eq!(message, "soon over", "and nobody else was told");
    until_clean(&server).await;
}

#[tokio::test]
async fn a_message_that_comes_to_nothing_changes_nothing() {
    let server = TestServer::start().await;
    let lock = direct(&server).await.lock(NAME).ttl(LONG);
    let held = lock.acquire().await.unwrap();
    let waiter = in_line(&direct(&server).await.lock(NAME).ttl(LONG)).await;
    let mut connection = server.connection().await;
    let next = first_in_queue(&mut connection).await;
    for token in [&*next, &next[..36], "nobody"] {
        let () = redis::cmd("PUBLISH")
            .arg(format!("lock-core:client:{}", &next[..36]))
            .arg(format!("soon {token}"))
            .query_async(&mut connection)
            .await
            .unwrap();
    }
    assert_eq!(waiters(&lock).await, 1);
    assert!(held.is_held() && !waiter.is_finished());
    held.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    until_clean(&server).await;
}
