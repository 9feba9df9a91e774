//! Credentials that end while their connection lives.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{RedisConnectionInfo, cmd};
use tokio::time::{Instant, sleep_until};

use crate::base::credentials::Credentials;
use crate::store::redis::connection::Connection;
use crate::store::redis::connection::target::Target;
use crate::store::redis::error::said;

/// Minimum pause after an attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// Authenticates a connection anew before its credentials end. An attempt that fails is repeated, and costs the connection nothing.
pub(in crate::store::redis) async fn keep(
    connection: Weak<Connection>,
    target: Arc<Target>,
    mut given: Arc<Credentials>,
    limit: Duration,
) {
    let Some(over) = connection.upgrade().map(|it| it.over()) else {
        return;
    };
    let (mut over, mut due) = (pin!(over), given.due());
    while let Some(at) = due {
        tokio::select! {
            () = sleep_until(at.max(Instant::now() + PAUSE)) => {}
            // A task that stayed until then would be one for each connection.
            () = &mut over => return,
        }
        // A handle that is kept during the pause would keep the connection.
        let in_use = connection.upgrade();
        let Some(in_use) = in_use.filter(|it| it.generation.messages_count()) else {
            return;
        };
        let authenticate = async |settings: RedisConnectionInfo| {
            let mut authenticate = cmd("AUTH");
            authenticate
                .arg(settings.username())
                .arg(settings.password());
            in_use.request(&authenticate).await?.extract_error()
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
