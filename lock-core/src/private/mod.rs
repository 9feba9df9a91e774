//! The functions that `#[distributed_lock]` expands to. Not for use by hand: they change with the attribute.

#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(not(feature = "blocking"))]
#[path = "no_blocking.rs"]
pub mod blocking;
mod key;
mod outcome;
mod owner;
mod take;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use tokio::task::futures::TaskLocalFuture;

pub use std::marker::PhantomData;
pub use std::option::Option;
pub use std::pin::pin;
pub use std::primitive::{bool, u32};
pub use std::result::Result;
pub use std::time::Duration;
pub use std::{concat, format_args, module_path, vec};

pub use self::key::{Key, KeyPart, KeyText, Shown, Value};
pub use self::outcome::{
    Fallible, FromLockError, NoRoom, NotDue, Room, Skip, called, is_busy, is_skipped, mapped,
    trace_swallowed,
};
pub use self::owner::{NamesOwner, enclosing_owner, owner};
pub use self::take::{enter, enter_all, listed};
use crate::face::all::{first_lost, release_all};
use crate::face::scope::Scope;
pub use crate::{LockError, LockGuard, LockManager};

/// The arguments of the attribute.
#[derive(Debug)]
pub struct Options {
    /// `name`, or the path of the function: for traces.
    pub function: &'static str,
    /// `label`, or the key as it was written, or as `function`: for metrics.
    pub label: &'static str,
    /// `ttl`
    pub ttl: Option<Duration>,
    /// `wait`: `None` for no limit, zero for one try.
    pub wait: Option<Duration>,
    /// `unavailable_after`
    pub unavailable_after: Option<Duration>,
    /// `renew`
    pub renew: bool,
    /// `max_hold`
    pub max_hold: Option<Duration>,
    /// `at_least`
    pub at_least: Option<Duration>,
    /// `mode`, or `permits` and `max`.
    pub sharing: Sharing,
}

/// What several callers share of the lock.
#[derive(Debug, Clone, Copy)]
pub enum Sharing {
    /// Nothing: the lock is exclusive, or reentrant.
    None,
    /// `mode = "read"`
    Read,
    /// `mode = "write"`
    Write,
    /// `permits` of `max`.
    Permits {
        /// `permits`
        permits: u32,
        /// `max`
        max: u32,
    },
}

/// The locks around one call of the function, in the order of the keys.
///
/// Boxed, because it is part of the function's future.
pub type Guards = Box<[LockGuard]>;

/// The locks of a function during its body.
#[derive(Debug, Default)]
pub struct BodyHold(OnceLock<Guards>);

impl BodyHold {
    /// Holds nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores the locks that were acquired.
    pub fn fill(&self, entered: Result<Guards, LockError>) -> Result<(), LockError> {
        self.0.set(entered?).unwrap_or_else(|_| {
            unreachable!("a call takes its locks once");
        });
        Ok(())
    }

    /// The value of `guard = name` with one key.
    pub fn guard(&self) -> &LockGuard {
        &self.guards()[0]
    }

    /// The value of `guard = name` with several keys: a guard for each key, in the order of the keys, without repeats.
    pub fn guards(&self) -> &[LockGuard] {
        self.0.get().map_or(&[], |guards| guards)
    }

    /// Resolves when the first of the locks is lost.
    async fn lost(&self) -> LockError {
        first_lost(self.guards()).await.lost_error().await
    }

    fn is_held(&self) -> bool {
        self.guards().iter().all(|guard| guard.is_held())
    }

    /// Says that the body went on without the lock.
    fn notes_overlap(&self, options: &Options) {
        for guard in self.guards() {
            if !guard.is_held() {
                // The loss has its own warning.
                tracing::info!(
                    target: "lock_core",
                    function = options.function,
                    key = guard.key(),
                    "the lock was lost and the function continued: its work may have overlapped with the work of another holder"
                );
            }
        }
    }

    fn boxed_release(&self) -> Boxed<'_, ()> {
        Box::pin(release_all(self.guards()))
    }
}

/// Gives the compiler a type, in a branch that is never executed.
#[must_use]
pub fn returned<T>() -> T {
    unreachable!("this stands in a branch that is never taken")
}

/// A future of a fixed small size.
///
/// The futures of the store have several kilobytes, and the caller's future would contain them beside the arguments of its
/// function: an allocation is cheaper, and small compared with the round trip that follows.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs the body, drops it if a lock is lost, and releases the locks.
#[allow(
    clippy::manual_async_fn,
    reason = "an async fn stores its arguments twice"
)]
pub fn run<'a, F: Future>(
    hold: &'a BodyHold,
    body: Pin<&'a mut Option<F>>,
) -> impl Future<Output = Result<F::Output, LockError>> {
    async move {
        let outcome = WhileHeld::current(hold, body).await;
        hold.boxed_release().await;
        outcome
    }
}

impl BodyHold {
    /// Polls a body that has not been dropped yet.
    fn poll<F: Future>(
        &self,
        body: Pin<&mut Option<F>>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        match body.as_pin_mut() {
            Some(body) => self.in_scope(|| body.poll(context)),
            None => unreachable!("the body is dropped after its last poll"),
        }
    }

    /// Runs a future under these locks.
    fn in_their_scope<F: Future>(&self, run: F) -> TaskLocalFuture<Scope, F> {
        Scope::run(self.guards().iter().map(LockGuard::view), run)
    }

    /// Runs a part of the body in the scope of the locks' owner.
    ///
    /// The guards know the owner. The future of a scope would store it once more, in every function's future.
    fn in_scope<T>(&self, part: impl FnOnce() -> T) -> T {
        match self.guard().owner() {
            Some(owner) => owner.enter(part),
            None => part(),
        }
    }
}

/// Runs a body until it ends or a lock is lost.
struct WhileHeld<'a, F> {
    hold: &'a BodyHold,
    body: Pin<&'a mut Option<F>>,
    /// Made when the body waits for the first time: a body that never waits needs no timer.
    lost: Option<Boxed<'a, LockError>>,
}

impl<'a, F: Future> WhileHeld<'a, F> {
    fn current(hold: &'a BodyHold, body: Pin<&'a mut Option<F>>) -> TaskLocalFuture<Scope, Self> {
        hold.in_their_scope(Self {
            hold,
            body,
            lost: None,
        })
    }
}

impl<F: Future> Future for WhileHeld<'_, F> {
    type Output = Result<F::Output, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // The loss first: a body that is always ready must not hide it.
        if this.hold.is_held()
            && let Poll::Ready(output) = this.hold.poll(this.body.as_mut(), context)
        {
            return Poll::Ready(Ok(output));
        }
        let lost = this.lost.get_or_insert_with(|| Box::pin(this.hold.lost()));
        let error = ready!(lost.as_mut().poll(context));
        // The body is dropped before other callers get the remaining locks.
        this.hold.in_scope(|| this.body.set(None));
        Poll::Ready(Err(error))
    }
}

/// Runs the body to its end, even if a lock is lost, and releases the locks.
pub async fn run_to_end<F: Future>(
    hold: &BodyHold,
    options: &Options,
    mut body: Pin<&mut Option<F>>,
) -> F::Output {
    let run = poll_fn(|context| hold.poll(body.as_mut(), context));
    let output = hold.in_their_scope(run).await;
    hold.notes_overlap(options);
    hold.boxed_release().await;
    output
}
