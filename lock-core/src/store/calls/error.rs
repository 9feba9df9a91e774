//! Why a store could not answer.

use std::fmt;
use std::sync::Arc;

use super::misconfiguration::Misconfiguration;
use crate::base::error::{Cause, LockError};
use crate::base::key::LockKey;

/// The reason why a store could not answer.
#[derive(Debug, Clone)]
pub(crate) enum StoreError {
    /// The request may have been carried out, or may still be: the connection broke, or no reply came.
    Ambiguous(Cause),
    /// Not carried out, and a later try may succeed: unreachable, loading, out of memory, read-only.
    NotNow(Cause),
    /// As `NotNow`, for a time that is known: a majority of a quorum has to wait. A waiter waits with it.
    #[cfg(feature = "quorum")]
    NotYet(Cause),
    /// Not carried out, and never will be until the set-up is repaired.
    Misconfigured(Misconfiguration),
}

impl StoreError {
    pub(crate) fn into_lock_error(self) -> LockError {
        match self.into_cause() {
            Ok(cause) => LockError::Unavailable { cause },
            Err(wrong) => LockError::InvalidConfig {
                reason: wrong.to_string(),
            },
        }
    }

    fn into_cause(self) -> Result<Cause, Misconfiguration> {
        match self {
            Self::Ambiguous(cause) | Self::NotNow(cause) => Ok(cause),
            #[cfg(feature = "quorum")]
            Self::NotYet(cause) => Ok(cause),
            Self::Misconfigured(wrong) => Err(wrong),
        }
    }

    /// The error of a call that a quorum cannot answer.
    pub(in crate::store) fn not_over_a_quorum(what: &str) -> Self {
        let why = format!(
            "{what} not over a quorum, whose nodes would count differently: use a manager of one master, or an exclusive lock"
        );
        Self::Misconfigured(why.into())
    }

    /// The error of a call for a lock whose kind is not over a quorum.
    pub(in crate::store) fn kind_not_over_a_quorum(key: &LockKey) -> Self {
        Self::not_over_a_quorum(&format!("locks of the kind `{}` are", key.traits().name))
    }

    /// Whether locks of this kind are over a quorum.
    pub(in crate::store) fn unless_over_a_quorum(key: &LockKey) -> Result<(), Self> {
        let is_over_a_quorum = key.traits().over_a_quorum;
        is_over_a_quorum
            .then_some(())
            .ok_or_else(|| Self::kind_not_over_a_quorum(key))
    }

    /// The same error, with the name of the server.
    pub(crate) fn at(self, server: &Arc<str>) -> Self {
        match self {
            Self::Misconfigured(wrong) => Self::Misconfigured(wrong.at(server)),
            other => other.with_cause(|cause| cause.at(server)),
        }
    }

    /// The same error of a server, with a cause that is made of its own.
    pub(in crate::store) fn with_cause(self, made_of: impl FnOnce(Cause) -> Cause) -> Self {
        match self {
            Self::Ambiguous(cause) => Self::Ambiguous(made_of(cause)),
            Self::NotNow(cause) => Self::NotNow(made_of(cause)),
            #[cfg(feature = "quorum")]
            Self::NotYet(_) => self,
            Self::Misconfigured(_) => self,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.clone().into_cause() {
            Ok(cause) => match cause.server() {
                Some(server) => write!(f, "{server}: {cause}"),
                None => write!(f, "{cause}"),
            },
            Err(wrong) => wrong.fmt(f),
        }
    }
}
