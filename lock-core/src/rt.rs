//! What comes from outside: tasks, and the seeds of hashes. A simulation (`--cfg lock_sim`) brings its own.

#[cfg(not(lock_sim))]
pub(crate) use {std::hash::RandomState, tokio::runtime::Handle, tokio::spawn};

#[cfg(lock_sim)]
pub(crate) use crate::sim::{Handle, RandomState, spawn, uuid};

/// A name that nobody else has.
#[cfg(not(lock_sim))]
pub(crate) fn uuid() -> uuid::Uuid {
    uuid::Uuid::new_v4()
}

/// A map whose order a simulation can repeat.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
