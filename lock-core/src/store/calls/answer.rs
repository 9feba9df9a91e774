//! What a store answers.

use std::time::Duration;

use super::{Cursor, StoreError};
use crate::base::key::LockKey;
use crate::base::refusal::Refusal;

/// The answer to a call that a key can refuse: it is something else than the call takes it for.
pub(crate) type OrRefused<T> = Result<Result<T, Refusal>, StoreError>;

/// The answer to an [`Attempt`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The first fencing token, and the number of reserved tokens behind it.
    Granted {
        fence: u64,
        reserve: u64,
    },
    Busy {
        /// The rest of the holder's lease.
        remaining: Duration,
        /// The name of the holder's client, if it has one.
        holder: Option<Box<str>>,
    },
    Queued(QueuePlace),
    /// The key is something else than the request takes it for.
    Refused(Refusal),
}

/// The answer to attempts of one request, for different locks: all are granted, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Together {
    /// The fencing token of each.
    Granted(Vec<u64>),
    /// The lock at this place was not granted, for this reason.
    Refused(usize, Answer),
}

/// The answer to a [`Reweigh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reweighed {
    /// The fencing token from now on.
    Done {
        fence: u64,
    },
    NotHeld,
    /// Others read, or wait.
    NotAlone,
}

/// A place in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuePlace {
    /// The rest of the holder's lease.
    pub(crate) remaining: Duration,
    /// Grants made after this answer have a larger number, which is the fencing token unless grants share one.
    pub(crate) last_fence: u64,
    /// The name of the holder's client, if it has one.
    pub(crate) holder: Option<Box<str>>,
    /// The holder's sequence number, if the holder is an acquisition of the same client.
    pub(crate) own_holder: Option<u64>,
    /// The holder is a client of another kind, whose release no message announces.
    pub(crate) is_foreign: bool,
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// The token did not hold the lock; its place in the queue, if any, is gone.
    NotHeld,
    Free,
    /// The lock is free, and this number of connections was told.
    Announced {
        heard: u64,
    },
    HandedOver,
    /// The owner still holds the lock through other acquisitions; the server counts this many.
    StillHeld {
        holds: u64,
    },
    /// The lock ends by itself after the minimum time that was requested.
    Kept,
}

/// The answer to a [`pass`](super::AnyStore::pass).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Passed {
    /// The token to release did not hold the lock; nothing else was done.
    Lost,
    /// The token was released; this is the outcome of the attempt.
    On(Answer),
}

/// A page of locks, some of which may be free.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) keys: Vec<LockKey>,
    /// `None` after the last page.
    pub(crate) next: Option<Cursor>,
}

/// The answer to a call for several renewals, as the answer to each.
pub(crate) fn to_each(
    answer: Result<Vec<bool>, StoreError>,
    renewals: usize,
) -> Vec<Result<bool, StoreError>> {
    match answer {
        Ok(held) => held.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error); renewals],
    }
}
