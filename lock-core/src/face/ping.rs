//! Whether locks can be granted now, for a readiness probe.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::base::error::LockError;
use crate::base::observe::Observers;
use crate::engine::{Engine, Limit, acquire};
use crate::face::guard::LockGuard;
use crate::face::lock::Lock;

/// The name of the lock that a ping takes. In a cluster the tag of a slot follows.
const NAME: &str = "lock-core-ping";

/// Maximum ttl of that lock: a client that dies in between is in the way of no other ping for longer.
const TTL: Duration = Duration::from_secs(2);

/// The answer to [`LockManager::ping`](crate::LockManager::ping): locks can be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pong {
    round_trip: Duration,
    servers: Vec<String>,
}

impl Pong {
    /// From the request until the lock was granted. In a cluster, by the slowest master.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Host and port of the servers that answered: the master; in a cluster each master; in a quorum the nodes, of which a minority may be
    /// missing. Empty for `memory://` and over a connection of the user.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// assert!(locks.ping().await?.servers().is_empty());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn servers(&self) -> &[String] {
        &self.servers
    }
}

pub(crate) async fn ping(
    engine: &Arc<Engine>,
    at: &'static Location<'static>,
) -> Result<Pong, LockError> {
    let parts = try_join_all(engine.parts().await?.into_iter().map(async |tag| {
        let lock = Lock::new(Arc::clone(engine), &format!("{NAME}{tag}"));
        ping_one(engine, &lock.ttl(TTL), at).await
    }));
    let (round_trips, servers): (Vec<_>, Vec<_>) = parts.await?.into_iter().unzip();
    Ok(Pong {
        round_trip: round_trips.into_iter().max().unwrap_or_default(),
        servers: servers.into_iter().flatten().collect(),
    })
}

/// Takes a lock at one server, or at a quorum. A lock that another ping holds just now was granted just now.
async fn ping_one(
    engine: &Arc<Engine>,
    lock: &Lock,
    at: &'static Location<'static>,
) -> Result<(Duration, Vec<String>), LockError> {
    let mut request = lock.handle.request(None, at)?;
    // A probe is not the work of the service.
    request.observed = Observers::default();
    let began = Instant::now();
    let taken = acquire(&engine.shared, request, Limit::Try).await;
    let round_trip = began.elapsed();
    let guard = match taken {
        Ok(hold) => Some(LockGuard::untraced(Arc::clone(engine), hold)),
        Err(LockError::Busy { .. }) => None,
        Err(error) => return Err(error),
    };
    let servers = if let Some(server) = lock.handle.server() {
        vec![server.to_string()]
    } else {
        let info = lock.inspect().await?;
        let answered = info.nodes().iter().filter(|node| node.error().is_none());
        answered.map(|node| node.address().to_owned()).collect()
    };
    if let Some(guard) = guard {
        guard.release().await?;
    }
    Ok((round_trip, servers))
}
