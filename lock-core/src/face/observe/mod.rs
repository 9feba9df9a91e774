//! The events of a manager's locks, for metrics: an [`Observer`] is told of each.
//!
//! A manager tells its observer when a call for a lock begins and how it ends, when a guard's hold ends and how, of each renewal,
//! of connections that are lost and made again, and of the nodes of a quorum. `MetricsObserver` (feature `metrics`) and
//! `OpenTelemetryObserver` (feature `opentelemetry`) make metrics of them. The [guide](crate::guide::observability) lists these, and
//! says what to look at.
//!
//! Each event about a lock carries its key and its **label**. There may be millions of keys (`order:7`), so a metric that has the
//! key in its labels has too many series; a program has few labels ([`Lock::label`](crate::Lock::label)). The label of an
//! annotated function is the template of its key (`order:{order_id}`), if the attribute has no `label`.
//!
//! # Examples
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//! use std::sync::Arc;
//!
//! use lock_core::LockManager;
//! use lock_core::observe::{Event, Observer};
//!
//! /// Counts the locks that were lost.
//! #[derive(Default)]
//! struct Losses(AtomicU64);
//!
//! impl Observer for Losses {
//!     fn observe(&self, event: &Event<'_>) {
//!         if let Event::Lost { .. } = event {
//!             self.0.fetch_add(1, Relaxed);
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
//! let losses = Arc::new(Losses::default());
//! let locks = LockManager::builder().observer(Arc::clone(&losses)).connect("memory://").await?;
//! let lock = locks.lock("order:7").label("order");
//! let guard = lock.acquire().await?;
//! lock.force_release().await?;
//! guard.lost().await;
//! assert_eq!(losses.0.load(Relaxed), 1);
//! # Ok(()) }
//! ```

#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod figures;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
#[cfg(feature = "opentelemetry")]
pub use self::opentelemetry::OpenTelemetryObserver;
pub use crate::base::observe::{AcquiredHow, Event, ObservedLock, Observer, ReleasedHow};
