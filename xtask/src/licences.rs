//! The licences of what the users of the library get with it.
//!
//! `cargo-deny` does the same. Debian does not have it, and to compile its 211 crates takes minutes. If it is installed, `release` runs it.

use crate::run::cargo;

/// What these ask for is to keep the notices.
const ALLOWED: [&str; 8] = [
    "Apache-2.0",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Fails where a dependency of lock-core has none but other licences.
pub(crate) fn check() -> Result<(), String> {
    let mut tree = cargo(&["tree", "-p", "lock-core", "--all-features", "--locked"]);
    tree.args(["-e", "normal,build", "--prefix", "none", "--no-dedupe"]);
    let output = tree.args(["--format", "{p}|{l}"]).output();
    let output = output.map_err(|error| format!("cannot run cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let refused: Vec<_> = refused(&text).collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(format!("licences not allowed: {}", refused.join(", ")))
}

fn refused(tree: &str) -> impl Iterator<Item = &str> {
    tree.lines().filter(|line| {
        let licence = line.split_once('|').map_or("", |(_, licence)| licence);
        !is_allowed(licence)
    })
}

/// Reads `(A OR B) AND C` and the older `A/B`. An AND in front of an OR without parentheses does not occur.
fn is_allowed(licence: &str) -> bool {
    let alternatives = |part: &str| {
        let part = part.replace('/', " OR ");
        let names = part.trim_matches(|c| "( )".contains(c)).to_owned();
        names
            .split(" OR ")
            .any(|name| ALLOWED.contains(&name.trim()))
    };
    licence.split(" AND ").all(alternatives)
}

#[cfg(test)]
mod tests {
    use super::{is_allowed, refused};

    #[test]
    fn one_of_the_alternatives_of_each_part_has_to_be_allowed() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "Unlicense OR MIT",
            "(GPL-3.0 OR MIT) AND ISC",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(GPL-3.0 OR AGPL-3.0) AND MIT",
        ] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn a_crate_without_a_licence_is_refused() {
        let tree = "good v1.0.0|MIT\nbad v2.0.0|";
        assert_eq!(refused(tree).collect::<Vec<_>>(), ["bad v2.0.0|"]);
    }
}
