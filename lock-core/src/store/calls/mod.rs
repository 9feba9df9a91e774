//! What the engine and a store say to each other. A store handles keys, tokens and leases. It does not know guards.

mod answer;
mod attempt;
mod engine_ref;
mod error;
mod events;
mod misconfiguration;
mod subscription;

pub(crate) use self::answer::{
    Answer, OrRefused, Passed, QueuePlace, Released, Reweighed, Scanned, Together, to_each,
};
pub(crate) use self::attempt::{Attempt, Cursor, GuardedCall, Mode, Renewal};
#[cfg(feature = "cluster")]
pub(crate) use self::engine_ref::Part;
pub(crate) use self::engine_ref::{Attached, EngineRef};
pub(crate) use self::error::StoreError;
pub(crate) use self::events::{Concerned, EventSink, Events, Grant};
pub(crate) use self::misconfiguration::Misconfiguration;
pub(crate) use self::subscription::{Announcer, Subscription};
