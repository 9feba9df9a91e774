//! A server that does not let us listen to the channel of a lock.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lock_core::{LockManager, Owner};
use lock_tests::{Capture, LIMIT, TestServer, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::reentrant::apart::Apart;
use crate::reentrant::redisson_client::channel;
use crate::reentrant::support::{in_time, manager, manager_at, ms, until_listening};

/// What servers say who were started without the command, or do not know it.
const REFUSAL: &[u8] = b"-ERR unknown command 'SUBSCRIBE'\r\n";
/// What passes.
const NOT_NOW: &[u8] = b"-LOADING Redis is loading the dataset in memory\r\n";

/// What is answered in the server's place, if anything.
type Answer = Arc<Mutex<Option<&'static [u8]>>>;
type Count = Arc<AtomicUsize>;

/// A relay that can answer in the server's place whoever subscribes to the channel of `order`. Ends when dropped.
struct Relay {
    addr: SocketAddr,
    denying: Answer,
    refused: Count,
    _connections: JoinSet<()>,
}

impl Relay {
    async fn start(server: &TestServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (addr, target) = (listener.local_addr().unwrap(), server.addr());
        let (denying, refused) = (Answer::default(), Count::default());
        let (theirs, count) = (Arc::clone(&denying), Arc::clone(&refused));
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut relays = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                relays.spawn(relay(
                    client,
                    target,
                    Arc::clone(&theirs),
                    Arc::clone(&count),
                ));
            }
        });
        Self {
            addr,
            denying,
            refused,
            _connections: connections,
        }
    }

    fn refuse(&self) {
        self.answer(Some(REFUSAL));
    }

    fn answer(&self, answer: Option<&'static [u8]>) {
        *self.denying.lock().unwrap() = answer;
    }

    async fn locks(&self) -> LockManager {
        manager_at(&format!("redis://{}", self.addr), LIMIT).await
    }
}

/// Ends with an error where either side does.
async fn relay(
    mut client: TcpStream,
    target: SocketAddr,
    denying: Answer,
    refused: Count,
) -> io::Result<()> {
    let mut server = TcpStream::connect(target).await?;
    let channel = channel("order");
    let subscribe = format!(
        "*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{channel}\r\n",
        channel.len()
    );
    let (mut request, mut reply) = ([0; 4096], [0; 4096]);
    loop {
        // Nothing else is under way when a waiter of these tests subscribes, so the answers keep their order.
        tokio::select! {
            size = client.read(&mut request) => {
                let refusal = *denying.lock().unwrap();
                match (&request[..size?], refusal) {
                    ([], _) => return Ok(()),
                    (words, Some(refusal)) if words == subscribe.as_bytes() => {
                        client.write_all(refusal).await?;
                        refused.fetch_add(1, Ordering::SeqCst);
                    }
                    (words, _) => server.write_all(words).await?,
                }
            }
            size = server.read(&mut reply) => match &reply[..size?] {
                [] => return Ok(()),
                words => client.write_all(words).await?,
            },
        }
    }
}

/// Waits for `order` in vain and at last gets it; how often it was warned of.
async fn waits_and_warns(server: &TestServer, locks: &LockManager) -> usize {
    let capture = Capture::start();
    let holder = manager(server).await.lock_apart("order");
    let lock = locks.lock_apart("order").owner(&Owner::new());
    let warnings = || {
        let events = capture.events().into_iter();
        let warnings = events.filter(|event| {
            event.level == tracing::Level::WARN
                && event.message().contains("its messages will poll")
        });
        warnings.count()
    };
    let guard = holder.acquire().await.unwrap();
    // Each of them asks for the channel, if it has the time.
    let wait_in_vain = async || assert!(lock.acquire_within(ms(100)).await.is_err());
    eventually("a warning", LIMIT, async || {
        wait_in_vain().await;
        warnings() > 0
    })
    .await;
    for _ in 0..3 {
        wait_in_vain().await;
    }
    guard.release().await.unwrap();
    let guard = in_time("the lock", lock.acquire()).await.unwrap();
    guard.release().await.unwrap();
    warnings()
}

#[tokio::test]
async fn a_subscription_refused_for_any_reason_is_warned_of_once_a_connection() {
    let server = TestServer::start().await;
    let relay = Relay::start(&server).await;
    relay.refuse();
    let locks = relay.locks().await;
    assert_eq!(waits_and_warns(&server, &locks).await, 1);
    server.client_kill_all().await;
    eventually("a new connection", LIMIT, async || {
        locks.lock("other").inspect().await.is_ok()
    })
    .await;
    assert_eq!(
        waits_and_warns(&server, &locks).await,
        1,
        "a new connection"
    );
    assert_eq!(locks.shutdown(LIMIT).await, 0);
}

#[tokio::test]
async fn a_refusal_does_not_keep_a_new_connection_from_being_made() {
    let server = TestServer::start().await;
    let relay = Relay::start(&server).await;
    let locks = relay.locks().await;
    let holder = manager(&server).await.lock_apart("order");
    let guard = holder.acquire().await.unwrap();
    let waiter = locks.lock_apart("order");
    let waiting = tokio::spawn({
        let waiter = waiter.clone();
        async move { waiter.acquire().await }
    });
    until_listening(&server, "order", 1).await;
    relay.refuse();
    // What is listened to is subscribed to again when a connection is made.
    server.client_kill_all().await;
    let other = in_time("another lock", locks.lock("other").acquire()).await;
    other.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    let guard = in_time("the lock", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_subscription_that_failed_for_a_moment_is_made_soon_after() {
    let server = TestServer::start().await;
    let relay = Relay::start(&server).await;
    relay.answer(Some(NOT_NOW));
    let locks = relay.locks().await;
    let holder = manager(&server).await.lock_apart("order");
    let guard = holder.acquire().await.unwrap();
    let lock = locks.lock_apart("order");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    eventually("it has subscribed in vain", LIMIT, async || {
        relay.refused.load(Ordering::SeqCst) > 0
    })
    .await;
    relay.answer(None);
    until_listening(&server, "order", 1).await;
    guard.release().await.unwrap();
    let guard = in_time("the lock", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}
