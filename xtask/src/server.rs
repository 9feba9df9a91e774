//! The server the tests run on: found, or installed where that is possible.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{self, as_root, in_path, succeeds};

/// Names the server program; the tests read it too.
pub(crate) const VARIABLE: &str = "REDIS_SERVER_BIN";

const PROGRAM: &str = "redis-server";
const PACKAGE: &str = "redis-server";
const OLDEST: (u32, u32) = (7, 0);

/// A server program that is new enough.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) path: PathBuf,
    /// Product and version, such as `Redis 7.0.15`.
    pub(crate) name: String,
}

/// The package that `find_or_install` installs: none where there is a server, or no way to install one.
pub(crate) fn missing_package() -> Option<&'static str> {
    let is_missing = named().is_none() && in_path(PROGRAM).is_none() && apt::is_there();
    is_missing.then_some(PACKAGE)
}

/// The service that is stopped after the installation.
pub(crate) fn service_to_stop() -> Option<&'static str> {
    stop().map(|_| PACKAGE)
}

/// The program that the user has named.
fn named() -> Option<PathBuf> {
    let path = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    path.map(PathBuf::from)
}

/// The server of `REDIS_SERVER_BIN`, else of `PATH`, else of Debian's package.
pub(crate) fn find_or_install() -> Result<Server, String> {
    if let Some(path) = named() {
        if !path.is_file() {
            return Err(format!("{VARIABLE} names no file: {}", path.display()));
        }
        // Tests run in the folders of their packages. Links stay: the program
        // may be one that looks at the name it is called by.
        let path = std::path::absolute(&path)
            .map_err(|error| format!("cannot resolve {}: {error}", path.display()))?;
        return check(path);
    }
    if let Some(path) = in_path(PROGRAM) {
        return check(path);
    }
    if missing_package().is_some() {
        install()?;
        if let Some(path) = in_path(PROGRAM) {
            return check(path);
        }
    }
    Err(format!(
        "the tests need {PROGRAM} {}.{} or newer, which was not found: \
         install it, or name it in {VARIABLE}",
        OLDEST.0, OLDEST.1
    ))
}

fn check(path: PathBuf) -> Result<Server, String> {
    let output = Command::new(&path)
        .arg("--version")
        .output()
        .map_err(|error| format!("cannot run {}: {error}", path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let name = accept(&text).map_err(|why| format!("{} {why}", path.display()))?;
    Ok(Server { path, name })
}

/// Name and version from the output of `--version`, if new enough.
fn accept(text: &str) -> Result<String, String> {
    let product = text.split_whitespace().next().unwrap_or_default();
    let version = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="))
        .unwrap_or_default();
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return Err(format!("does not tell its version: {:?}", text.trim()));
    };
    if (major, minor) < OLDEST {
        return Err(format!(
            "is {product} {version}, but the tests need {}.{} or newer",
            OLDEST.0, OLDEST.1
        ));
    }
    Ok(format!("{product} {version}"))
}

fn install() -> Result<(), String> {
    if !apt::install(PACKAGE) {
        return Err(format!(
            "the tests need {PROGRAM}, and `apt-get install {PACKAGE}` failed: \
             install it by hand, or name it in {VARIABLE}"
        ));
    }
    stop_service();
    Ok(())
}

/// The tests start servers of their own. Where the package started one all the
/// same, as under systemd, it ends here: nobody had it before this job.
fn stop_service() {
    if let Some(mut stop) = stop()
        && !succeeds(&mut stop)
    {
        println!("the service {PACKAGE} could not be stopped; the tests do not use it");
    }
}

/// The command that stops the service, where services are kept.
fn stop() -> Option<Command> {
    let (program, args) = if Path::new("/run/systemd/system").exists() {
        ("systemctl", ["stop", PACKAGE])
    } else if in_path("service").is_some() || Path::new("/usr/sbin/service").exists() {
        ("service", [PACKAGE, "stop"])
    } else {
        return None;
    };
    let mut stop = as_root(program);
    stop.args(args);
    Some(stop)
}

#[cfg(test)]
mod tests {
    use super::accept;

    #[test]
    fn versions_from_seven_on_are_accepted() {
        for (text, name) in [
            ("Redis server v=7.0.15 sha=0:0 bits=64", "Redis 7.0.15"),
            ("Redis server v=8.6.2 sha=0:0 bits=64", "Redis 8.6.2"),
            ("Redis server v=10.0 sha=0:0", "Redis 10.0"),
            ("Valkey server v=8.0.1 sha=0:0 bits=64\n", "Valkey 8.0.1"),
        ] {
            assert_eq!(accept(text).as_deref(), Ok(name));
        }
    }

    #[test]
    fn an_older_version_is_named_in_the_refusal() {
        let refusal = accept("Redis server v=6.2.14 sha=0:0 bits=64").unwrap_err();
        assert!(refusal.contains("6.2.14") && refusal.contains("7.0"));
    }

    #[test]
    fn other_output_is_refused() {
        for text in ["", "ls (GNU coreutils) 9.1", "Redis server v=seven"] {
            assert!(accept(text).unwrap_err().contains("version"));
        }
    }
}
