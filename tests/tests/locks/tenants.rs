//! Tenants that share a server: one namespace each, and one pattern for its keys and one for its channels.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use lock_core::{LockError, LockManager, LossReason, Owner};
use lock_tests::kit::{command, ms};
use lock_tests::{Capture, LIMIT, TestCluster, TestServer, eventually, rights};
use tokio::time::timeout;

const TEAMS: [&str; 2] = ["team-a:", "team-b:"];

/// Adds a user for each tenant, who may use the commands of the page for operators on its names.
async fn admit(server: &TestServer) {
    let commands: Vec<&str> = rights()
        .iter()
        .flat_map(|line| line.commands.clone())
        .collect();
    let commands = format!("+{}", commands.join(" +"));
    for team in TEAMS {
        let user = user(team);
        let rights = format!("reset on >secret ~{team}* &{team}* {commands} +scan");
        let () = command(server, &format!("ACL SETUSER {user} {rights}")).await;
    }
}

fn user(team: &str) -> &str {
    team.trim_end_matches(':')
}

/// A manager of the user of this tenant.
async fn connect(urls: &[String], team: &str, namespace: &str) -> Result<LockManager, LockError> {
    let user = format!("redis://{}:secret@", user(team));
    let urls: Vec<_> = urls
        .iter()
        .map(|url| url.replace("redis://", &user))
        .collect();
    let builder = LockManager::builder().namespace(namespace);
    match &urls[..] {
        [url] => builder.connect(url).await,
        urls => builder.connect_quorum(urls).await,
    }
}

/// The channel up to the id of a client, and the first word, of each message. One node of a quorum may have nothing to say.
type Messages = Arc<Mutex<BTreeSet<(String, String)>>>;

async fn listen(server: &TestServer, heard: &Messages) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut messages = client.get_async_pubsub().await.unwrap();
    messages.psubscribe("*").await.unwrap();
    let all = Arc::clone(heard);
    tokio::spawn(async move {
        while let Some(message) = messages.on_message().next().await {
            let text: String = message.get_payload().unwrap();
            let channel = message.get_channel_name();
            let channel = channel
                .split_inclusive("client:")
                .next()
                .unwrap_or_default();
            let word = text.split(' ').next().unwrap_or_default();
            let message = (channel.to_owned(), word.to_owned());
            all.lock().unwrap().insert(message);
        }
    });
}

/// Held, taken away with a message, handed to another process that waits, and listed.
async fn whole_life(locks: &LockManager, others: &LockManager) {
    let (lock, other) = (locks.lock("x"), others.lock("x"));
    let held = lock.acquire().await.unwrap();
    assert!(other.try_acquire().await.unwrap().is_none());
    assert!(other.force_release().await.unwrap());
    let reason = timeout(LIMIT, held.lost()).await.expect("told");
    assert_eq!(reason, LossReason::ForceReleased);

    // Told that another process waits, and handed over by a message.
    let held = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(other.acquire());
    let queued = async || lock.inspect().await.unwrap().waiters() > 0;
    eventually("it waits", LIMIT, queued).await;
    held.release().await.unwrap();
    let waited = timeout(LIMIT, waiting).await.expect("granted");
    let waited = waited.unwrap().unwrap();

    let mut listed = Vec::new();
    let mut list = others.list();
    while let Some(page) = list.next_page().await.unwrap() {
        listed.extend(page.iter().map(|lock| lock.key().to_owned()));
    }
    assert_eq!(listed, ["x"]);
    waited.release().await.unwrap();
}

/// The same for permits.
async fn shared_life(locks: &LockManager, others: &LockManager) {
    let (lock, other) = (locks.rw_lock("rw"), others.rw_lock("rw"));
    let held = lock.write().await.unwrap();
    assert!(other.force_release().await.unwrap());
    let reason = timeout(LIMIT, held.lost()).await.expect("told");
    assert_eq!(reason, LossReason::ForceReleased);
    let held = lock.write().await.unwrap();
    let waiting = tokio::spawn(other.read());
    let queued = async || lock.inspect().await.unwrap().waiters() > 0;
    eventually("it waits", LIMIT, queued).await;
    let reader = held.downgrade().await.unwrap();
    let waited = timeout(LIMIT, waiting).await.expect("granted");
    waited.unwrap().unwrap().release().await.unwrap();
    reader.release().await.unwrap();
}

async fn reentrant_life(locks: &LockManager, others: &LockManager) {
    let (me, you) = (Owner::new(), Owner::new());
    let mine = locks.reentrant_lock("x").owner(&me);
    let yours = others.reentrant_lock("x").owner(&you);
    let held = mine.acquire().await.unwrap();
    assert!(yours.try_acquire().await.unwrap().is_none());
    assert!(yours.force_release().await.unwrap());
    let reason = timeout(LIMIT, held.lost()).await.expect("told");
    assert_eq!(reason, LossReason::ForceReleased);
    let held = mine.acquire().await.unwrap();
    let (waited, ()) = tokio::join!(yours.acquire(), async {
        tokio::time::sleep(ms(20)).await;
        held.release().await.unwrap();
    });
    waited.unwrap().release().await.unwrap();
}

/// Both tenants lead a whole life beside each other with what their patterns permit, and leave only names of their own.
async fn live_apart(servers: &[&TestServer], urls: &[String], reentrant: bool) {
    let heard = Messages::default();
    for server in servers {
        listen(server, &heard).await;
    }
    let mut held = Vec::new();
    for team in TEAMS {
        let locks = connect(urls, team, team).await.unwrap();
        let others = connect(urls, team, team).await.unwrap();
        whole_life(&locks, &others).await;
        if reentrant {
            reentrant_life(&locks, &others).await;
            shared_life(&locks, &others).await;
        }
        let guard = locks.lock("x").acquire_within(ms(0)).await.unwrap();
        let waiting = others.lock("x").acquire_within(LIMIT);
        held.push((guard, tokio::spawn(waiting)));
    }
    let mut seen = Vec::new();
    for server in servers {
        let queued = async || {
            let keys = server.keys().await;
            keys.iter().filter(|key| key.contains("queue")).count() == 2
        };
        if servers.len() == 1 {
            eventually("both wait", LIMIT, queued).await;
        }
        seen.extend(server.keys().await);
        let channels: Vec<String> = command(server, "PUBSUB CHANNELS *").await;
        seen.extend(channels);
    }
    let handed = if reentrant { "granted" } else { "free" };
    let all = async || {
        let heard = heard.lock().unwrap().clone();
        TEAMS.into_iter().all(|team| {
            let words = ["contended", "revoked", handed];
            let channel = format!("{team}lock-core:client:");
            words
                .into_iter()
                .all(|word| heard.contains(&(channel.clone(), word.to_owned())))
        })
    };
    eventually("every message", LIMIT, all).await;
    seen.extend(
        heard
            .lock()
            .unwrap()
            .iter()
            .map(|(channel, _)| channel.clone()),
    );
    for team in TEAMS {
        let of_team = seen.iter().filter(|name| name.starts_with(team));
        assert!(of_team.count() >= 4, "{team}: {seen:?}");
    }
    let strange = seen.iter().find(|name| !name.starts_with("team-"));
    assert_eq!(strange, None, "outside of both namespaces");
    for (guard, waiting) in held {
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// Proves P17.
#[tokio::test]
async fn one_pattern_is_enough_for_a_tenant_and_names_stay_in_it() {
    let server = TestServer::start().await;
    admit(&server).await;
    live_apart(&[&server], &[server.url()], true).await;
}

/// Proves P17.
#[tokio::test]
async fn tenants_share_the_nodes_of_a_quorum() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let node = TestServer::start().await;
        admit(&node).await;
        nodes.push(node);
    }
    let urls: Vec<_> = nodes.iter().map(TestServer::url).collect();
    for team in TEAMS {
        let builder = LockManager::builder().namespace(team);
        builder.begin_quorum(&urls).await.unwrap();
    }
    let servers: Vec<_> = nodes.iter().collect();
    live_apart(&servers, &urls, false).await;
}

/// Proves P17.
#[tokio::test]
async fn tenants_share_the_masters_of_a_cluster() {
    let cluster = TestCluster::start(3).await;
    let mut teams = Vec::new();
    for team in TEAMS {
        let builder = || LockManager::builder().namespace(team);
        let locks = builder().connect(&cluster.url()).await.unwrap();
        let others = builder().connect(&cluster.url()).await.unwrap();
        teams.push((locks.lock("x").acquire().await.unwrap(), locks, others));
    }
    for (held, locks, others) in teams {
        held.release().await.unwrap();
        whole_life(&locks, &others).await;
        reentrant_life(&locks, &others).await;
    }
    for node in cluster.masters() {
        let keys = node.server.keys().await;
        assert!(keys.iter().all(|key| key.starts_with("team-")), "{keys:?}");
    }
}

/// Proves P17.
#[tokio::test]
async fn a_tenant_is_refused_at_the_names_of_another_one() {
    let server = TestServer::start().await;
    admit(&server).await;
    let other = connect(&[server.url()], "team-b:", "team-b:")
        .await
        .unwrap();
    let held = other.lock("x").acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("x").acquire());

    for (namespace, keys) in [("team-b:", "team-b:*"), ("", "lock-core:*")] {
        let refused = connect(&[server.url()], "team-a:", namespace).await;
        let sentence = format!(
            "the user `team-a` of the server at {} may not use the keys `{keys}`, which locks need: an administrator permits it with \
             `ACL SETUSER team-a ~{keys}`",
            server.addr()
        );
        match refused {
            Err(LockError::InvalidConfig { reason }) => assert_eq!(reason, sentence),
            refused => panic!("{refused:?}"),
        }
    }

    // Nor with commands of its own.
    let url = server.url().replace("redis://", "redis://team-a:secret@");
    let mut connection = lock_tests::connect(url.as_str()).await;
    for words in [
        &["DEL", "team-b:lock:x"][..],
        &["LPOP", "team-b:lock-core:queue:{team-b:lock:x}"],
        &["SET", "team-b:lock-core:fence", "1"],
        &["PUBLISH", "team-b:lock-core:client:any", "revoked any"],
        &["SUBSCRIBE", "team-b:lock-core:client:any"],
    ] {
        let mut command = redis::cmd(words[0]);
        let answer = command.arg(&words[1..]).query_async(&mut connection).await;
        let refused: redis::RedisError = redis::RedisResult::<redis::Value>::unwrap_err(answer);
        assert_eq!(refused.code(), Some("NOPERM"), "{words:?}");
    }
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

/// Proves P17.
#[tokio::test]
async fn connect_names_the_pattern_of_channels_that_is_missing() {
    let server = TestServer::start().await;
    admit(&server).await;
    let capture = Capture::start();
    let () = command(&server, "ACL SETUSER team-a resetchannels").await;
    let locks = connect(&[server.url()], "team-a:", "team-a:")
        .await
        .unwrap();
    let said = capture.events().into_iter().find(|event| {
        event.level == tracing::Level::WARN
            && event.message().contains("waiting for locks will poll")
    });
    assert_eq!(
        said.expect("a warning").field("why"),
        Some(
            "the user `team-a` may not use the channels `team-a:*`: an administrator permits it with `ACL SETUSER team-a &team-a:*`"
        )
    );
    // It polls.
    let held = locks.lock("x").acquire().await.unwrap();
    let others = connect(&[server.url()], "team-a:", "team-a:")
        .await
        .unwrap();
    let waiting = tokio::spawn(others.lock("x").acquire());
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
