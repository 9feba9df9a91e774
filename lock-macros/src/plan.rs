//! What to generate.

use std::time::Duration;

use syn::{Expr, Ident, LitStr, Path};

use crate::key::Keys;
use crate::parse::{Mode, OnBusy, OnLost};

/// What to generate.
pub(crate) struct Plan {
    pub(crate) keys: Keys,
    pub(crate) escape: bool,
    pub(crate) kind: Kind,
    pub(crate) ttl: Option<Time>,
    pub(crate) wait: Option<Time>,
    pub(crate) unavailable_after: Option<Time>,
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Time>,
    pub(crate) at_least: Option<Time>,
    pub(crate) when: Option<Expr>,
    pub(crate) on_busy: OnBusy,
    pub(crate) on_lost: OnLost,
    pub(crate) map_err: Option<Expr>,
    pub(crate) client: Option<Expr>,
    pub(crate) guard: Option<Ident>,
    pub(crate) name: Option<LitStr>,
    /// `label`, or the template of the key.
    pub(crate) label: Option<String>,
    pub(crate) krate: Path,
    /// An expression that is evaluated after the lock was asked for uses a parameter.
    pub(crate) parameters_are_needed: bool,
}

/// The kind of the lock.
pub(crate) enum Kind {
    Exclusive,
    /// For this owner, or for the one of the enclosing scope.
    Reentrant(Option<Expr>),
    ReadWrite(Mode),
    Semaphore {
        permits: Number,
        max: Number,
    },
}

/// A number of permits.
pub(crate) enum Number {
    Literal(u32),
    Expr(Expr),
}

/// A duration.
pub(crate) enum Time {
    Literal(Duration),
    Expr(Expr),
}
