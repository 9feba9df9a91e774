//! Runs over a quorum: what a seed draws, carrying it out, and what must hold meanwhile.
//!
//! Clients of three or five masters with own clocks, which restart with and without their data, or are replaced, over links that
//! break one by one. Locks are exclusive ones and those of elections: others are not over a quorum.

mod beliefs;
mod check;
mod draw;
mod fault;
mod nodes;
mod operation;
mod plan;
mod run;
mod votes;

pub use self::draw::draw;
pub use self::plan::{Fault, Incident, Met, Plan, ProcessPlan};
pub use self::run::run;
