//! Sets the one difference to lock-core.

fn main() {
    println!("cargo::rustc-cfg=lock_next_format");
    println!("cargo::rerun-if-changed=build.rs");
}
