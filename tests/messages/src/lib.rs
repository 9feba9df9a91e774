//! A package for one test, `tests/messages.rs`: what it depends on is checked once more for that test, so it is little.
