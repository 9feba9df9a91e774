//! Credentials that end while their connection lives.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{RedisConnectionInfo, cmd};
use tokio::time::{Instant, sleep_until};

use super::error::said;
use super::link::Link;
use super::target::Target;
use crate::base::credentials::Credentials;

/// Minimum pause after an attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// Authenticates a connection anew before its credentials end. An attempt that fails is repeated, and costs the connection nothing.
pub(super) async fn keep(
    link: Weak<Link>,
    generation: u64,
    target: Arc<Target>,
    mut given: Arc<Credentials>,
) {
    let mut due = given.due();
    while let Some(at) = due {
        sleep_until(at.max(Instant::now() + PAUSE)).await;
        // A handle that is kept during the pause would keep the connection.
        let live = link.upgrade();
        let live = live.and_then(|link| Some((link.current()?, link.limit)));
        let Some((live, limit)) = live.filter(|(live, _)| live.generation == generation) else {
            return;
        };
        let authenticate = |settings: RedisConnectionInfo| {
            let (mut socket, mut authenticate) = (live.socket.clone(), cmd("AUTH"));
            authenticate
                .arg(settings.username())
                .arg(settings.password());
            async move { socket.request(&authenticate).await?.extract_error() }
        };
        let others = target.logged_in(limit, Some(Arc::clone(&given)), authenticate);
        match others.await {
            Ok((_, others)) => {
                given = others.unwrap_or(given);
                due = given.due();
            }
            Err(error) => {
                let why = said(&error);
                tracing::warn!(
                    server = &*target.address,
                    why,
                    "the connection could not authenticate anew: trying again"
                );
                due = given.lasts.map(|it| Instant::now() + it.mul_f64(0.05));
            }
        }
    }
}
