//! Starts the larger example of this name.

include!("../launch.rs");
