//! What guarded scripts have written: P3.

use std::collections::BTreeMap;

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
    /// How many were there, and the newest guard at that time.
    seen: BTreeMap<Vec<u8>, usize>,
    newest: BTreeMap<Vec<u8>, u64>,
    /// A guarded script has arrived and was not looked at yet.
    expected: bool,
}

impl Effects {
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Looks at what was written since. Where a guarded script is about to run, `newest` names the largest fencing token that a
    /// guard of each lock was given by then: what the script writes is compared with that.
    pub(super) fn look(&mut self, world: &World, newest: Option<Vec<(String, u64)>>) {
        if self.expected {
            self.expected = false;
            let lists = world.server().with(|master| {
                let keys = master.keys().into_iter();
                let ours = keys.filter(|key| key.starts_with(EFFECTS.as_bytes()));
                let lists = ours.map(|key| (master.list(&key), key));
                lists.collect::<Vec<_>>()
            });
            for (list, key) in lists {
                let seen = self.seen.entry(key.clone()).or_default();
                let before = self.newest.get(&key).copied().unwrap_or(0);
                for entry in &list[(*seen).min(list.len())..] {
                    let text = String::from_utf8_lossy(entry);
                    let fence: u64 = text.parse().unwrap_or(0);
                    if fence < before {
                        let name = String::from_utf8_lossy(&key);
                        world.find(
                            "guarded",
                            format!("{name}: {fence} wrote when {before} had the lock"),
                        );
                    }
                }
                *seen = list.len();
            }
        }
        if let Some(newest) = newest {
            self.expected = true;
            for (name, fence) in newest {
                self.newest.insert(effects(&name).into_bytes(), fence);
            }
        }
    }
}
