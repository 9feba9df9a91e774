//! The kinds of locks in memory. Each has one file: what it keeps, and its operations.

pub(super) mod exclusive;
pub(super) mod reentrant;

use self::exclusive::Exclusive;
use self::reentrant::Reentrant;
use super::common::Common;
use crate::base::key::LockKey;
use crate::base::kind::Kind;

/// All locks of a server.
#[derive(Default)]
pub(super) struct Locks {
    pub(super) common: Common,
    pub(super) exclusive: Exclusive,
    pub(super) reentrant: Reentrant,
}

/// Runs code with the locks of a key's kind, and with what all kinds share.
macro_rules! of_kind {
    ($locks:ident, $key:expr, $kind:ident, $common:ident => $code:expr) => {{
        let $common = &mut $locks.common;
        match $key.kind() {
            $crate::base::kind::Kind::Exclusive => {
                let $kind = &mut $locks.exclusive;
                $code
            }
            $crate::base::kind::Kind::Reentrant => {
                let $kind = &mut $locks.reentrant;
                $code
            }
        }
    }};
}
pub(super) use of_kind;

impl Locks {
    /// The type of a key that a lock of another kind has. One name is one key on a server, whatever the kind.
    pub(super) fn foreign(&mut self, key: &LockKey) -> Option<String> {
        let (name, now) = (key.lock(), self.common.now);
        let held = [
            (Kind::Exclusive, "string", self.exclusive.is_held(name, now)),
            (Kind::Reentrant, "hash", self.reentrant.is_held(name, now)),
        ];
        let other = held
            .iter()
            .find(|(kind, _, held)| *held && *kind != key.kind());
        other.map(|(_, value, _)| (*value).to_owned())
    }
}
