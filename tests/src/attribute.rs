//! The documentation of `#[distributed_lock]`, for the runner of documentation tests: it tests the examples here.

#[doc = include_str!("../../lock-macros/docs/attribute.md")]
mod begin {}

#[doc = include_str!("../../lock-macros/docs/which_lock.md")]
mod which_lock {}

#[doc = include_str!("../../lock-macros/docs/how_long.md")]
mod how_long {}

#[doc = include_str!("../../lock-macros/docs/outcome.md")]
mod outcome {}

#[doc = include_str!("../../lock-macros/docs/other_libraries.md")]
mod other_libraries {}
