//! Jobs of this workspace: `cargo xtask <job>`.
fn main() {}
