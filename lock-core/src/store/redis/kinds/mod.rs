//! The kinds of locks on a server. Each has one file: its keys, scripts, arguments and replies.

pub(in crate::store) mod election;
pub(in crate::store) mod exclusive;
pub(super) mod exclusive_grant;
pub(super) mod guarded;
pub(super) mod latch;
mod operations;
pub(in crate::store) mod permits;
pub(super) mod reentrant;
pub(super) mod shared_grant;

/// Runs code with the file of a kind.
macro_rules! of_kind {
    ($of:expr, $kind:ident => $code:expr) => {
        match $of {
            $crate::base::kind::Kind::Exclusive => {
                use $crate::store::redis::kinds::exclusive as $kind;
                $code
            }
            $crate::base::kind::Kind::Election => {
                use $crate::store::redis::kinds::election as $kind;
                $code
            }
            $crate::base::kind::Kind::Reentrant => {
                use $crate::store::redis::kinds::reentrant as $kind;
                $code
            }
            $crate::base::kind::Kind::Semaphore | $crate::base::kind::Kind::ReadWrite => {
                use $crate::store::redis::kinds::permits as $kind;
                $code
            }
        }
    };
}
use of_kind;
