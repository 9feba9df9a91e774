//! `lock-simulation`: runs seeds, and shows what it finds.

#[cfg(lock_sim)]
mod command;

#[cfg(lock_sim)]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(not(lock_sim))]
fn main() -> std::process::ExitCode {
    eprintln!("built without `--cfg lock_sim`: use `cargo xtask simulate`");
    std::process::ExitCode::FAILURE
}
