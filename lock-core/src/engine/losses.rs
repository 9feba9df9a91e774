//! Losses that a test wants.

use super::Engine;
use crate::base::error::LossReason;
use crate::base::sync::lock;

impl Engine {
    /// The holds of this process of the locks with this name end as lost. Returns their number.
    pub(crate) fn lose(&self, name: &str, reason: LossReason) -> usize {
        let shared = &self.shared;
        let all = lock(&shared.registry).all();
        let held = all.iter().filter(|it| it.key.name() == name);
        let lost = held.filter(|it| it.lease().is_some_and(|lease| lease.lose(reason)));
        let lost = lost.count();
        if lost > 0 {
            shared.lease_due_at(shared.clock.now());
        }
        lost
    }
}
