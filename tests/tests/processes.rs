//! The promises of the lock between real processes, which are paused and killed by signals.

#[path = "processes/capacity.rs"]
mod capacity;
#[path = "processes/contender.rs"]
mod contender;
#[path = "processes/crash.rs"]
mod crash;
#[path = "processes/crew.rs"]
mod crew;
#[path = "processes/ending.rs"]
mod ending;
#[path = "processes/exclusion.rs"]
mod exclusion;
#[path = "processes/fencing.rs"]
mod fencing;
#[path = "processes/leaders.rs"]
mod leaders;
#[path = "processes/mixed.rs"]
mod mixed;
#[path = "processes/order.rs"]
mod order;
#[path = "processes/pause.rs"]
mod pause;
#[path = "processes/permits.rs"]
mod permits;
#[path = "processes/readers.rs"]
mod readers;
#[path = "processes/several.rs"]
mod several;
#[path = "processes/wire.rs"]
mod wire;
