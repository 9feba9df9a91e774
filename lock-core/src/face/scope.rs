//! The locks of the running code: the locks of the enclosing annotated functions and `with` calls.

use std::sync::Arc;

use tokio::task::futures::TaskLocalFuture;

use crate::engine::{Engine, LockRequest};
use crate::face::view::LockView;

tokio::task_local! {
    static INNERMOST: Scope;
}

/// One lock that code runs under, and the locks around it.
#[derive(Clone)]
pub(crate) struct Scope(Arc<Level>);

struct Level {
    view: LockView,
    outer: Option<Scope>,
}

impl Scope {
    /// Runs `body` under these locks and the locks of the caller. The first is the innermost.
    pub(crate) fn run<F: Future>(
        views: impl DoubleEndedIterator<Item = LockView>,
        body: F,
    ) -> TaskLocalFuture<Self, F> {
        INNERMOST.scope(Self::under(views), body)
    }

    /// As [`run`](Self::run), for code that is not async.
    #[cfg(all(feature = "blocking", feature = "macros"))]
    pub(crate) fn run_here<T>(
        views: impl DoubleEndedIterator<Item = LockView>,
        body: impl FnOnce() -> T,
    ) -> T {
        INNERMOST.sync_scope(Self::under(views), body)
    }

    fn under(views: impl DoubleEndedIterator<Item = LockView>) -> Self {
        let outer = INNERMOST.try_with(Self::clone).ok();
        let scope = views.rev().fold(outer, |outer, view| {
            Some(Self(Arc::new(Level { view, outer })))
        });
        let Some(scope) = scope else {
            unreachable!("a scope is opened under at least one lock")
        };
        scope
    }

    /// The innermost lock that the caller runs under.
    pub(crate) fn current() -> Option<LockView> {
        INNERMOST.try_with(|scope| scope.0.view.clone()).ok()
    }

    /// Whether the caller runs under locks that exclude this request, or this wait, for as long as the caller runs.
    pub(crate) fn excludes(engine: &Arc<Engine>, request: &LockRequest, waits: bool) -> bool {
        let excludes = |scope: &Self| {
            let (mut next, mut kept) = (Some(scope), 0_u64);
            while let Some(Self(level)) = next {
                kept += u64::from(level.view.kept_from(engine, request));
                next = level.outer.as_ref();
            }
            request.is_in_its_own_way(kept, waits)
        };
        INNERMOST.try_with(excludes).unwrap_or(false)
    }
}
