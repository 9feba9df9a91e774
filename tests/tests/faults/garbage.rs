//! Replies that are no replies.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use lock_core::{LockError, LockManager};
use lock_tests::{LIMIT, TestServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::{KEY, LONG, NAME, connect, in_time, ms, until_clean, until_gone, warm_server};

/// What stands in for the server's next words, and whether the connection ends then.
type Forgery = Arc<Mutex<Option<(&'static [u8], bool)>>>;

/// A relay that forges one answer. Ends when dropped.
struct Forger {
    addr: SocketAddr,
    forgery: Forgery,
    _connections: JoinSet<()>,
}

impl Forger {
    async fn start(server: &TestServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (target, forgery) = (server.addr(), Forgery::default());
        let mut connections = JoinSet::new();
        let theirs = Arc::clone(&forgery);
        connections.spawn(async move {
            let mut relays = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                relays.spawn(relay(client, target, Arc::clone(&theirs)));
            }
        });
        Self {
            addr,
            forgery,
            _connections: connections,
        }
    }

    fn forge(&self, answer: &'static [u8], then_close: bool) {
        *self.forgery.lock().unwrap() = Some((answer, then_close));
    }

    fn is_used(&self) -> bool {
        self.forgery.lock().unwrap().is_none()
    }
}

async fn relay(client: TcpStream, target: SocketAddr, forgery: Forgery) {
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::io::copy(&mut from_client, &mut to_server);
    let down = async {
        let mut buffer = [0; 4096];
        while let Ok(size @ 1..) = from_server.read(&mut buffer).await {
            let forged = forgery.lock().unwrap().take();
            let (words, close) = forged.unwrap_or((&buffer[..size], false));
            if to_client.write_all(words).await.is_err() || close {
                return;
            }
        }
    };
    tokio::select! {
        _ = up => {}
        () = down => {}
    }
}

const ENDLESS: &str = "a bulk of an absurd size";

/// What a broken or strange server may say instead of an answer to an acquire.
const FORGERIES: [(&str, &[u8], bool); 11] = [
    (
        "no protocol at all",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        false,
    ),
    ("zeros", &[0; 64], false),
    ("a cut array", b"*5\r\n$6\r\nque", true),
    ("a cut number", b":17", true),
    (ENDLESS, b"$99999999999999\r\nx", false),
    ("a negative size", b"*-7\r\n", false),
    ("another type", b"+OK\r\n", false),
    ("nothing", b"$-1\r\n", false),
    ("a negative fence", b":-5\r\n", false),
    ("an empty array", b"*0\r\n", false),
    ("half an answer", b"*2\r\n$6\r\nqueued\r\n:5\r\n", false),
];

async fn manager(forger: &Forger) -> LockManager {
    connect(&format!("redis://{}", forger.addr), ms(300)).await
}

#[tokio::test]
async fn a_forged_answer_to_an_acquire_is_never_a_grant_that_is_not() {
    let server = warm_server().await;
    let forger = Forger::start(&server).await;
    for (what, answer, close) in FORGERIES {
        let locks = manager(&forger).await;
        let lock = locks.lock(NAME).ttl(LONG);
        forger.forge(answer, close);
        let outcome = in_time(what, lock.acquire_within(LIMIT)).await;
        let guard = outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(forger.is_used(), "{what}");
        assert!(guard.is_held() && server.exists(KEY).await, "{what}");
        guard.release().await.unwrap();
        // A single try may fail, but leaves nothing.
        forger.forge(answer, close);
        match in_time(what, lock.try_acquire()).await {
            Ok(Some(guard)) => assert!(guard.is_held() && server.exists(KEY).await, "{what}"),
            Ok(None) => panic!("{what}: nobody else held it"),
            Err(error) => println!("{what}: {error}"),
        }
        assert_eq!(locks.shutdown(LIMIT).await, 0, "{what}");
        until_clean(&server).await;
    }
}

#[tokio::test]
async fn a_forged_answer_to_a_release_does_not_keep_the_lock() {
    let server = warm_server().await;
    let forger = Forger::start(&server).await;
    for (what, answer, close) in FORGERIES {
        let locks = manager(&forger).await;
        let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
        forger.forge(answer, close);
        let released = in_time(what, guard.release()).await;
        // An answer that never ends takes longer to be found out than a release waits; the release goes on in the background.
        let unconfirmed = matches!(released, Err(LockError::Unavailable { .. }));
        assert!(
            released.is_ok() || (unconfirmed && what == ENDLESS),
            "{what}: {released:?}"
        );
        until_gone(&server, KEY).await;
        assert_eq!(locks.shutdown(LIMIT).await, 0, "{what}");
    }
    until_clean(&server).await;
}
