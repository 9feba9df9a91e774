use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Builds and runs the program of `../larger` that has the name of this example, with the same arguments.
fn main() {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut run = Command::new(&cargo);
    run.args(["run", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../larger/Cargo.toml"))
        .args(["--bin", env!("CARGO_CRATE_NAME")]);
    if !cfg!(debug_assertions) {
        run.arg("--release");
    }
    let error = run.arg("--").args(env::args_os().skip(1)).exec();
    eprintln!("cannot run {}: {error}", cargo.display());
    std::process::exit(1);
}
