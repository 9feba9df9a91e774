//! What guarded scripts have written: P3.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::world::World;

/// Where the guarded scripts of a lock write their fencing tokens.
const EFFECTS: &str = "effects:";

/// The list that the guarded scripts of a lock write to, in the hash slot of the lock.
#[must_use]
pub fn effects(name: &str) -> String {
    format!("{EFFECTS}{{{name}}}")
}

#[derive(Debug, Default)]
pub(super) struct Effects {
    lists: BTreeMap<Vec<u8>, List>,
}

/// What guarded scripts have written under one lock.
#[derive(Debug, Default)]
struct List {
    /// How many entries were looked at.
    seen: usize,
    /// The newest guard when a guarded script last arrived.
    newest: u64,
    /// Guards that were there before may have lost the lock without their knowledge.
    excused: u64,
    /// A script has arrived whose entry was not looked at yet. It may write none.
    expected: bool,
}

impl Effects {
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// A guarded script of this lock is about to run. `newest` is the largest fencing token that a guard of the lock was given
    /// by now: what the script writes is compared with that. Tokens up to `excused` may be those of guards that believe in a lock
    /// which was taken from them.
    pub(super) fn arrives(&mut self, world: &World, name: &str, newest: u64, excused: u64) {
        self.look(world);
        let key = effects(name).into_bytes();
        // What is there before the first of them was written before the data were lost.
        let begin = |key: &[u8]| List {
            seen: world.server().with(|master| master.list(key).len()),
            ..List::default()
        };
        let list = match self.lists.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let list = begin(new.key());
                new.insert(list)
            }
        };
        list.newest = newest;
        list.excused = excused;
        list.expected = true;
    }

    /// Looks at what was written since.
    pub(super) fn look(&mut self, world: &World) {
        for (key, list) in self.lists.iter_mut().filter(|(_, list)| list.expected) {
            let entries = world.server().with(|master| master.list(key));
            for entry in entries.iter().skip(list.seen) {
                list.expected = false;
                let fence: u64 = String::from_utf8_lossy(entry).parse().unwrap_or(0);
                if list.excused < fence && fence < list.newest {
                    let (name, newest) = (String::from_utf8_lossy(key), list.newest);
                    world.find(
                        "guarded",
                        format!("{name}: {fence} wrote when {newest} had the lock"),
                    );
                }
            }
            list.seen = entries.len();
        }
    }
}
