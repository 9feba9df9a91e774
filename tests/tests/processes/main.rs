//! The promises of the lock between real processes, which are paused and killed by signals.

mod capacity;
mod contender;
mod crash;
mod crew;
mod ending;
mod exclusion;
mod fencing;
mod leaders;
mod mixed;
mod order;
mod pause;
mod permits;
mod readers;
mod several;
mod wire;
