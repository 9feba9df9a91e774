//! Several locks in one guard: all or none.

mod begins_again;
mod drops;
mod everywhere;
mod faults;
mod rig;
mod scripts;
