//! Two copies of the service on a server with TLS, a private CA and a user with the rights of the page for operators.

#[expect(dead_code, reason = "another test program needs the rest")]
mod program;

use std::process::Stdio;

use lock_core::LockManager;
use lock_examples::{get, post};
use lock_tests::{Authority, TestServer, TlsServer, rights};
use program::{Running, command};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_copies_pay_an_order_once_over_tls_with_a_user_of_their_own() {
    let authority = Authority::new();
    let identity = authority.issue("localhost", false);
    let server = TlsServer::start_with(TestServer::builder(), &authority, &identity, false).await;
    let [line, ..] = rights();
    let mut acl = redis::cmd("ACL");
    acl.arg("SETUSER")
        .arg("locks")
        .arg("on")
        .arg(">secret")
        .arg("resetchannels");
    acl.arg(line.patterns.split(' ').collect::<Vec<_>>());
    for name in line.commands.iter().chain(&["scan"]) {
        acl.arg(format!("+{name}"));
    }
    let mut admin = server.plain().connection().await;
    let () = acl.query_async(&mut admin).await.unwrap();

    let ca = server.plain().dir().join("ca-of-the-example.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let url = format!("rediss://locks:secret@{}", server.at("localhost"));
    let start = |name: &str| {
        let mut service = command("production_service", Some(&url));
        service.env("REDIS_CA", &ca).env("SERVICE_NAME", name);
        service.stdin(Stdio::piped());
        Running::start_command(service)
    };
    let (mut one, mut other) = (start("orders-1"), start("orders-2"));
    let address = |service: &mut Running| {
        let line = service.line_with("listening on ");
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let (at_one, at_other) = (address(&mut one), address(&mut other));

    let ready = get(&at_one, "/ready").await.unwrap();
    assert!(
        ready.status == 200 && ready.body.starts_with("locks answer in "),
        "{ready:?}"
    );
    let paying = tokio::spawn({
        let at_one = at_one.clone();
        async move { post(&at_one, "/orders/7/pay").await.unwrap() }
    });
    one.line_with("paying order 7");
    assert_eq!(
        post(&at_other, "/orders/7/pay").await.unwrap(),
        (409, "orders-1 is at order:7".to_owned())
    );
    assert_eq!(
        post(&at_other, "/locks").await.unwrap(),
        (200, "order:7 is held by orders-1".to_owned())
    );
    post(&at_one, "/bank").await.unwrap();
    assert_eq!(paying.await.unwrap(), (200, "order 7 is paid".to_owned()));
    assert_eq!(
        post(&at_other, "/locks").await.unwrap(),
        (200, String::new())
    );
    for service in [one, other] {
        let output = service.end_of_input();
        assert!(output.contains("ended, 0 locks left"), "{output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_whose_bank_is_silent_does_not_hold_up_the_end() {
    let server = TestServer::start().await;
    let mut service = command("production_service", Some(&server.url()));
    service.stdin(Stdio::piped());
    let mut service = Running::start_command(service);
    let line = service.line_with("listening on ");
    let address = line.rsplit(' ').next().unwrap().to_owned();
    let paying = tokio::spawn(async move { post(&address, "/orders/7/pay").await });
    service.line_with("paying order 7");
    let output = service.end_of_input();
    assert!(output.contains("ended, 0 locks left"), "{output}");
    let locks = LockManager::connect(&server.url()).await.unwrap();
    assert!(locks.lock("order:7").try_acquire().await.unwrap().is_some());
    paying.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_ca_it_ends_with_a_sentence() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, &authority.issue("localhost", false), false).await;
    let url = format!("rediss://locks:secret@{}", server.at("localhost"));
    let ended = program::run("production_service", Some(&url));
    let complaint = ended.failure();
    assert!(
        complaint.contains("is signed by a CA that is not trusted here"),
        "{complaint}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_roots_of_the_system_are_trusted_as_ssl_cert_file_names_them() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, &authority.issue("localhost", false), false).await;
    let roots = server.plain().dir().join("roots-of-the-system.pem");
    std::fs::write(&roots, authority.pem()).unwrap();
    let mut service = command("production_service", Some(&server.url()));
    service.env("SSL_CERT_FILE", &roots).stdin(Stdio::piped());
    let mut service = Running::start_command(service);
    service.line_with("listening on ");
    service.end_of_input();
}
