use std::time::{Duration, Instant};

/// How long the harness waits for anything before it calls the test failed.
///
/// Generous on purpose: it only ends a test that hangs, so a loaded machine
/// must never reach it.
pub const LIMIT: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(2);

/// Waits until `check` answers `true`.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(server: &lock_tests::TestServer) {
/// lock_tests::eventually("the key is gone", Duration::from_secs(10), || async {
///     !server.exists("lock").await
/// })
/// .await;
/// # }
/// ```
///
/// # Panics
///
/// When `limit` passes first; the message names `what`.
pub async fn eventually(what: &str, limit: Duration, mut check: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !check().await {
        assert!(
            start.elapsed() < limit,
            "waited {limit:?} in vain until: {what}"
        );
        tokio::time::sleep(POLL).await;
    }
}

/// Waits for an event, at most [`LIMIT`].
///
/// # Panics
///
/// When it does not come in time; the message names `what`.
pub async fn in_time<T>(what: &str, event: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, event)
        .await
        .unwrap_or_else(|_| panic!("waited {LIMIT:?} in vain for: {what}"))
}
