//! The `#[distributed_lock]` attribute.
