//! Users and passwords that change while the program runs.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{Credentials, LockError, LockGuard, LockManager, LockManagerBuilder};
use lock_tests::kit::command;
use lock_tests::{Capture, LIMIT, Proxy, Sentinel, TestCluster, TestServer, eventually};
use tokio::time::{Instant, sleep_until};

/// A vault with the present password of the user `app`.
#[derive(Clone, Default)]
struct Vault {
    password: Arc<Mutex<String>>,
    asked: Arc<AtomicU64>,
    is_sealed: Arc<AtomicBool>,
}

impl Vault {
    fn change(&self, password: &str) {
        password.clone_into(&mut self.password.lock().unwrap());
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// From now on it gives no credentials.
    fn seal(&self) {
        self.is_sealed.store(true, Ordering::SeqCst);
    }

    fn gives(&self) -> io::Result<Credentials> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.is_sealed.load(Ordering::SeqCst) {
            return Err(io::Error::other("the vault is sealed"));
        }
        let password = self.password.lock().unwrap().clone();
        Ok(Credentials::new("app", password))
    }

    fn builder(&self, lasts: Option<Duration>) -> LockManagerBuilder {
        let vault = self.clone();
        LockManager::builder().credentials(move || {
            let vault = vault.clone();
            async move {
                let credentials = vault.gives()?;
                Ok::<_, io::Error>(match lasts {
                    Some(time) => credentials.lasts(time),
                    None => credentials,
                })
            }
        })
    }
}

async fn set(server: &TestServer, password: &str) {
    let () = command(
        server,
        &format!("ACL SETUSER app reset on >{password} ~* &* +@all"),
    )
    .await;
}

async fn is_used_by_app(server: &TestServer) -> bool {
    let clients: String = command(server, "CLIENT LIST").await;
    clients.contains("user=app")
}

async fn works(locks: &LockManager) {
    let guard = locks.lock("a").acquire_within(LIMIT).await.unwrap();
    guard.release().await.unwrap();
}

/// The server changes before the vault, and all connections are cut each time.
#[tokio::test]
async fn a_password_that_changes_every_two_seconds_costs_no_hold() {
    let server = TestServer::start().await;
    let vault = Vault::default();
    set(&server, "secret0").await;
    vault.change("secret0");
    let ttl = Duration::from_secs(6);
    let builder = vault.builder(None).default_ttl(ttl);
    let locks = builder.connect(&server.url()).await.unwrap();
    let mut guards: Vec<LockGuard> = Vec::new();
    for n in 0..100 {
        guards.push(locks.lock(format!("held:{n}")).acquire().await.unwrap());
    }
    let started = Instant::now();
    for round in 1..=10 {
        sleep_until(started + Duration::from_secs(2) * round).await;
        let password = format!("secret{round}");
        set(&server, &password).await;
        let _: i64 = command(&server, "CLIENT KILL USER app").await;
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { works(&locks).await }
        });
        sleep_until(Instant::now() + Duration::from_millis(200)).await;
        vault.change(&password);
        waiting.await.unwrap();
    }
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert!(vault.asked() > 10);
}

#[tokio::test]
async fn a_connection_authenticates_anew_before_its_credentials_end() {
    let server = TestServer::start().await;
    let vault = Vault::default();
    set(&server, "first").await;
    vault.change("first");
    let builder = vault.builder(Some(Duration::from_millis(500)));
    let locks = builder.connect(&server.url()).await.unwrap();
    let asked = vault.asked();
    let times = async |least: u64| {
        let stats = server.commandstats().await;
        stats.get("auth").copied().unwrap_or_default() >= least
    };
    eventually(
        "it authenticates anew, again and again",
        LIMIT,
        async || times(2).await,
    )
    .await;
    assert!(vault.asked() >= asked + 2);
    // A provider that has none costs the connection nothing, and a warning.
    let capture = Capture::start();
    vault.change("wrong");
    let warned = "the connection could not authenticate anew: trying again";
    eventually("it is warned", LIMIT, async || {
        capture
            .events()
            .iter()
            .any(|event| event.message() == warned)
    })
    .await;
    works(&locks).await;
    let text = format!("{:?}", capture.events());
    assert!(!text.contains("wrong\""), "{text}");
}

#[tokio::test]
async fn each_kind_of_server_asks_the_provider() {
    let vault = Vault::default();
    vault.change("secret");
    let server = TestServer::start().await;
    set(&server, "secret").await;
    let sentinel = Sentinel::start("mymaster", server.addr()).await;
    let mut admin = lock_tests::connect(format!("redis://{}", sentinel.addr())).await;
    let () = redis::cmd("ACL")
        .arg(&["SETUSER", "watcher", "on", ">theirs", "&*", "+@all"])
        .query_async(&mut admin)
        .await
        .unwrap();
    let url = format!("redis+sentinel://{}/mymaster", sentinel.addr());
    let builder = vault.builder(None).sentinel_credentials(|| async {
        Ok::<_, io::Error>(Credentials::new("watcher", "theirs"))
    });
    let locks = builder.connect(&url).await.unwrap();
    works(&locks).await;
    let clients: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query_async(&mut admin)
        .await
        .unwrap();
    assert!(clients.contains("user=watcher"), "{clients}");
    assert!(is_used_by_app(&server).await);

    let cluster = TestCluster::start(3).await;
    for node in &cluster.nodes {
        set(&node.server, "secret").await;
    }
    let locks = vault.builder(None).connect(&cluster.url()).await.unwrap();
    works(&locks).await;
    assert!(is_used_by_app(&cluster.nodes[0].server).await);

    let nodes = [
        TestServer::start().await,
        TestServer::start().await,
        TestServer::start().await,
    ];
    for node in &nodes {
        set(node, "secret").await;
    }
    let urls: Vec<String> = nodes.iter().map(TestServer::url).collect();
    vault.builder(None).begin_quorum(&urls).await.unwrap();
    let locks = vault.builder(None).connect_quorum(&urls).await.unwrap();
    works(&locks).await;
    assert!(is_used_by_app(&nodes[0]).await);
}

/// The text of an `Unavailable`.
async fn refused(builder: LockManagerBuilder, url: &str) -> String {
    let builder = builder.command_deadline(Duration::from_millis(500));
    match builder.connect(url).await {
        Err(error @ LockError::Unavailable { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_provider_that_hangs_fails_or_panics_is_named_in_the_error() {
    let server = TestServer::start().await;
    let url = server.url();
    let hangs = LockManager::builder().credentials(|| async {
        std::future::pending::<()>().await;
        Ok::<_, io::Error>(Credentials::new("app", "secret"))
    });
    let text = refused(hangs, &url).await;
    assert!(
        text.contains("the provider of credentials gave none within 450ms"),
        "{text}"
    );
    let fails = LockManager::builder()
        .credentials(|| async { Err::<Credentials, _>(io::Error::other("the vault is sealed")) });
    let text = refused(fails, &url).await;
    assert!(
        text.contains("the provider of credentials has none: the vault is sealed"),
        "{text}"
    );
    let panics = LockManager::builder()
        .credentials(|| -> std::future::Ready<io::Result<Credentials>> { panic!("on purpose") });
    let text = refused(panics, &url).await;
    assert!(
        text.contains("the provider of credentials has panicked"),
        "{text}"
    );
    let vault = Vault::default();
    vault.change("wrong");
    let text = refused(vault.builder(None), &url).await;
    assert!(
        text.contains("it refuses the credentials of the provider (WRONGPASS"),
        "{text}"
    );
    assert!(!text.contains("wrong"), "{text}");
}

#[tokio::test]
async fn a_provider_and_a_password_in_the_url_exclude_each_other() {
    let vault = Vault::default();
    for url in [
        "redis://app:secret@127.0.0.1:1",
        "redis+cluster://:secret@127.0.0.1:1",
    ] {
        let refused = vault.builder(None).connect(url).await;
        assert!(
            matches!(refused, Err(LockError::InvalidConfig { .. })),
            "{refused:?}"
        );
    }
}

/// Three nodes with the user `app`, and a quorum of them that has begun.
async fn quorum_of(vault: &Vault) -> ([TestServer; 3], Vec<String>) {
    let nodes = [
        TestServer::start().await,
        TestServer::start().await,
        TestServer::start().await,
    ];
    vault.change("secret");
    for node in &nodes {
        set(node, "secret").await;
    }
    let urls: Vec<String> = nodes.iter().map(TestServer::url).collect();
    of_quorum(vault).begin_quorum(&urls).await.unwrap();
    (nodes, urls)
}

fn of_quorum(vault: &Vault) -> LockManagerBuilder {
    let builder = vault.builder(None).quorum_wait(WAIT);
    builder.default_ttl(Duration::from_secs(1))
}

/// The wait of these quorums. Each address is looked at after a quarter of it.
const WAIT: Duration = Duration::from_secs(4);

/// Waits until a new connection has shown so often where the address of the node leads.
async fn is_looked_at(node: &TestServer, times: u64) {
    let connections = async || {
        let stats: String = command(node, "INFO stats").await;
        let count = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().parse::<u64>().unwrap()
    };
    // Each question is a connection of its own.
    let (before, mut questions) = (connections().await, 0);
    eventually("the address is looked at", LIMIT, async || {
        questions += 1;
        connections().await >= before + questions + times
    })
    .await;
}

/// Proves P15.
#[tokio::test]
async fn a_quorum_lives_on_while_its_provider_fails() {
    let vault = Vault::default();
    let (nodes, urls) = quorum_of(&vault).await;
    let locks = of_quorum(&vault).connect_quorum(&urls).await.unwrap();
    let held = locks.lock("held").acquire().await.unwrap();
    vault.seal();
    let asked = vault.asked();
    // A vote counts for half of the wait after a look, so two looks have to succeed.
    for node in &nodes {
        is_looked_at(node, 4).await;
    }
    works(&locks).await;
    assert!(held.is_held());
    assert_eq!(vault.asked(), asked, "the last credentials are still good");
    // A connection that breaks is made again with them.
    for node in &nodes {
        let _: i64 = command(node, "CLIENT KILL USER app").await;
    }
    works(&locks).await;
    assert!(held.is_held());
}

/// Proves P15.
#[tokio::test]
async fn a_node_that_does_not_vote_for_want_of_credentials_says_so_in_the_log() {
    let vault = Vault::default();
    let (nodes, urls) = quorum_of(&vault).await;
    let locks = of_quorum(&vault).connect_quorum(&urls).await.unwrap();
    let _held = locks.lock("held").acquire().await.unwrap();
    let capture = Capture::start();
    vault.seal();
    let asked = vault.asked();
    set(&nodes[0], "other").await;
    eventually("the log names the provider", LIMIT, async || {
        capture.events().iter().any(|event| {
            let error = event.field("error").unwrap_or_default();
            event.message() == "a node of the quorum does not vote"
                && error.contains("the provider of credentials has none: the vault is sealed")
        })
    })
    .await;
    assert!(
        vault.asked() <= asked + 6,
        "it is asked for new connections only"
    );
    works(&locks).await;
}

#[tokio::test]
async fn a_connection_that_has_ended_leaves_no_task_for_its_credentials() {
    let server = TestServer::start().await;
    let vault = Vault::default();
    vault.change("secret");
    set(&server, "secret").await;
    let builder = vault.builder(Some(Duration::from_secs(3_600)));
    let locks = builder.connect(&server.url()).await.unwrap();
    works(&locks).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    for _ in 0..20 {
        let _: i64 = command(&server, "CLIENT KILL USER app").await;
        works(&locks).await;
    }
    eventually("the tasks have ended", LIMIT, async || {
        tasks() < before + 10
    })
    .await;
}

/// Proves P15.
#[tokio::test]
async fn a_server_that_is_away_costs_the_provider_nothing() {
    let server = TestServer::start().await;
    let vault = Vault::default();
    vault.change("secret");
    set(&server, "secret").await;
    let proxy = Proxy::start(&server);
    proxy.refuse(true);
    let locks = vault.builder(None).connect_lazily(&proxy.url()).unwrap();
    let waits = locks.lock("a").acquire();
    let attempts = async {
        eventually("ten attempts", LIMIT, async || {
            proxy.refused_connections() >= 10
        })
        .await;
        assert_eq!(vault.asked(), 1, "what it gave is not used up");
        proxy.refuse(false);
    };
    let (guard, ()) = tokio::join!(waits, attempts);
    let guard = guard.unwrap();
    let before = proxy.refused_connections();
    proxy.refuse(true);
    proxy.reset();
    eventually("ten attempts for the lock", LIMIT, async || {
        proxy.refused_connections() >= before + 10
    })
    .await;
    proxy.refuse(false);
    guard.release().await.unwrap();
    assert_eq!(vault.asked(), 1, "the server has accepted these");
}

/// Proves P15.
#[tokio::test]
async fn a_provider_that_fails_is_asked_with_a_backoff() {
    let server = TestServer::start().await;
    let vault = Vault::default();
    vault.seal();
    let locks = vault.builder(None).connect_lazily(&server.url()).unwrap();
    let refused = locks.lock("a").try_acquire().await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("the vault is sealed"), "{text}");
    let wait = Duration::from_secs(3);
    let refused = locks.lock("a").acquire_within(wait).await;
    assert!(matches!(refused, Err(LockError::Unavailable { .. })));
    let asked = vault.asked();
    assert!((4..12).contains(&asked), "{asked} times in {wait:?}");
}

/// What each of these says while the provider is late with the new password, and after that.
async fn waits_for_the_provider(builder: impl Fn(Vault) -> LockManagerBuilder, url: &str) {
    let vault = Vault::default();
    vault.change("old");
    let is_said = "it refuses the credentials of the provider";
    let text = refused(builder(vault.clone()), url).await;
    assert!(text.contains(is_said), "{text}");
    let locks = builder(vault.clone()).connect_lazily(url).unwrap();
    let text = match locks.lock("a").try_acquire().await {
        Err(error @ LockError::Unavailable { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(text.contains(is_said), "{text}");
    let listed = locks.list().next_page().await;
    assert!(
        matches!(listed, Err(LockError::Unavailable { .. })),
        "{listed:?}"
    );
    let waits = locks.lock("a").acquire_within(LIMIT);
    let late = async {
        sleep_until(Instant::now() + Duration::from_millis(300)).await;
        vault.change("secret");
    };
    let (guard, ()) = tokio::join!(waits, late);
    guard.unwrap().release().await.unwrap();
    // The first call after the repair has no old error.
    vault.change("old");
    let locks = builder(vault.clone()).connect_lazily(url).unwrap();
    assert!(locks.lock("a").try_acquire().await.is_err());
    vault.change("secret");
    let guard = locks.lock("a").try_acquire().await.unwrap().unwrap();
    guard.release().await.unwrap();
}

/// Proves P11.
#[tokio::test]
async fn a_cluster_waits_for_a_provider_that_is_late() {
    let cluster = TestCluster::start(3).await;
    for node in &cluster.nodes {
        set(&node.server, "secret").await;
    }
    waits_for_the_provider(|vault| vault.builder(None), &cluster.url()).await;
}

/// Proves P11.
#[tokio::test]
async fn a_master_behind_sentinels_waits_for_a_provider_that_is_late() {
    let server = TestServer::start().await;
    set(&server, "secret").await;
    let sentinel = Sentinel::start("mymaster", server.addr()).await;
    let url = format!("redis+sentinel://{}/mymaster", sentinel.addr());
    waits_for_the_provider(|vault| vault.builder(None), &url).await;
}

/// Proves P11.
#[tokio::test]
async fn sentinels_wait_for_a_provider_that_is_late() {
    let server = TestServer::start().await;
    let sentinel = Sentinel::start("mymaster", server.addr()).await;
    let user = "ACL SETUSER app on >secret &* +@all";
    assert_eq!(sentinel.ask(user).await, "+OK\r\n");
    let url = format!("redis+sentinel://{}/mymaster", sentinel.addr());
    let of_sentinels = |vault: Vault| {
        LockManager::builder().sentinel_credentials(move || {
            let vault = vault.clone();
            async move { vault.gives() }
        })
    };
    waits_for_the_provider(of_sentinels, &url).await;
}
