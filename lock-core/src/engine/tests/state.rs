//! Every sequence of events in the life of one acquisition, up to a length.

use std::collections::HashSet;

use super::world::{EVENTS, Event, World};

/// Number of events in a sequence. Sequences that lead to one world are followed once.
const LENGTH: usize = 15;

#[test]
fn no_sequence_of_events_leaves_anything_on_the_server() {
    let mut seen = HashSet::new();
    let mut worlds = vec![(World::new(), Vec::new())];
    let mut followed = 0;
    for _ in 0..LENGTH {
        let mut next = Vec::new();
        for (world, path) in worlds {
            for event in EVENTS {
                let path: Vec<Event> = path.iter().copied().chain([event]).collect();
                let print_on_panic = Path(&path);
                for after in world.after(event) {
                    after.check();
                    followed += 1;
                    if seen.insert(format!("{after:?}")) {
                        next.push((after, path.clone()));
                    }
                }
                drop(print_on_panic);
            }
        }
        worlds = next;
    }
    let held = seen
        .iter()
        .filter(|world| world.contains("Holding"))
        .count();
    assert!(held > 100 && followed > seen.len(), "{held} of {followed}");
}

/// Prints the events that led to a failure.
struct Path<'a>(&'a [Event]);

impl Drop for Path<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.0);
        }
    }
}
