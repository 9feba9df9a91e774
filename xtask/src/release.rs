//! What a release needs, without publishing anything: the packed crates alone, the README's programs and `lockctl` on top of them,
//! the oldest Rust with the oldest dependencies, and the checks of tools that may be installed.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt;
use crate::run::{Steps, cargo, root};

/// In the order in which they are published.
const CRATES: [&str; 3] = ["lock-macros", "lock-core", "lock-cli"];

/// Those that a program depends on.
const LIBRARIES: [&str; 2] = ["lock-macros", "lock-core"];

/// Files without which a packed crate is not complete.
const FILES: [&str; 3] = ["LICENSE-MIT", "LICENSE-APACHE", "README.md"];

/// Run on the packed crates, which are built without TLS there, as the crates of the workspace never are.
const WITHOUT_TLS: &str = r#"#[tokio::main]
async fn main() {
    let error = lock_core::LockManager::connect("rediss://127.0.0.1:1").await.unwrap_err();
    assert!(error.to_string().contains("enable the feature `tls-rustls`"), "{error}");
}
"#;

/// As in the workspace: what has the features that it has there is not compiled again.
const PROFILE: &str =
    "\n[profile.dev]\ndebug = false\n\n[profile.dev.build-override]\ndebug = false\n";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Packs the crates and checks them. Nothing is published.
pub(crate) fn dry_run(steps: &mut Steps) -> Result<(), String> {
    let folder = root().join("target/release-check");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| said(&folder, &error))?;
    }
    let packed = folder.join("packed");
    pack(steps, &packed)?;
    readme(steps, &folder.join("reader"))?;
    lockctl(steps, &packed)?;
    oldest(steps, &packed)?;
    tools(steps)
}

/// Packs the crates and unpacks them into folders with their names.
fn pack(steps: &mut Steps, to: &Path) -> Result<(), String> {
    let mut package = cargo(&["package", "--no-verify", "--allow-dirty", "--locked"]);
    package.args(CRATES.map(|name| ["-p", name]).concat());
    steps.run("release, pack", package)?;
    fs::create_dir_all(to).map_err(|error| said(to, &error))?;
    for name in CRATES {
        let unpacked = to.join(name);
        let archive = root().join(format!("target/package/{name}-{VERSION}.crate"));
        let mut unpack = Command::new("tar");
        // With the present time: the times in an archive are always the same, and cargo would take a change for none.
        unpack.arg("-xzmf").arg(archive).arg("-C").arg(to);
        if !apt::succeeds(&mut unpack) {
            return Err(format!("tar cannot unpack {name}"));
        }
        let from = to.join(format!("{name}-{VERSION}"));
        fs::rename(&from, &unpacked).map_err(|error| said(&from, &error))?;
        for file in FILES {
            if !unpacked.join(file).is_file() {
                return Err(format!("the packed {name} has no {file}"));
            }
        }
    }
    Ok(())
}

/// Builds the programs of the README as a user does, on the packed crates, and runs them.
fn readme(steps: &mut Steps, to: &Path) -> Result<(), String> {
    let path = root().join("README.md");
    let text = fs::read_to_string(&path).map_err(|error| said(&path, &error))?;
    let programs = programs(&text);
    if programs.is_empty() {
        return Err("the README has no program".into());
    }
    let mut manifest = format!(
        "[package]\nname = \"reader\"\nedition = \"2024\"\n\n[workspace]\n{PROFILE}\n\
         [dependencies]\nlock-core = \"{VERSION}\"\ntokio = {{ version = \"1\", features = [\"full\"] }}\n\n[patch.crates-io]\n"
    );
    for name in LIBRARIES {
        let _ = writeln!(manifest, "{name} = {{ path = \"../packed/{name}\" }}");
    }
    write(&to.join("Cargo.toml"), &manifest)?;
    // The versions that are tested, which are there already.
    let lock = root().join("Cargo.lock");
    fs::copy(&lock, to.join("Cargo.lock")).map_err(|error| said(&lock, &error))?;
    let numbered = (1..).zip(programs);
    let mut all: Vec<_> = numbered
        .map(|(number, program)| (format!("readme-{number}"), program))
        .collect();
    all.push(("without-tls".to_owned(), WITHOUT_TLS));
    for (name, program) in &all {
        write(&to.join(format!("src/bin/{name}.rs")), program)?;
    }
    for (name, _) in &all {
        let mut run = cargo(&["run", "--bin", name]);
        run.current_dir(to)
            .arg("--target-dir")
            .arg(root().join("target"));
        steps.run(&format!("release, {name} on the packed crates"), run)?;
    }
    Ok(())
}

/// Builds the packed `lockctl` on the packed crates, with the dependencies in its lock file, and runs it.
fn lockctl(steps: &mut Steps, packed: &Path) -> Result<(), String> {
    let path = packed.join("lock-cli/Cargo.toml");
    let mut manifest = fs::read_to_string(&path).map_err(|error| said(&path, &error))?;
    manifest += PROFILE;
    manifest += "\n[workspace]\n\n[patch.crates-io]\n";
    for name in LIBRARIES {
        let _ = writeln!(manifest, "{name} = {{ path = \"../{name}\" }}");
    }
    write(&path, &manifest)?;
    let mut run = cargo(&["run", "--target-dir"]);
    run.current_dir(packed.join("lock-cli"))
        .arg(root().join("target"))
        .args(["--", "--version"]);
    steps.run("release, lockctl on the packed crates", run)
}

/// The blocks of Rust that are whole programs.
fn programs(text: &str) -> Vec<&str> {
    let blocks = text.split("```rust\n").skip(1);
    blocks
        .filter_map(|block| block.split("```").next())
        .filter(|block| block.contains("fn main()"))
        .collect()
}

/// Compiles the packed crates with the oldest Rust and the oldest dependencies that they promise to work with.
fn oldest(steps: &mut Steps, packed: &Path) -> Result<(), String> {
    let rust = env!("CARGO_PKG_RUST_VERSION");
    steps.begin("release, oldest Rust");
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", rust, "--profile", "minimal"]);
    install.arg("--no-self-update");
    if !apt::succeeds(&mut install) {
        let what = format!("the build with Rust {rust}: rustup cannot install it");
        steps.skip(&what);
        return Ok(());
    }
    let manifest = "[workspace]\nresolver = \"3\"\nmembers = [\"lock-core\", \"lock-macros\"]\n\n\
                    [patch.crates-io]\nlock-macros = { path = \"lock-macros\" }\n";
    write(&packed.join("Cargo.toml"), manifest)?;
    for name in LIBRARIES {
        // A member has the lock file of its workspace.
        let lock = packed.join(name).join("Cargo.lock");
        fs::remove_file(&lock).map_err(|error| said(&lock, &error))?;
    }
    let cargo = || {
        let mut cargo = Command::new("rustup");
        cargo.current_dir(packed).args(["run", rust, "cargo"]);
        cargo
    };
    let mut resolve = cargo();
    // The option is for nightly Rust only, but it chooses versions and compiles nothing.
    resolve.env("RUSTC_BOOTSTRAP", "1");
    resolve.args(["-Z", "direct-minimal-versions", "generate-lockfile"]);
    steps.run("release, oldest dependencies", resolve)?;
    let mut check = cargo();
    check.args(["check", "--workspace", "--all-features", "--target-dir"]);
    check.arg(root().join("target/oldest-rust"));
    steps.run("release, build with the oldest of both", check)
}

/// cargo-deny and cargo-semver-checks, if they are installed.
fn tools(steps: &mut Steps) -> Result<(), String> {
    if apt::in_path("cargo-deny").is_some() {
        steps.run("release, cargo-deny", cargo(&["deny", "check"]))?;
    } else {
        steps.skip("cargo-deny: it is not installed");
    }
    let Some(tag) = last_tag() else {
        steps.skip("cargo-semver-checks: there is no release to compare with");
        return Ok(());
    };
    if apt::in_path("cargo-semver-checks").is_none() {
        steps.skip("cargo-semver-checks: it is not installed");
        return Ok(());
    }
    let check = cargo(&["semver-checks", "-p", "lock-core", "--baseline-rev", &tag]);
    steps.run("release, cargo-semver-checks", check)
}

/// The tag of the last release, such as `v0.1.0`.
fn last_tag() -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(root());
    git.args(["describe", "--tags", "--abbrev=0", "--match", "v*"]);
    let output = git.output().ok()?;
    let tag = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !tag.is_empty()).then_some(tag)
}

fn write(path: &PathBuf, text: &str) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, text));
    written.map_err(|error| said(path, &error))
}

fn said(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::programs;

    #[test]
    fn the_programs_of_a_text_are_its_blocks_with_a_main_function() {
        let text =
            "a\n```rust\nfn main() {}\n```\nb\n```rust\nlet x = 1;\n```\n```text\nfn main()\n```\n";
        assert_eq!(programs(text), ["fn main() {}\n"]);
    }
}
