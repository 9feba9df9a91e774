//! Reentrant locks beside Redisson, which announces a release on a sharded channel in a cluster, and earlier versions of both, which
//! use a channel of the other kind.

use std::time::{Duration, Instant};

use lock_core::{LockManager, Owner, ReentrantLock};
use lock_tests::kit::command;
use lock_tests::{Capture, LIMIT, Proxy, TestCluster, TestServer, eventually, in_time, rights};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::cluster::access::{behind_proxies, permit};

const LONG: Duration = Duration::from_secs(3600);
const CHANNEL: &str = "redisson_lock__channel:{order}";

/// How long a wait of ours may last that no message ends.
const REFRESH: Duration = Duration::from_secs(3);

/// A cluster, a manager behind proxies, and the number of the master of the lock `order`.
struct Rig {
    cluster: TestCluster,
    proxies: Vec<Proxy>,
    locks: LockManager,
    at: usize,
}

impl Rig {
    async fn start(masters: usize) -> Self {
        let cluster = TestCluster::start(masters).await;
        let builder = LockManager::builder()
            .default_ttl(LONG)
            .command_deadline(LIMIT);
        let (proxies, locks) = behind_proxies(&cluster, builder).await;
        for node in 0..masters {
            // Each server knows the scripts from then on, so that each operation is one request.
            let lock = locks.reentrant_lock(format!("{{{}}}", cluster.tag_on(node).await));
            let guard = lock.owner(&Owner::new()).acquire().await.unwrap();
            guard.release().await.unwrap();
        }
        let at = cluster.master_of(cluster.slot_of("order").await);
        Self {
            cluster,
            proxies,
            locks,
            at,
        }
    }

    fn lock(&self) -> ReentrantLock {
        self.locks.reentrant_lock("order").owner(&Owner::new())
    }

    fn server(&self, node: usize) -> &TestServer {
        &self.cluster.nodes[node].server
    }

    /// Redisson takes the lock, and a task of ours waits for it when this returns.
    async fn waiting(&self, at: usize) -> tokio::task::JoinHandle<()> {
        let () = command(self.server(at), "HSET order java:1 1").await;
        let () = command(self.server(at), "PEXPIRE order 3600000").await;
        let asked = self.asked(at);
        let lock = self.lock();
        let task = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            guard.release().await.unwrap();
        });
        // It asks for its owner, asks as a waiter, subscribes, and asks once more. Requests keep their order, so the server has answered
        // when it answers the next.
        self.proxies[at].on_count(asked + 3, is_acquire).await;
        assert!(self.lock().inspect().await.unwrap().is_held());
        task
    }

    fn asked(&self, at: usize) -> usize {
        self.proxies[at].count(is_acquire)
    }

    /// Whether a release that is published so wakes our waiter: most of some waits are much shorter than one that the clock ends.
    async fn wakes(&self, publish: &str, at: usize) {
        let mut took = Vec::new();
        for _ in 0..5 {
            let waiting = self.waiting(at).await;
            let since = Instant::now();
            let () = command(self.server(at), "DEL order").await;
            let () = command(self.server(at), &format!("{publish} {CHANNEL} 0")).await;
            in_time("the lock", waiting).await.unwrap();
            took.push(since.elapsed());
        }
        took.sort_unstable();
        assert!(took[2] < REFRESH / 2, "{publish}: {took:?}");
    }

    async fn nothing_is_left(&self) {
        eventually("no subscription is left", LIMIT, async || {
            let mut left = 0;
            for node in 0..self.cluster.nodes.len() {
                left += subscribers(self.server(node), "NUMSUB").await;
                left += subscribers(self.server(node), "SHARDNUMSUB").await;
            }
            left == 0
        })
        .await;
    }
}

fn is_acquire(request: &lock_tests::Request) -> bool {
    request.script() == Some("reentrant acquire")
}

async fn subscribers(server: &TestServer, how: &str) -> u64 {
    let (_, count): (String, u64) = command(server, &format!("PUBSUB {how} {CHANNEL}")).await;
    count
}

/// A client that only listens.
struct Listener(BufReader<TcpStream>);

impl Listener {
    async fn start(server: &TestServer, subscribe: &str) -> Self {
        let mut stream = TcpStream::connect(server.addr()).await.unwrap();
        let command = format!("{subscribe} {CHANNEL}\r\n");
        stream.write_all(command.as_bytes()).await.unwrap();
        let mut listener = Self(BufReader::new(stream));
        while listener.line().await != ":1" {}
        listener
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        in_time("a line", self.0.read_line(&mut line))
            .await
            .unwrap();
        line.trim_end().to_owned()
    }

    /// The number that the next message is to Redisson.
    async fn number(&mut self) -> u64 {
        while self.line().await != CHANNEL {}
        self.line().await;
        self.line().await.parse().unwrap()
    }
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_heard_on_sharded_and_on_other_channels() {
    for masters in [1, 3] {
        let rig = Rig::start(masters).await;
        let mut in_slot = Listener::start(rig.server(rig.at), "SSUBSCRIBE").await;
        let mut elsewhere = Listener::start(rig.server((rig.at + 1) % masters), "SUBSCRIBE").await;
        for force in [false, true] {
            let guard = rig.lock().acquire().await.unwrap();
            if force {
                assert!(rig.lock().force_release().await.unwrap());
            } else {
                guard.release().await.unwrap();
            }
            assert_eq!(in_slot.number().await, 0);
            assert_eq!(elsewhere.number().await, 0);
        }
    }
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_redisson_wakes_our_waiter_on_either_channel() {
    for masters in [1, 3] {
        let rig = Rig::start(masters).await;
        rig.wakes("SPUBLISH", rig.at).await;
        rig.wakes("PUBLISH", rig.at).await;
        rig.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_asks_once_for_a_release_that_it_hears_twice() {
    let rig = Rig::start(1).await;
    // A waiter asks once more when the connection for its subscription is made.
    rig.wakes("SPUBLISH", 0).await;
    let waiting = rig.waiting(0).await;
    let before = rig.asked(0);
    for _ in 0..8 {
        let asked = rig.asked(0);
        // As our script announces a release.
        let () = command(rig.server(0), &format!("SPUBLISH {CHANNEL} 00")).await;
        let () = command(rig.server(0), &format!("SPUBLISH {CHANNEL} 0")).await;
        rig.proxies[0].on_count(asked + 1, is_acquire).await;
        assert!(rig.lock().inspect().await.unwrap().is_held());
    }
    // It also asks every few seconds.
    let asked = rig.asked(0) - before;
    assert!((8..16).contains(&asked), "{asked}");
    waiting.abort();
}

/// Proves P15.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_follows_its_slot_and_no_answer_goes_to_another_request() {
    let rig = Rig::start(3).await;
    let slot = rig.cluster.slot_of("order").await;
    let busy = rig.locks.clone();
    // Requests are under way whenever a server ends a subscription.
    let busy = tokio::spawn(async move {
        loop {
            for number in 0..24 {
                let lock = busy
                    .reentrant_lock(format!("busy-{number}"))
                    .owner(&Owner::new());
                let guard = lock.acquire().await.unwrap();
                assert_eq!(lock.inspect().await.unwrap().holds(), 1);
                guard.release().await.unwrap();
            }
        }
    });
    let mut at = rig.at;
    for _ in 0..3 {
        let waiting = rig.waiting(at).await;
        let to = (at + 1) % 3;
        rig.cluster.move_slot(slot, at, to).await;
        eventually("the waiter listens at the new master", LIMIT, async || {
            subscribers(rig.server(to), "SHARDNUMSUB").await == 1
        })
        .await;
        let asked = rig.asked(to);
        let () = command(rig.server(to), &format!("SPUBLISH {CHANNEL} 0")).await;
        rig.proxies[to].on_count(asked + 1, is_acquire).await;
        let () = command(rig.server(to), "DEL order").await;
        let () = command(rig.server(to), &format!("SPUBLISH {CHANNEL} 0")).await;
        in_time("the lock", waiting).await.unwrap();
        at = to;
        rig.wakes("SPUBLISH", at).await;
    }
    assert!(!busy.is_finished(), "{:?}", busy.await);
    busy.abort();
    rig.nothing_is_left().await;
}

/// Proves P15.
#[tokio::test]
async fn without_the_rights_for_sharded_channels_only_the_other_channel_is_used() {
    let cluster = TestCluster::start(1).await;
    let server = &cluster.nodes[0].server;
    let [exclusive, reentrant, _, of_cluster, sharded] = rights();
    let mut commands = exclusive.commands;
    commands.extend(reentrant.commands);
    commands.extend(of_cluster.commands);
    let patterns = format!(
        "{} {}",
        exclusive.patterns,
        reentrant.patterns.replace("order:*", "order")
    );
    let capture = Capture::start();
    for missing in 0..=sharded.commands.len() {
        // First all of the rights, then without one of them, then none.
        let mut commands = commands.clone();
        commands.extend(sharded.commands.iter().skip(missing));
        permit(&cluster, &commands, &patterns).await;
        let url = format!("redis+cluster://app:secret@{}", server.addr());
        let builder = LockManager::builder().default_ttl(LONG);
        let locks = builder.connect(&url).await.unwrap();
        let warned = capture.events().len();
        let mut took = Vec::new();
        for _ in 0..5 {
            let () = command(server, "HSET order java:1 1").await;
            let () = command(server, "PEXPIRE order 3600000").await;
            let lock = locks.reentrant_lock("order").owner(&Owner::new());
            let waiting = tokio::spawn(async move { lock.acquire().await });
            eventually("it listens", LIMIT, async || {
                subscribers(server, "NUMSUB").await == 1
            })
            .await;
            let since = Instant::now();
            let () = command(server, "DEL order").await;
            let () = command(server, &format!("PUBLISH {CHANNEL} 0")).await;
            let guard = in_time("the lock", waiting).await.unwrap().unwrap();
            guard.release().await.unwrap();
            took.push(since.elapsed());
        }
        took.sort_unstable();
        assert!(took[2] < REFRESH / 2, "{took:?}");
        let mut events = capture.events().split_off(warned);
        events.retain(|event| event.level == tracing::Level::WARN);
        // The right to publish is the first one.
        let refused = usize::from(missing >= 2);
        assert_eq!(events.len(), refused, "{missing}: {events:?}");
    }
}
