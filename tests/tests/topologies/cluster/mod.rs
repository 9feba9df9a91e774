//! Locks on a cluster: slots that move, masters that fail, and what can be wrong with it.

mod access;
mod failover;
mod migration;
mod mistakes;
mod redisson;
mod survivors;
