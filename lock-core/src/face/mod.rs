//! What users see. The root of the crate re-exports it.

pub(crate) mod all;
pub(crate) mod builder;
pub(crate) mod connect;
pub(crate) mod election;
pub(crate) mod global;
pub(crate) mod guard;
pub(crate) mod guarded;
pub(crate) mod handle;
pub(crate) mod inspect;
pub(crate) mod latch;
pub(crate) mod list;
pub(crate) mod lock;
pub(crate) mod manager;
pub(crate) mod multi_lock;
pub mod observe;
pub(crate) mod options;
pub(crate) mod ping;
pub(crate) mod reentrant;
pub(crate) mod rw_lock;
pub(crate) mod scope;
pub(crate) mod seats;
pub(crate) mod segmented;
pub(crate) mod semaphore;
pub(crate) mod verbs;
pub(crate) mod view;
