//! Losses that a test wants.

use std::sync::Arc;

use super::Engine;
use crate::base::error::LossReason;
use crate::base::sync::lock;

impl Engine {
    /// The leases of this process on the locks with this name end as lost, and are given back to the server. Returns their number.
    pub(crate) fn lose(&self, name: &str, reason: LossReason) -> usize {
        let shared = &self.shared;
        let all = lock(&shared.registry).all();
        let held = all.into_iter().filter(|it| it.key.name() == name);
        let lost = held.filter(|it| it.lease().is_some_and(|lease| lease.lose(reason)));
        let lost: Vec<_> = lost.collect();
        for acquisition in &lost {
            // Its guard is told.
            if let Some(hold) = acquisition.hold() {
                hold.status(shared.clock.now());
            }
            shared.clean_up(Arc::clone(acquisition));
        }
        lost.len()
    }
}
