//! Credentials that end while their connection lives.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Value, cmd};
use tokio::time::sleep;

use super::error::said;
use super::link::Link;
use super::target::Target;

/// Minimum pause after an attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// Authenticates a connection anew before its credentials end. An attempt that fails is repeated, and costs the connection nothing.
pub(super) async fn keep(link: Weak<Link>, generation: u64, target: Arc<Target>, lasts: Duration) {
    let mut pause = lasts.mul_f64(0.8);
    loop {
        sleep(pause.max(PAUSE)).await;
        // A handle that is kept during the pause would keep the connection.
        let live = link
            .upgrade()
            .and_then(|link| Some((link.current()?, link.connect_limit)));
        let Some((mut live, limit)) = live.filter(|(live, _)| live.generation == generation) else {
            return;
        };
        let mut authenticate = cmd("AUTH");
        let why = match target.settings(limit).await {
            Ok((settings, lasts)) => {
                let user = settings.username().unwrap_or_default();
                let password = settings.password().unwrap_or_default();
                authenticate.arg(user).arg(password);
                let answer = live.socket.request(&authenticate).await;
                match answer.and_then(Value::extract_error) {
                    Ok(_) => {
                        let Some(lasts) = lasts else { return };
                        pause = lasts.mul_f64(0.8);
                        continue;
                    }
                    Err(error) => said(&error),
                }
            }
            Err(error) => said(&error),
        };
        tracing::warn!(
            server = &*target.address,
            why,
            "the connection could not authenticate anew: trying again"
        );
        pause = lasts.mul_f64(0.05);
    }
}
