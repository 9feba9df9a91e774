//! The simulation: built with its seams, in a folder of its own.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::run::{Steps, cargo, root};

const PACKAGE: &str = "lock-simulation";

/// What the seams of lock-core and the seeded runtime of tokio want.
const FLAGS: [&str; 4] = ["--cfg", "lock_sim", "--cfg", "tokio_unstable"];

/// Between the flags of `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\x1f";

/// Where other flags do not make cargo build everything anew.
pub(crate) fn target() -> PathBuf {
    root().join("target/simulation")
}

/// Cargo for the simulation in a workspace of this one's shape, and the folder that it builds in.
pub(crate) fn cargo_with_seams(job: &[&str], target: &Path) -> Command {
    let mut command = cargo(job);
    command
        .args(["--package", PACKAGE, "--profile", "simulation"])
        .arg("--target-dir")
        .arg(target);
    for (plain, encoded) in [
        ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"),
        ("RUSTDOCFLAGS", "CARGO_ENCODED_RUSTDOCFLAGS"),
    ] {
        command.env(
            encoded,
            with_flags(env::var_os(plain), env::var_os(encoded)),
        );
    }
    command
}

/// The flags of the user, of which cargo reads the encoded ones where there are both, and ours.
fn with_flags(plain: Option<OsString>, encoded: Option<OsString>) -> OsString {
    let users = encoded.unwrap_or_else(|| {
        let plain = plain.unwrap_or_default();
        let words: Vec<_> = plain
            .to_str()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        words.join(SEPARATOR).into()
    });
    let mut all = users;
    for flag in FLAGS {
        if !all.is_empty() {
            all.push(SEPARATOR);
        }
        all.push(flag);
    }
    all
}

/// Where cargo puts the program.
pub(crate) fn program(target: &Path) -> PathBuf {
    target.join("simulation").join(PACKAGE)
}

/// Builds the program.
pub(crate) fn build(steps: &mut Steps) -> Result<PathBuf, String> {
    let target = target();
    let build = cargo_with_seams(&["build", "--bin", PACKAGE], &target);
    steps.run("simulation, build", build)?;
    Ok(program(&target))
}

/// Runs seeds.
pub(crate) fn simulate(steps: &mut Steps, extra: &[String]) -> Result<(), String> {
    let mut simulation = Command::new(build(steps)?);
    simulation.args(extra);
    steps.run("simulation", simulation)
}

/// Runs the fixed set of seeds, a part on each processor.
fn run_fixed(steps: &mut Steps) -> Result<(), String> {
    let program = build(steps)?;
    let of = thread::available_parallelism().map_or(1, usize::from);
    let parts = (1..=of).map(|part| {
        let mut simulation = Command::new(&program);
        simulation.args(["--fixed", "--part", &format!("{part}/{of}")]);
        simulation
    });
    steps.run_at_once("simulation", parts.collect())
}

/// What a change must leave as it is: lints, a fixed set of seeds, and the simulation's own tests.
pub(crate) fn check(steps: &mut Steps) -> Result<(), String> {
    let mut clippy = cargo_with_seams(&["clippy", "--all-targets"], &target());
    clippy.args(["--", "-D", "warnings"]);
    let clippy = steps.run("simulation, clippy", clippy);
    let seeds = run_fixed(steps);
    let tests = cargo_with_seams(&["test"], &target());
    clippy.and(seeds).and(steps.run("simulation, tests", tests))
}

#[cfg(test)]
mod tests {
    use super::with_flags;

    fn flags(plain: Option<&str>, encoded: Option<&str>) -> String {
        let flags = with_flags(plain.map(Into::into), encoded.map(Into::into));
        flags.into_string().unwrap()
    }

    #[test]
    fn flags_of_the_user_stay() {
        let ours = "--cfg\x1flock_sim\x1f--cfg\x1ftokio_unstable";
        assert_eq!(flags(None, None), ours);
        let users = flags(Some(" -C  debuginfo=0"), None);
        assert_eq!(users, format!("-C\x1fdebuginfo=0\x1f{ours}"));
        let encoded = flags(Some("-O"), Some("-A\x1funused"));
        assert_eq!(encoded, format!("-A\x1funused\x1f{ours}"));
    }
}
