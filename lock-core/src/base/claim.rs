//! What an acquisition claims of its lock. Only the file of a kind looks into it.

use std::sync::Arc;

use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::owner::Owner;
use crate::base::refusal::Refusal;
use crate::base::share::Share;

#[derive(Debug, Clone)]
pub(crate) struct Claim {
    /// The owner that takes the lock, if the owner spans several acquisitions. Otherwise an acquisition is its own owner.
    pub(crate) owner: Option<Owner>,
    /// What others see of a holder that is named.
    pub(crate) value: Option<Arc<String>>,
    pub(crate) share: Share,
}

/// The whole of a lock, for no owner.
pub(crate) static PLAIN: Claim = Claim {
    owner: None,
    value: None,
    share: Share::ONLY,
};

impl Claim {
    pub(crate) fn of(share: Share) -> Self {
        Self {
            share,
            ..PLAIN.clone()
        }
    }

    pub(crate) fn named(value: String) -> Self {
        Self {
            value: Some(Arc::new(value)),
            ..PLAIN.clone()
        }
    }

    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_ref().map(Owner::as_str)
    }

    pub(crate) fn value(&self) -> Option<&str> {
        self.value.as_deref().map(String::as_str)
    }

    pub(crate) fn check(&self, key: &str) -> Result<(), LockError> {
        self.share.check(key)
    }

    /// What it keeps from others while it is held.
    pub(crate) fn keeps(&self) -> u32 {
        self.share.weight
    }

    /// Whether a task that keeps this much of the lock leaves too little for it.
    pub(crate) fn is_left_too_little(&self, kept: u64) -> bool {
        kept + u64::from(self.share.weight) > u64::from(self.share.max)
    }

    pub(crate) fn refused(&self, key: &LockKey, refusal: Refusal) -> LockError {
        refusal.into_error(key, self.share)
    }
}
