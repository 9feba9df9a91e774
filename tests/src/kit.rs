//! Small helpers that most test programs share.

use std::time::Duration;

use redis::{FromRedisValue, RedisResult};

use crate::scripts::scripts;
use crate::server::TestServer;

/// The counter of the fencing tokens: the one key that stays when no lock is left.
pub const FENCE: &str = "lock-core:fence";

/// That many milliseconds.
#[must_use]
pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A server that knows the scripts, so that each operation of a client is one request.
///
/// # Panics
///
/// When a script does not compile.
pub async fn warm_server() -> TestServer {
    let server = TestServer::start().await;
    let mut connection = server.connection().await;
    for (name, script) in scripts() {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&script.text);
        let loaded: RedisResult<String> = load.query_async(&mut connection).await;
        loaded.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    server
}

/// Runs one command given as words.
///
/// # Panics
///
/// When the server refuses it.
pub async fn command<T: FromRedisValue>(server: &TestServer, words: &str) -> T {
    try_command(server, words)
        .await
        .unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// Runs one command given as words, which the server may refuse.
///
/// # Errors
///
/// What the server answers.
pub async fn try_command<T: FromRedisValue>(server: &TestServer, words: &str) -> RedisResult<T> {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap_or_default());
    for word in words {
        command.arg(word);
    }
    command.query_async(&mut server.connection().await).await
}

/// Script calls by clients. What the scripts call in turn is counted under other names.
pub async fn script_calls(server: &TestServer) -> u64 {
    let stats = server.commandstats().await;
    let calls = |name| stats.get(name).copied().unwrap_or_default();
    calls("evalsha") + calls("eval")
}

/// What is on the server besides the fencing counter: keys, and channels of reentrant locks that somebody listens to.
pub async fn leftovers(server: &TestServer) -> Vec<String> {
    let mut left = server.keys().await;
    left.retain(|key| key != FENCE);
    let channels: Vec<String> = command(server, "PUBSUB CHANNELS redisson_lock__channel:*").await;
    left.extend(channels);
    left
}

/// Waits until nothing is left. A queue without anybody vanishes after 30 s, so that is too late.
///
/// # Panics
///
/// When something is left after 20 s.
pub async fn until_clean(server: &TestServer) {
    let mut left = Vec::new();
    for _ in 0..1000 {
        left = leftovers(server).await;
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(ms(20)).await;
    }
    panic!("left on the server: {left:?}");
}
