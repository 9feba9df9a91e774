//! What the figures depend on: the machine, the server, the versions.

use std::collections::BTreeMap;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::options::Options;
use crate::results::About;

/// What was built with, to the version.
const LOCKFILE: &str = include_str!("../../Cargo.lock");

const CRATES: [&str; 5] = ["lock-core", "rslock", "async-redis-lock", "redis", "tokio"];

/// Describes this run. `server` is its product and version.
pub(crate) fn describe(options: &Options, server: String) -> About {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    About {
        date: date(since.as_secs() / 86_400),
        quick: options.quick,
        rounds: options.rounds,
        cores: available_parallelism().map_or(0, std::num::NonZero::get),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        server,
        versions: versions(LOCKFILE),
    }
}

fn versions(lockfile: &str) -> BTreeMap<String, String> {
    let of = |name: &str| {
        let (_, rest) = lockfile.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        let (version, _) = rest.split_once('"')?;
        Some((name.to_owned(), version.to_owned()))
    };
    CRATES.into_iter().filter_map(of).collect()
}

/// The day of that number, where 0 is 1970-01-01.
fn date(day: u64) -> String {
    // Years that begin in March have their odd day at the end. 400 of them have 146,097 days.
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

#[cfg(test)]
mod tests {
    use super::{CRATES, LOCKFILE, date, versions};

    #[test]
    fn days_have_their_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(11_017), "2000-03-01");
        assert_eq!(date(20_454), "2026-01-01");
        assert_eq!(date(20_453), "2025-12-31");
    }

    #[test]
    fn every_crate_has_its_version() {
        assert_eq!(versions(LOCKFILE).len(), CRATES.len());
        let text = "[[package]]\nname = \"redis\"\nversion = \"1.2.3\"\n";
        assert_eq!(versions(text)["redis"], "1.2.3");
    }
}
