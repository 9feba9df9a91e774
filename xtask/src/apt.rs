//! Debian's package manager, where it is there.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// What a browser is called: the page of the flash sale is tested in one.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

pub(crate) fn is_there() -> bool {
    in_path("apt-get").is_some()
}

/// Installs a package; false where that fails.
pub(crate) fn install(package: &str) -> bool {
    println!("installing Debian's {package} package");
    let fetch = || apt_get(&["install", "-y", "--no-install-recommends", package]);
    // Its list of packages may be old, or not there at all.
    fetch() || (apt_get(&["update"]) && fetch())
}

/// The package of a browser, if there is none and it can be installed.
pub(crate) fn missing_browser() -> Option<&'static str> {
    let is_missing = is_there() && BROWSERS.iter().all(|name| in_path(name).is_none());
    is_missing.then_some(BROWSERS[0])
}

/// Installs a browser if there is none. Without one its test says that it was skipped.
pub(crate) fn want_browser() {
    if let Some(package) = missing_browser() {
        install(package);
    }
}

fn apt_get(args: &[&str]) -> bool {
    succeeds(
        as_root("env")
            .arg("DEBIAN_FRONTEND=noninteractive")
            // In this run level a package does not start its service. The
            // program that tells the run level wants the one before as well.
            .args(["RUNLEVEL=1", "PREVLEVEL=N"])
            .args(["apt-get", "-qq"])
            .args(args),
    )
}

/// `program`, through sudo if that is needed and there; it never asks.
pub(crate) fn as_root(program: &str) -> Command {
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if is_root || in_path("sudo").is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["-n", program]);
    command
}

pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    search(program, &env::var_os("PATH").unwrap_or_default())
}

fn search(program: &str, path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::search;

    #[test]
    fn a_program_is_found_in_the_first_folder_that_has_it() {
        let found = search("sh", OsStr::new("/nonexistent:/bin:/usr/bin"));
        assert_eq!(found.as_deref(), Some("/bin/sh".as_ref()));
        assert_eq!(search("no-such-program", OsStr::new("/bin")), None);
    }
}
