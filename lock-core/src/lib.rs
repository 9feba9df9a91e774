//! A distributed lock for async Rust services over Redis or Valkey.
