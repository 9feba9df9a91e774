//! What comes from outside: tasks, and the seeds of hashes. A simulation (`--cfg lock_sim`) brings its own.

#[cfg(not(lock_sim))]
pub(crate) use {std::hash::RandomState, tokio::runtime::Handle, tokio::spawn};

#[cfg(lock_sim)]
pub(crate) use crate::base::sim::{Handle, RandomState, before_send, spawn, uuid};

/// Nothing; in the simulation a pause between a decision and its request.
#[cfg(all(feature = "quorum", not(lock_sim)))]
pub(crate) async fn before_send() {}

/// A unique name.
#[cfg(not(lock_sim))]
pub(crate) fn uuid() -> uuid::Uuid {
    uuid::Uuid::new_v4()
}

/// Time since 1970, by the clock of the system.
pub(crate) fn unix_time() -> std::time::Duration {
    // The unit tests count sequence numbers from 1.
    #[cfg(all(test, not(lock_sim)))]
    return std::time::Duration::ZERO;
    #[cfg(all(not(test), not(lock_sim)))]
    return std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    #[cfg(lock_sim)]
    return std::time::Duration::from_secs(1_800_000_000) + crate::base::sim::elapsed();
}

/// A map whose order a simulation can repeat.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
