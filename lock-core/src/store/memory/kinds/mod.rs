//! The kinds of locks in memory: what each keeps, and its operations. Those whose waiters queue share a file.

mod election;
pub(super) mod permits;
pub(super) mod reentrant;

use self::permits::Permits;
use self::reentrant::Reentrant;
use super::common::Common;
use super::latch::Latches;
use crate::base::key::{LockKey, Prefix};
use crate::base::kind::Kind;
use crate::base::refusal::Refusal;
use crate::store::{Answer, Attempt};

/// All locks of a server.
pub(in crate::store) struct Locks {
    pub(in crate::store) common: Common,
    pub(super) exclusive: Permits,
    pub(super) reentrant: Reentrant,
    pub(in crate::store) semaphores: Permits,
    pub(in crate::store) read_write: Permits,
    pub(in crate::store) latches: Latches,
}

impl Default for Locks {
    fn default() -> Self {
        Self {
            common: Common::default(),
            exclusive: Permits::new(Kind::Exclusive),
            reentrant: Reentrant::default(),
            semaphores: Permits::new(Kind::Semaphore),
            read_write: Permits::new(Kind::ReadWrite),
            latches: Latches::default(),
        }
    }
}

/// Runs code with the locks of a kind, and with what all kinds share.
macro_rules! of_kind {
    ($locks:ident, $of:expr, $kind:ident, $common:ident => $code:expr) => {{
        let $common = &mut $locks.common;
        match $of {
            $crate::base::kind::Kind::Exclusive | $crate::base::kind::Kind::Election => {
                let $kind = &mut $locks.exclusive;
                $code
            }
            $crate::base::kind::Kind::Reentrant => {
                let $kind = &mut $locks.reentrant;
                $code
            }
            $crate::base::kind::Kind::Semaphore => {
                let $kind = &mut $locks.semaphores;
                $code
            }
            $crate::base::kind::Kind::ReadWrite => {
                let $kind = &mut $locks.read_write;
                $code
            }
        }
    }};
}
pub(super) use of_kind;

impl Locks {
    pub(super) fn acquire(&mut self, attempt: Attempt<'_>) -> Answer {
        if let Err(refusal) = self.check(attempt.key) {
            return Answer::Refused(refusal);
        }
        of_kind!(self, attempt.key.kind(), kind, common => kind.acquire(common, attempt))
    }

    /// The locks of all kinds: of exclusive ones those with the prefix, of others all in its namespace.
    pub(super) fn listed(&mut self, prefix: Prefix<'_>) -> Vec<LockKey> {
        let mut listed = Vec::new();
        for kind in Kind::all() {
            of_kind!(self, kind, locks, _common => listed.extend(locks.listed(prefix)));
        }
        listed
    }

    pub(in crate::store) fn check(&mut self, key: &LockKey) -> Result<(), Refusal> {
        self.foreign(key)
            .map_or(Ok(()), |kind| Err(Refusal::Foreign(kind)))
    }

    /// The type of a key that a lock of another kind has. One name is one key on a server, whatever the kind.
    pub(super) fn foreign(&mut self, key: &LockKey) -> Option<String> {
        let mut others = Kind::all().filter(|kind| *kind != key.kind().stored());
        others.find_map(
            |kind| of_kind!(self, kind, locks, common => locks.held_as(key.lock(), common.now)),
        )
    }
}
