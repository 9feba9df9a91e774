//! The place in the program that requested a lock, and the task.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;

/// The call that requested a lock. Two words, since every held lock has one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    at: &'static Location<'static>,
    /// The task, or, outside of any, the thread that blocks on a future.
    runner: u64,
}

impl Place {
    #[cfg(test)]
    #[track_caller]
    pub(crate) fn here() -> Self {
        Self::of(Location::caller())
    }

    /// A call at this place, whose task is not known yet.
    pub(crate) fn in_no_task(at: &'static Location<'static>) -> Self {
        Self { at, runner: 0 }
    }

    /// A call at this place, in the task that runs now.
    pub(crate) fn of(at: &'static Location<'static>) -> Self {
        let mut id = Number(0);
        match tokio::task::try_id() {
            Some(task) => (task, 0_u64).hash(&mut id),
            None => (std::thread::current().id(), 1_u64).hash(&mut id),
        }
        Self { at, runner: id.0 }
    }

    /// The place of the call in the program.
    pub(crate) fn at(self) -> &'static Location<'static> {
        self.at
    }

    pub(crate) fn is_in_task_of(self, other: Self) -> bool {
        self.runner == other.runner
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.at, f)
    }
}

/// Two numbers in one: the first counts tasks or threads, the second is 0 or 1.
struct Number(u64);

impl Hasher for Number {
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 << 1) | number;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_tells_tasks_and_threads_apart() {
        let here = Place::here();
        assert!(here.is_in_task_of(Place::here()));
        let other = tokio::spawn(async { Place::here() }).await.unwrap();
        assert!(!here.is_in_task_of(other));
        let thread = std::thread::spawn(Place::here).join().unwrap();
        assert!(!here.is_in_task_of(thread) && !other.is_in_task_of(thread));
        assert!(here.to_string().contains("place.rs:"), "{here}");
    }
}
