//! The guards of a program without async code.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::select_all;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::base::error::{LockError, LossReason};
use crate::base::sync::lock;
use crate::face::guard::{AnyGuard, LockGuard};
use crate::face::view::LockView;

/// Proof that a lock is held, for code that is not async. It has all methods of the async guard that do not wait, and those here.
///
/// When it is dropped, the release is sent in the background: no I/O on this thread, from anywhere.
///
/// # Examples
///
/// ```
/// use lock_core::blocking::Blocking;
/// use lock_core::LossReason;
///
/// # fn main() -> Result<(), lock_core::LockError> {
/// let lock = Blocking::connect("memory://")?.lock("import");
/// let guard = lock.acquire()?;
/// let losses = guard.losses();
/// assert!(losses.try_recv().is_err(), "it is held");
/// lock.force_release()?;
/// assert_eq!(losses.recv(), Ok(LossReason::ForceReleased));
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped: bind it, `let _guard = ..` (not `let _ = ..`)"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct BlockingGuard<G> {
    guard: G,
    thread: Handle,
    watchers: Watchers,
}

/// The tasks that wait for a loss. They end with the guard.
#[derive(Debug, Default)]
pub(in crate::face) struct Watchers {
    tasks: Mutex<Vec<AbortHandle>>,
    over: Arc<AtomicBool>,
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        lock(&self.tasks).iter().for_each(AbortHandle::abort);
    }
}

impl<G> BlockingGuard<G> {
    pub(in crate::face) fn new(guard: G, thread: Handle) -> Self {
        Self {
            guard,
            thread,
            watchers: Watchers::default(),
        }
    }

    /// Runs a future of the async guard on this thread, such as a [guarded script](LockGuard::guarded).
    ///
    /// # Panics
    ///
    /// In an async task.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.thread.block_on(future)
    }

    /// Without the watchers: a lock that is released was not lost.
    pub(in crate::face) fn into_parts(self) -> (G, Handle) {
        (self.guard, self.thread)
    }

    /// The guard becomes another one of the same hold, or stays.
    pub(in crate::face) fn changes<F, N, E>(
        self,
        change: impl FnOnce(G) -> F,
    ) -> Result<BlockingGuard<N>, E::Blocking>
    where
        F: Future<Output = Result<N, E>>,
        E: NotChanged,
    {
        let Self {
            guard,
            thread,
            watchers,
        } = self;
        match thread.block_on(change(guard)) {
            Ok(guard) => Ok(BlockingGuard {
                guard,
                thread,
                watchers,
            }),
            Err(why) => Err(why.blocking(thread, watchers)),
        }
    }
}

#[expect(private_bounds, reason = "there are no other guards than ours")]
impl<G: AnyGuard> BlockingGuard<G> {
    /// Waits on this thread until the lock is lost, as [`LockView::lost`]; of several locks the first.
    ///
    /// # Panics
    ///
    /// In an async task.
    #[track_caller]
    pub fn lost(&self) -> LossReason {
        self.thread.block_on(first_loss(&self.views()))
    }

    /// Calls a function when the lock is lost, *before* the server may grant it to another holder, if the machine runs the manager's thread
    /// in time; of several locks for the first. It is not called once the guard is released or dropped.
    ///
    /// It runs on the manager's thread: it must be quick, and calls that block panic there. For work that takes long, wait for
    /// [`losses`](Self::losses) on a thread of your own.
    pub fn on_loss(&self, call: impl FnOnce(LossReason) + Send + 'static) {
        let (views, over) = (self.views(), Arc::clone(&self.watchers.over));
        let task = self.thread.spawn(async move {
            let reason = first_loss(&views).await;
            if !over.load(Ordering::SeqCst) {
                call(reason);
            }
        });
        lock(&self.watchers.tasks).push(task.abort_handle());
    }

    /// A channel with the reason when the lock is lost, as for [`on_loss`](Self::on_loss). It ends without one when the guard is released or
    /// dropped. Each call makes a channel, which lasts as long as the guard.
    #[must_use]
    pub fn losses(&self) -> Receiver<LossReason> {
        let (tell, losses) = channel();
        self.on_loss(move |reason| {
            let _ = tell.send(reason);
        });
        losses
    }

    fn views(&self) -> Vec<LockView> {
        self.guard.parts().iter().map(LockGuard::view).collect()
    }
}

async fn first_loss(views: &[LockView]) -> LossReason {
    if views.is_empty() {
        return std::future::pending().await;
    }
    let losses = views.iter().map(|view| view.lost().boxed());
    select_all(losses).await.0
}

impl<G> Deref for BlockingGuard<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.guard
    }
}

/// Why a guard did not become another one.
pub(in crate::face) trait NotChanged {
    type Blocking;

    fn blocking(self, thread: Handle, watchers: Watchers) -> Self::Blocking;
}

/// The lock is released.
impl NotChanged for LockError {
    type Blocking = Self;

    fn blocking(self, _: Handle, _: Watchers) -> Self {
        self
    }
}

/// The guard is as it was.
impl<G> NotChanged for (G, LockError) {
    type Blocking = (BlockingGuard<G>, LockError);

    fn blocking(self, thread: Handle, watchers: Watchers) -> Self::Blocking {
        let (guard, why) = self;
        let guard = BlockingGuard {
            guard,
            thread,
            watchers,
        };
        (guard, why)
    }
}

/// What the guard of a kind of lock sends to the server. Each kind names its guards in its own file.
macro_rules! blocking_guard {
    ($Guard:ident, $release:ident $(, $change:ident -> $Next:ident or $error:ty)?) => {
        impl $crate::face::blocking_guard::BlockingGuard<$Guard> {
            #[doc = concat!("As [`", stringify!($Guard), "::", stringify!($release), "`], on this thread, which waits for the server.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`", stringify!($Guard), "::", stringify!($release), "`].")]
            ///
            /// # Panics
            ///
            /// In an async task.
            #[track_caller]
            pub fn $release(self) -> Result<(), LockError> {
                let (guard, thread) = self.into_parts();
                thread.block_on(guard.$release())
            }

            /// As [`LockGuard::extend`](crate::LockGuard::extend), on this thread, which waits for the server.
            ///
            /// # Errors
            ///
            /// As [`LockGuard::extend`](crate::LockGuard::extend).
            ///
            /// # Panics
            ///
            /// In an async task.
            #[track_caller]
            pub fn extend(&self, ttl: std::time::Duration) -> Result<(), LockError> {
                self.block_on((**self).extend(ttl))
            }

            $(
                #[doc = concat!("As [`", stringify!($Guard), "::", stringify!($change), "`], on this thread, which waits for the server.")]
                ///
                /// # Errors
                ///
                #[doc = concat!("As [`", stringify!($Guard), "::", stringify!($change), "`].")]
                ///
                /// # Panics
                ///
                /// In an async task.
                #[allow(clippy::result_large_err, reason = "a guard and an error, as async")]
                #[track_caller]
                pub fn $change(self) -> Result<$crate::face::blocking_guard::BlockingGuard<$Next>, $error> {
                    self.changes($Guard::$change)
                }
            )?
        }
    };
}

pub(crate) use blocking_guard;

blocking_guard! { LockGuard, release }
