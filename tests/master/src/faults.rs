//! What can be wrong with a server that answers.

use std::collections::BTreeSet;

/// The faults of a server; none at first.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// It is a replica now: it refuses to write, and hides what has expired.
    pub read_only: bool,
    /// Its memory is used up: commands that may need more are refused, but not after the first write of a script.
    pub out_of_memory: bool,
    /// Commands that the users may not run, also not in a script. Names in either case.
    pub denied: BTreeSet<String>,
    /// Keys that the users may not name in a call of a script.
    pub denied_keys: BTreeSet<Vec<u8>>,
    /// The users may not use any channel: neither subscribe nor publish.
    pub no_channels: bool,
}

impl Faults {
    /// Whether a call of a script names a key that is denied.
    pub(crate) fn denies_a_key(&self, words: &[&[u8]]) -> bool {
        if self.denied_keys.is_empty() {
            return false;
        }
        let count = words
            .get(2)
            .and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
        let keys = words.iter().skip(3).take(count.unwrap_or(0));
        keys.into_iter().any(|key| self.denied_keys.contains(*key))
    }

    pub(crate) fn denies(&self, command: &str) -> bool {
        !self.denied.is_empty()
            && self
                .denied
                .iter()
                .any(|name| name.eq_ignore_ascii_case(command))
    }
}
