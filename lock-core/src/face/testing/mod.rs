//! For the tests of services: a server in memory that a test controls, and its time. Needs the feature `testing`.
//!
//! The page [Testing your service](crate::guide::testing) shows the tests that it is for.

mod memory_server;
mod record;

pub use self::memory_server::MemoryServer;
pub use self::record::TakenLock;
pub use crate::base::clocks::ManualClock;
