//! `lockctl wait`: until a lock is free.

use std::process::ExitCode;
use std::time::Duration;

use lock_core::LockError;
use tokio::time::{Instant, sleep};

use crate::exit::{Failure, NO};
use crate::options::{Server, Wait};

/// Interval between two looks at the lock: the server does not tell an observer when it becomes free.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) async fn run(server: &Server, options: &Wait) -> Result<ExitCode, Failure> {
    let end = options
        .timeout
        .and_then(|time| Instant::now().checked_add(time));
    options.lock.hint(server);
    let locks = server.connect_within(options.timeout).await?;
    loop {
        let looked = options.lock.look(&locks).await;
        let over = match looked {
            Ok((_, info)) => match info.foreign() {
                Some(kind) => {
                    let key = options.lock.shown();
                    return Err(Failure::Refused(format!("`{key}` is a {kind}, not a lock")));
                }
                None if info.is_held() => Ok(ExitCode::from(NO)),
                None => return Ok(ExitCode::SUCCESS),
            },
            // The server may come back.
            Err(error @ LockError::Unavailable { .. }) => Err(error.into()),
            Err(error) => return Err(error.into()),
        };
        let now = Instant::now();
        let left = end.map_or(LOOK, |end| end.saturating_duration_since(now));
        if left.is_zero() {
            return over;
        }
        sleep(left.min(LOOK)).await;
    }
}
