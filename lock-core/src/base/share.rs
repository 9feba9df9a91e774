//! A share of a lock that several may hold.

use crate::base::error::LockError;

/// The permits that an acquisition asks for, and the number that all holders together may have. An exclusive lock has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) weight: u32,
    pub(crate) max: u32,
}

impl Share {
    pub(crate) const ONLY: Self = Self { weight: 1, max: 1 };
    /// Of a read-write lock. The number is fixed on the wire.
    pub(crate) const READ: Self = Self {
        weight: 1,
        max: 1 << 30,
    };
    pub(crate) const WRITE: Self = Self {
        weight: 1 << 30,
        max: 1 << 30,
    };

    /// One of this number.
    pub(crate) const fn of(max: u32) -> Self {
        Self { weight: 1, max }
    }

    /// Whether it can be asked for.
    pub(crate) fn check(self, key: &str) -> Result<(), LockError> {
        let Self { weight, max } = self;
        if max == 0 || max > Self::READ.max {
            return Err(LockError::config(
                "a semaphore has 1 to 2^30 permits: choose another number",
            ));
        }
        if weight == 0 {
            return Err(LockError::config(
                "no permits were asked for: ask for one at least",
            ));
        }
        if weight > max {
            let key = key.to_owned();
            let permits = weight;
            return Err(LockError::TooManyPermits { key, permits, max });
        }
        Ok(())
    }
}
