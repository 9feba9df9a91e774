//! What every layer uses: names, times, tokens, settings, errors.

#[cfg(feature = "testing")]
pub(crate) mod asked;
pub(crate) mod backoff;
pub(crate) mod beside;
pub(crate) mod claim;
#[cfg(any(test, feature = "testing"))]
#[cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "the feature exports it")
)]
pub(crate) mod clocks;
pub(crate) mod config;
pub(crate) mod credentials;
pub(crate) mod election;
pub(crate) mod error;
pub(crate) mod fencing;
pub(crate) mod finding;
pub(crate) mod key;
pub(crate) mod kind;
pub(crate) mod latch;
pub(crate) mod observe;
pub(crate) mod owner;
pub(crate) mod place;
pub(crate) mod quorum_config;
#[cfg(feature = "quorum")]
pub(crate) mod quorum_node;
pub(crate) mod refusal;
pub(crate) mod rt;
pub(crate) mod share;
pub(crate) mod signal;
#[cfg(lock_sim)]
pub mod sim;
pub(crate) mod single_flight;
pub(crate) mod slot;
pub(crate) mod snapshot;
pub(crate) mod sync;
pub(crate) mod terms;
pub(crate) mod time;
pub(crate) mod timers;
#[cfg(feature = "tls-rustls")]
pub(crate) mod tls;
pub(crate) mod token;
