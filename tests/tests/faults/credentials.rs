//! Users and passwords that change while the program runs.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_core::{Credentials, LockError, LockGuard, LockManager, LockManagerBuilder};
use lock_tests::kit::command;
use lock_tests::{Capture, LIMIT, Sentinel, TestCluster, TestServer, eventually};
use tokio::time::{Instant, sleep_until};

/// A vault with the present password of the user `app`.
#[derive(Clone, Default)]
struct Vault {
    password: Arc<Mutex<String>>,
    asked: Arc<AtomicU64>,
}

impl Vault {
    fn change(&self, password: &str) {
        password.clone_into(&mut self.password.lock().unwrap());
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    fn builder(&self, lasts: Option<Duration>) -> LockManagerBuilder {
        let vault = self.clone();
        LockManager::builder().credentials(move || {
            vault.asked.fetch_add(1, Ordering::SeqCst);
            let password = vault.password.lock().unwrap().clone();
            async move {
                let credentials = Credentials::new("app", password);
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
    assert!(guards.iter().all(LockGuard::is_held));
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
