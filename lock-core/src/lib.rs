//! A distributed lock for async Rust services, over Redis or Valkey.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod clock;
mod config;
mod error;
mod fencing;
mod global;
mod guard;
mod inspect;
mod key;
mod lock;
mod manager;
#[cfg(feature = "macros")]
pub mod recipes;
mod session;
mod store;
mod sync;
mod token;
mod view;

#[cfg(feature = "macros")]
#[doc(hidden)]
#[path = "private/mod.rs"]
pub mod __private;

pub use crate::builder::LockManagerBuilder;
pub use crate::error::{Cause, LockError, LossReason};
pub use crate::fencing::FencingToken;
pub use crate::global::default_manager;
pub use crate::guard::LockGuard;
pub use crate::inspect::LockInfo;
pub use crate::lock::Lock;
pub use crate::manager::LockManager;
pub use crate::view::LockView;
/// Runs an async function under a lock. See the [attribute's page](lock_macros::distributed_lock) for its arguments.
#[cfg(feature = "macros")]
pub use lock_macros::distributed_lock;
