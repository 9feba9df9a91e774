//! TLS as companies have it: a private CA, client certificates, and one sentence for each thing that can be wrong.

use std::time::Duration;

use lock_core::{LockError, LockManager, LockManagerBuilder, Tls};
use lock_tests::{Authority, LIMIT, TestServer, TlsServer};

fn builder(tls: Tls) -> LockManagerBuilder {
    LockManager::builder().command_deadline(LIMIT).tls(tls)
}

/// A handshake alone cannot fill the deadline: what is wrong is known long before.
async fn refused(builder: LockManagerBuilder, url: &str) -> String {
    match builder.connect(url).await {
        Err(LockError::InvalidConfig { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

async fn locks_work(locks: &LockManager) {
    let guard = locks.lock("a").acquire().await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_private_ca_is_trusted_from_its_text_and_from_its_file() {
    let ca = Authority::new();
    let server = TlsServer::start(&ca, &ca.issue("localhost", false), false).await;
    locks_work(
        &builder(Tls::new().ca(ca.pem()))
            .connect(&server.url())
            .await
            .unwrap(),
    )
    .await;
    let path = std::env::temp_dir().join(format!("lock-tests-ca-{}.pem", std::process::id()));
    // Several, as in a bundle.
    std::fs::write(&path, Authority::new().pem() + &ca.pem()).unwrap();
    let locks = builder(Tls::new().ca_file(&path))
        .connect(&server.url())
        .await;
    std::fs::remove_file(&path).unwrap();
    locks_work(&locks.unwrap()).await;
}

#[tokio::test]
async fn an_unknown_issuer_is_named_with_what_to_write() {
    let ca = Authority::new();
    let server = TlsServer::start(&ca, &ca.issue("localhost", false), false).await;
    let at = server.at("localhost");
    let sentence = format!(
        "the certificate of the server at {at} is signed by a CA that is not trusted here: name that CA with \
         `.tls(Tls::new().ca_file(\"ca.pem\"))`, or add it to the roots of the system (`SSL_CERT_FILE`)"
    );
    let another = Tls::new().ca(Authority::new().pem());
    assert_eq!(refused(builder(another), &server.url()).await, sentence);
    let system = LockManager::builder().command_deadline(LIMIT);
    assert_eq!(refused(system, &server.url()).await, sentence);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_accepted_under_that_name_only() {
    let ca = Authority::new();
    let server = TlsServer::start(&ca, &ca.issue("redis.internal", false), false).await;
    let tls = Tls::new().ca(ca.pem());
    let at = server.at("localhost");
    assert_eq!(
        refused(builder(tls.clone()), &server.url()).await,
        format!(
            "the certificate of the server at {at} is not for the name `localhost`: write a host of its subjectAltName in the URL, \
             or name that with `.tls(Tls::new().server_name(..))`"
        )
    );
    let named = builder(tls.server_name("redis.internal"));
    locks_work(&named.connect(&server.url()).await.unwrap()).await;
}

#[tokio::test]
async fn an_expired_certificate_is_called_expired() {
    let ca = Authority::new();
    let server = TlsServer::start(&ca, &ca.issue("localhost", true), false).await;
    let at = server.at("localhost");
    assert_eq!(
        refused(builder(Tls::new().ca(ca.pem())), &server.url()).await,
        format!(
            "the certificate of the server at {at} has expired: renew it there, or set the clock of this machine"
        )
    );
}

#[tokio::test]
async fn a_server_that_asks_for_a_client_certificate_gets_one_or_says_so() {
    let ca = Authority::new();
    let server = TlsServer::start(&ca, &ca.issue("localhost", false), true).await;
    let tls = Tls::new().ca(ca.pem());
    let at = server.at("localhost");
    assert_eq!(
        refused(builder(tls.clone()), &server.url()).await,
        format!(
            "the server at {at} asks for a client certificate: give it with `.tls(Tls::new().identity_files(\"client.pem\", \
             \"client.key\"))`"
        )
    );
    let stranger = Authority::new().issue("orders", false);
    let wrong = tls.clone().identity(stranger.certificate, stranger.key);
    assert_eq!(
        refused(builder(wrong), &server.url()).await,
        format!(
            "the server at {at} refuses the client certificate: give one that is signed by its CA and has not expired with \
             `.tls(Tls::new().identity_files(..))`"
        )
    );
    let own = ca.issue("orders", false);
    let right = builder(tls.identity(own.certificate, own.key));
    locks_work(&right.connect(&server.url()).await.unwrap()).await;
}

#[tokio::test]
async fn with_tls_1_2_a_missing_client_certificate_has_the_same_sentence() {
    let ca = Authority::new();
    let server = TestServer::builder().arg("--tls-protocols", "TLSv1.2");
    let identity = ca.issue("localhost", false);
    let server = TlsServer::start_with(server, &ca, &identity, true).await;
    let error = refused(builder(Tls::new().ca(ca.pem())), &server.url()).await;
    assert!(error.contains("asks for a client certificate"), "{error}");
    let own = ca.issue("orders", false);
    let tls = Tls::new().ca(ca.pem()).identity(own.certificate, own.key);
    locks_work(&builder(tls).connect(&server.url()).await.unwrap()).await;
}

#[tokio::test]
async fn tls_to_a_plain_port_and_the_reverse_name_the_scheme_to_write() {
    let ca = Authority::new();
    let server = TlsServer::start(&ca, &ca.issue("localhost", false), false).await;
    let unavailable = async |builder: LockManagerBuilder, url: String| {
        // Whether it is the scheme is not known.
        match builder.connect(&url).await {
            Err(error @ LockError::Unavailable { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let plain = server.plain().port();
    let over_tls = builder(Tls::new().ca(ca.pem())).command_deadline(Duration::from_millis(300));
    let error = unavailable(over_tls, format!("rediss://localhost:{plain}")).await;
    assert!(
        error.contains("does not speak TLS, write `redis://`"),
        "{error}"
    );
    let at = server.at("localhost");
    let without = LockManager::builder().command_deadline(LIMIT);
    let error = unavailable(without, format!("redis://{at}")).await;
    assert!(error.contains("speaks TLS, write `rediss://`"), "{error}");
}

#[tokio::test]
async fn settings_for_tls_that_cannot_be_used_say_which() {
    let server = TestServer::start().await;
    let ca = Authority::new();
    let tls = Tls::new().ca(ca.pem());
    assert_eq!(
        refused(builder(tls.clone()), &server.url()).await,
        "there are settings for TLS and the URL is without TLS: write `rediss://`"
    );
    let url = "rediss://localhost:1";
    for (tls, sentence) in [
        (
            Tls::new().ca("nothing"),
            "the text of the CA for TLS has no certificate in PEM format",
        ),
        (
            Tls::new().ca_file("/nonexistent/ca.pem"),
            "the file `/nonexistent/ca.pem` of the CA for TLS cannot be read: No such file or directory (os error 2)",
        ),
        (
            tls.clone().identity(ca.pem(), "nothing"),
            "the text of the private key for TLS has no private key in PEM format",
        ),
        (
            tls.server_name("a:6379"),
            "the server name for TLS is neither a host name nor an IP address: give it without a port",
        ),
    ] {
        assert_eq!(refused(builder(tls), url).await, sentence);
    }
}

#[tokio::test]
async fn insecure_trusts_any_certificate() {
    let ca = Authority::new();
    let server = TlsServer::start(&ca, &ca.issue("elsewhere", true), false).await;
    let locks = builder(Tls::new().insecure()).connect(&server.url()).await;
    locks_work(&locks.unwrap()).await;
}

#[tokio::test]
async fn each_node_of_a_quorum_is_reached_over_tls_with_the_same_settings() {
    let ca = Authority::new();
    let identity = ca.issue("localhost", false);
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(TlsServer::start(&ca, &identity, false).await);
    }
    let urls: Vec<String> = nodes.iter().map(TlsServer::url).collect();
    let tls = Tls::new().ca(ca.pem());
    builder(tls.clone()).begin_quorum(&urls).await.unwrap();
    let hosts: Vec<String> = nodes.iter().map(|node| node.at("localhost")).collect();
    let url = format!("rediss+quorum://{}", hosts.join(","));
    locks_work(&builder(tls).connect(&url).await.unwrap()).await;
    // Without the CA, each node says why.
    let error = refused(LockManager::builder(), &url).await;
    assert_eq!(
        error
            .matches("is signed by a CA that is not trusted here")
            .count(),
        3,
        "{error}"
    );
}

#[tokio::test]
async fn waiters_hear_and_leases_are_renewed_over_tls() {
    let ca = Authority::new();
    let server = TlsServer::start(&ca, &ca.issue("localhost", false), false).await;
    let tls = Tls::new().ca(ca.pem());
    let one = builder(tls.clone()).connect(&server.url()).await.unwrap();
    let other = builder(tls).connect(&server.url()).await.unwrap();
    let lock = one.lock("a").ttl(Duration::from_secs(3));
    let guard = lock.acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = other.lock("a");
        async move { lock.acquire().await.unwrap() }
    });
    lock_tests::eventually("it is queued", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == 1
    })
    .await;
    // A connection that the server closes is made again, and the hold goes on.
    server.plain().client_kill_all().await;
    let begun = guard.remaining();
    lock_tests::eventually("it is renewed", LIMIT, async || guard.remaining() > begun).await;
    guard.release().await.unwrap();
    assert!(
        lock_tests::in_time("the hand-over", waiting)
            .await
            .unwrap()
            .is_held()
    );
}
