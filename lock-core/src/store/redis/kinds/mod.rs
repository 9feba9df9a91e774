//! The kinds of locks on a server. Each has one file: its keys, scripts, arguments and replies.

pub(super) mod exclusive;
pub(super) mod reentrant;

/// Runs code with the file of a lock's kind.
macro_rules! of_kind {
    ($key:expr, $kind:ident => $code:expr) => {
        match $key.kind() {
            $crate::base::kind::Kind::Exclusive => {
                use $crate::store::redis::kinds::exclusive as $kind;
                $code
            }
            $crate::base::kind::Kind::Reentrant => {
                use $crate::store::redis::kinds::reentrant as $kind;
                $code
            }
        }
    };
}
pub(super) use of_kind;
