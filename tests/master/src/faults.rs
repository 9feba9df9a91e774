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
    /// The users may not use any channel: neither subscribe nor publish.
    pub no_channels: bool,
}

impl Faults {
    pub(crate) fn denies(&self, command: &str) -> bool {
        !self.denied.is_empty()
            && self
                .denied
                .iter()
                .any(|name| name.eq_ignore_ascii_case(command))
    }
}
