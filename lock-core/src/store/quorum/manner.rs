//! Whether a lock is asked for with a script at once, or without one first.
//!
//! A lock that is free needs no script, and a vote without one costs a node less than half as much. Where it is not free
//! such a vote is in vain, and as a rule not the last one: locks that are contended are asked for again and again.

use std::sync::atomic::{AtomicU32, Ordering};

/// So many times scripts are asked at once after a vote without one was in vain.
const ONCE_REFUSED: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct Manner {
    /// How often scripts are still to be asked at once.
    scripts: AtomicU32,
}

impl Manner {
    /// Whether the next lock is asked for without a script.
    pub(super) fn is_plain(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.scripts
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_err()
    }

    pub(super) fn refused(&self) {
        self.scripts.store(ONCE_REFUSED, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_asked_for_a_while_after_a_refusal() {
        let manner = Manner::default();
        assert!(manner.is_plain() && manner.is_plain());
        manner.refused();
        for _ in 0..ONCE_REFUSED {
            assert!(!manner.is_plain());
        }
        assert!(manner.is_plain());
    }
}
