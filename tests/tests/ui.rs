//! What `#[distributed_lock]` says to each mistake: one sentence, at the token that is wrong, and nothing after it.
//!
//! The messages of the compiler change with its version: run these with the toolchain that CI names for them.

#[test]
fn each_mistake_has_one_message_at_its_place() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
