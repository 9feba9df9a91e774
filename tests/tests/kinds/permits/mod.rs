//! Semaphores and read-write locks: what several may hold. Each case runs on memory, and on each listed server.

mod dead;
mod deadlock;
mod defects;
mod faults;
mod free;
mod guarded;
mod numbers;
mod order;
mod refused;
mod resize;
mod rig;
mod tries;
mod upgrade;
mod weights;
