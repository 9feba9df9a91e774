//! Why a key is not what a call takes it for.

use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::share::Share;

/// The server has answered, and another call of the same kind gets the same answer as long as the key stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is no lock, or one of another kind.
    Foreign(String),
    /// The semaphore has this number of permits, and not the one that the call names.
    OtherMax(u32),
    /// The semaphore has only this number of permits.
    TooMany(u32),
    /// The latch was made for this number of ids.
    OtherCount(u32),
}

impl Refusal {
    /// The error of a call that has named these numbers. The ids of a latch count as permits.
    pub(crate) fn into_error(self, key: &LockKey, asked: Share) -> LockError {
        let name = || key.name().to_owned();
        match self {
            Self::Foreign(kind) => key.not_a_lock(kind),
            Self::OtherMax(in_use) => LockError::OtherMax {
                key: name(),
                max: asked.max,
                in_use,
            },
            Self::TooMany(max) => LockError::TooManyPermits {
                key: name(),
                permits: asked.weight,
                max,
            },
            Self::OtherCount(made_for) => LockError::OtherCount {
                key: name(),
                count: asked.max,
                made_for,
            },
        }
    }
}
