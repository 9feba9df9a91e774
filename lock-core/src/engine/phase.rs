//! The phase of a hold or a lease, as one atomic byte.
//!
//! ```text
//! Pending --begun--> Held --released--> Released
//!    |                 |                   ^
//!    |                 +--lost--> Lost(reason)
//!    +--abandoned--------------------------+
//! ```
//! Lost and Released are final: a hold or a lease that has ended is never held again.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::base::error::LossReason;

/// The status of a hold or a lease at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Pending,
    Held,
    Released,
    Lost(LossReason),
}

const PENDING: u8 = 0;
const HELD: u8 = 1;
const RELEASED: u8 = 2;
const REASONS: [(u8, LossReason); 5] = [
    (3, LossReason::Expired),
    (4, LossReason::Gone),
    (5, LossReason::ForceReleased),
    (6, LossReason::MaxHold),
    (7, LossReason::ShutDown),
];

#[derive(Debug)]
pub(crate) struct Phase(AtomicU8);

impl Phase {
    pub(crate) fn pending() -> Self {
        Self(AtomicU8::new(PENDING))
    }

    pub(crate) fn held() -> Self {
        Self(AtomicU8::new(HELD))
    }

    pub(crate) fn get(&self) -> Status {
        match self.0.load(Ordering::SeqCst) {
            PENDING => Status::Pending,
            HELD => Status::Held,
            RELEASED => Status::Released,
            code => Status::Lost(
                REASONS
                    .iter()
                    .find(|(known, _)| *known == code)
                    .map_or(LossReason::Expired, |(_, reason)| *reason),
            ),
        }
    }

    /// Pending to Held. False if it was over already.
    pub(crate) fn begin(&self) -> bool {
        self.step(PENDING, HELD)
    }

    /// Pending to Released. False if it was not pending any more.
    pub(crate) fn abandon(&self) -> bool {
        self.step(PENDING, RELEASED)
    }

    /// Held to Released. False if it was not held.
    pub(crate) fn release(&self) -> bool {
        self.step(HELD, RELEASED)
    }

    /// Held to Lost. False if it was not held.
    pub(crate) fn lose(&self, reason: LossReason) -> bool {
        let code = REASONS
            .iter()
            .find(|(_, known)| *known == reason)
            .map_or(REASONS[0].0, |(code, _)| *code);
        self.step(HELD, code)
    }

    fn step(&self, from: u8, to: u8) -> bool {
        self.0
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_lost_or_released() {
        let lost = Phase::held();
        assert!(lost.lose(LossReason::Gone));
        assert!(!lost.release() && !lost.begin() && !lost.lose(LossReason::Expired));
        assert_eq!(lost.get(), Status::Lost(LossReason::Gone));
        let released = Phase::held();
        assert!(released.release());
        assert!(!released.lose(LossReason::Expired) && !released.begin());
        let abandoned = Phase::pending();
        assert!(abandoned.abandon());
        assert!(!abandoned.begin());
        assert_eq!(abandoned.get(), Status::Released);
    }
}
