//! Turns: a process hands a lock on to its own callers only so often while another process waits for it.

use std::collections::BTreeMap;

use crate::world::World;

/// The guard that begins a turn, and one that was given before its process could hear of who waits.
const MORE: u32 = 2;

#[derive(Debug)]
pub(super) struct Turns {
    /// How often each process may hand a lock on.
    limits: Vec<u32>,
    /// Who had each lock last, and how often in a row.
    rows: BTreeMap<String, (usize, u32)>,
}

impl Turns {
    pub(super) fn new(limits: Vec<u32>) -> Self {
        Self {
            limits,
            rows: BTreeMap::new(),
        }
    }

    /// A process was given a lock. `is_awaited` is whether another one has waited for it so long, in a calm, that this one knows.
    pub(super) fn granted(&mut self, world: &World, name: &str, process: usize, is_awaited: bool) {
        let row = self.rows.entry(name.to_owned()).or_insert((process, 0));
        if row.0 != process || !is_awaited {
            *row = (process, 0);
        }
        row.1 += u32::from(is_awaited);
        let limit = self.limits.get(process).copied().unwrap_or(0);
        if row.1 > limit.saturating_add(MORE) {
            let times = row.1;
            world.find(
                "turns",
                format!(
                    "{name}: p{process} has it for the {times}th time in a row, and another waits"
                ),
            );
        }
    }
}
