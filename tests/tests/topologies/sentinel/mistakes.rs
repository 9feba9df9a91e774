//! What can be wrong with the sentinels, and the sentence for each.

use lock_core::{LockError, LockManager, LockManagerBuilder};
use lock_tests::{Capture, LIMIT, Sentinel, TestServer, eventually};

async fn refused(builder: LockManagerBuilder, url: &str) -> String {
    match builder.connect(url).await {
        Err(LockError::InvalidConfig { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_wrong_name_names_the_right_one() {
    let master = TestServer::start().await;
    let sentinel = Sentinel::start("orders", master.addr()).await;
    let at = sentinel.addr();
    let url = format!("redis+sentinel://{at}/mymaster");
    assert_eq!(
        refused(LockManager::builder(), &url).await,
        format!(
            "the sentinel at {at} knows no master of the name `mymaster`: it knows `orders`, so write that name behind the sentinels in the URL"
        )
    );
}

#[tokio::test]
async fn a_wrong_password_of_the_sentinels_names_the_setting() {
    let master = TestServer::start().await;
    let sentinel = Sentinel::start_with("orders", master.addr(), 1, "requirepass secret").await;
    let at = sentinel.addr();
    let url = format!("redis+sentinel://{at}/orders");
    assert_eq!(
        refused(LockManager::builder(), &url).await,
        format!("the sentinel at {at} asks for a password: give it with `.sentinel_password(..)`")
    );
    let wrong = LockManager::builder().sentinel_password("wrong");
    assert!(!format!("{wrong:?}").contains("\"wrong\""));
    assert_eq!(
        refused(wrong, &url).await,
        format!(
            "the sentinel at {at} refused the password: check `.sentinel_password(..)`, and `.sentinel_user(..)` where it has users"
        )
    );
    let right = LockManager::builder().sentinel_password("secret");
    let locks = right.connect(&url).await.unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn the_password_in_the_url_is_that_of_the_servers() {
    let master = TestServer::builder()
        .arg("--requirepass", "p@ss")
        .start()
        .await;
    let auth = "sentinel auth-pass orders p@ss";
    let sentinel = Sentinel::start_with("orders", master.addr(), 1, auth).await;
    let at = sentinel.addr();
    let url = format!("redis+sentinel://:p%40ss@{at}/orders/1");
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
    let reason = refused(
        LockManager::builder(),
        &format!("redis+sentinel://:no@{at}/orders"),
    )
    .await;
    assert!(
        reason.contains("check the user and the password in the URL"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_server_that_is_no_sentinel_is_called_so() {
    let server = TestServer::start().await;
    let url = format!("redis+sentinel://{}/orders", server.addr());
    assert_eq!(
        refused(LockManager::builder(), &url).await,
        format!(
            "the server at {} is no sentinel: name the sentinels with their port, which is mostly 26379",
            server.addr()
        )
    );
}

#[tokio::test]
async fn sentinels_that_do_not_answer_are_named_with_their_reasons() {
    let capture = Capture::start();
    let url = "redis+sentinel://127.0.0.1:1,127.0.0.1:2/orders";
    let error = LockManager::connect(url).await.unwrap_err();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the lock server at orders (sentinels 127.0.0.1:1, 127.0.0.1:2) is not available (no sentinel answers: 127.0.0.1:1: \
         Connection refused (os error 111); 127.0.0.1:2: Connection refused (os error 111)): check that the sentinels run and can be reached"
    );
    // There is no last master to stay with.
    assert!(!capture.text().contains("last master"));
}

#[tokio::test]
async fn a_sentinel_that_is_named_twice_is_one() {
    let at = "127.0.0.1:1";
    let error = LockManager::connect(&format!("redis+sentinel://{at},{at}/orders")).await;
    let said = error.unwrap_err().to_string();
    assert!(said.contains("no sentinel answers"), "{said}");
}

/// Proves P15.
#[tokio::test]
async fn one_good_sentinel_is_enough_and_the_others_are_warned_of() {
    let capture = Capture::start();
    let (master, no_sentinel) = (TestServer::start().await, TestServer::start().await);
    let sentinel = Sentinel::start("orders", master.addr()).await;
    let url = format!(
        "redis+sentinel://{},127.0.0.1:1,{}/orders",
        no_sentinel.addr(),
        sentinel.addr()
    );
    let locks = LockManager::connect(&url).await.unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
    eventually("both are warned of", LIMIT, async || {
        capture
            .text()
            .matches("a sentinel does not answer: the others are asked")
            .count()
            == 2
    })
    .await;
}

/// Proves P15.
#[tokio::test]
async fn one_good_sentinel_is_enough_where_the_others_are_silent() {
    let master = TestServer::start().await;
    let sentinel = Sentinel::start("orders", master.addr()).await;
    let silent = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, two] = silent.each_ref().map(|silent| silent.local_addr().unwrap());
    let url = format!("redis+sentinel://{one},{two},{}/orders", sentinel.addr());
    let locks = LockManager::connect(&url).await.unwrap();
    assert!(locks.lock("a").try_acquire().await.unwrap().is_some());
}
