//! Why a store could not answer.

use std::fmt;
use std::sync::Arc;

use super::misconfiguration::Misconfiguration;
use crate::base::error::{Cause, LockError};

/// The reason why a store could not answer.
#[derive(Debug, Clone)]
pub(crate) enum StoreError {
    /// The request may have been carried out, or may still be: the connection broke, or no reply came.
    Ambiguous(Cause),
    /// Not carried out, and a later try may succeed: unreachable, loading, out of memory, read-only.
    NotNow(Cause),
    /// As `NotNow`, for a time that is known: a majority of a quorum has to wait. A waiter waits with it.
    NotYet(Cause),
    /// Not carried out, and never will be until the set-up is repaired.
    Misconfigured(Misconfiguration),
}

impl StoreError {
    pub(crate) fn into_lock_error(self) -> LockError {
        match self {
            Self::Ambiguous(cause) | Self::NotNow(cause) | Self::NotYet(cause) => {
                LockError::Unavailable { cause }
            }
            Self::Misconfigured(wrong) => LockError::InvalidConfig {
                reason: wrong.to_string(),
            },
        }
    }

    /// The same error, with the name of the server.
    pub(crate) fn at(self, server: &Arc<str>) -> Self {
        match self {
            Self::Ambiguous(cause) => Self::Ambiguous(cause.at(server)),
            Self::NotNow(cause) => Self::NotNow(cause.at(server)),
            Self::Misconfigured(wrong) => Self::Misconfigured(wrong.at(server)),
            Self::NotYet(_) => self,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ambiguous(cause) | Self::NotNow(cause) | Self::NotYet(cause) => {
                match cause.server() {
                    Some(server) => write!(f, "{server}: {cause}"),
                    None => write!(f, "{cause}"),
                }
            }
            Self::Misconfigured(wrong) => wrong.fmt(f),
        }
    }
}
