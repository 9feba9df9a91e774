//! `lockctl wait`: until a lock is free.

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::exit::{Failure, NO};
use crate::options::{Server, Wait};

/// A lock that is looked at does not say when it becomes free.
const AGAIN: Duration = Duration::from_millis(100);

pub(crate) async fn run(server: &Server, options: &Wait) -> Result<ExitCode, Failure> {
    let end = options
        .timeout
        .and_then(|time| Instant::now().checked_add(time));
    let locks = server.connect().await?;
    loop {
        if !options.lock.inspect(&locks).await?.is_held() {
            return Ok(ExitCode::SUCCESS);
        }
        let now = Instant::now();
        let left = end.map_or(AGAIN, |end| end.saturating_duration_since(now));
        if left.is_zero() {
            return Ok(ExitCode::from(NO));
        }
        sleep(left.min(AGAIN)).await;
    }
}
