//! The verbs of the kinds that are used as a [`Lock`](crate::Lock): each is defined once.

use crate::base::error::LockError;
use crate::face::all::{first_lost, release_all};
use crate::face::guard::{AnyGuard, LockGuard};
use crate::face::scope::Scope;

/// The methods that acquire, inside the `impl` of a handle. The closure begins an acquisition: its future owns what it needs, since the
/// handle may be gone. The docs say what is different from a `Lock`, with the errors of an acquisition.
macro_rules! acquires {
    (
        $Guard:ident = |$handle:ident, $limit:ident, $at:ident| $take:expr;
        $(#[$acquires:meta])+ $acquire:ident,
        $within:ident,
        $(#[$tries:meta])+ $try:ident
        $(, $with:ident)?
    ) => {
        $(#[$acquires])+
        ///
        /// # Cancel safety
        ///
        /// Cancel-safe: drop the future to stop waiting. Its place in the queue, or what was granted at that moment, is released in the
        /// background.
        #[track_caller]
        pub fn $acquire(&self) -> impl Future<Output = Result<$Guard, LockError>> + use<> {
            let ($handle, $limit, $at) = (self, Limit::Forever, Location::caller());
            $take
        }

        #[doc = concat!("As [`", stringify!($acquire), "`](Self::", stringify!($acquire), "), waiting at most this long. Zero makes one try, and does not queue.")]
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`", stringify!($acquire), "`](Self::", stringify!($acquire), "), and as [`Lock::acquire_within`](crate::Lock::acquire_within).")]
        ///
        /// # Cancel safety
        ///
        /// Cancel-safe, as without a limit.
        #[track_caller]
        pub fn $within(
            &self,
            limit: Duration,
        ) -> impl Future<Output = Result<$Guard, LockError>> + use<> {
            let ($handle, $limit, $at) = (self, Limit::of(Some(limit)), Location::caller());
            $take
        }

        $(#[$tries])+
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`", stringify!($acquire), "`](Self::", stringify!($acquire), "), and as [`Lock::try_acquire`](crate::Lock::try_acquire).")]
        ///
        /// # Cancel safety
        ///
        /// Cancel-safe, as with a wait.
        #[track_caller]
        pub fn $try(&self) -> impl Future<Output = Result<Option<$Guard>, LockError>> + use<> {
            let ($handle, $limit, $at) = (self, Limit::Try, Location::caller());
            $crate::face::verbs::tried($take)
        }

        $(
            #[doc = concat!("Runs `body` while holding what [`", stringify!($acquire), "`](Self::", stringify!($acquire), ") acquires; releases it on every path. As [`Lock::with`](crate::Lock::with).")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`", stringify!($acquire), "`](Self::", stringify!($acquire), "), and [`Lost`](crate::LockError::Lost).")]
            ///
            /// # Cancel safety
            ///
            /// Dropping the future drops the body and releases in the background.
            #[track_caller]
            pub fn $with<T>(
                &self,
                body: impl AsyncFnOnce(&$Guard) -> T,
            ) -> impl Future<Output = Result<T, LockError>> {
                let ($handle, $limit, $at) = (self, Limit::Forever, Location::caller());
                $crate::face::verbs::run_under($take, body)
            }
        )?
    };
}

/// What operators ask of a lock, inside the `impl` of a handle to one key. The docs say what is different from a `Lock`.
macro_rules! operates {
    ($(#[$inspects:meta])+ inspect, $(#[$forces:meta])+ force_release) => {
        $(#[$inspects])+
        ///
        /// # Errors
        ///
        /// As [`Lock::inspect`](crate::Lock::inspect).
        ///
        /// # Cancel safety
        ///
        /// Cancel-safe: it changes nothing.
        pub async fn inspect(&self) -> Result<LockInfo, LockError> {
            self.handle.inspect().await
        }

        $(#[$forces])+
        ///
        /// # Errors
        ///
        /// As [`Lock::force_release`](crate::Lock::force_release).
        ///
        /// # Cancel safety
        ///
        /// A dropped future may or may not have taken the lock away.
        pub async fn force_release(&self) -> Result<bool, LockError> {
            self.handle.force_release().await
        }
    };
}

pub(crate) use {acquires, operates};

/// The outcome of one try: `None` if the lock is not free.
pub(crate) async fn tried<G>(
    taking: impl Future<Output = Result<G, LockError>>,
) -> Result<Option<G>, LockError> {
    match taking.await {
        Ok(guard) => Ok(Some(guard)),
        Err(LockError::Busy { .. } | LockError::Deadlock { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Acquires, and runs `body` until it ends or a lock is lost.
pub(crate) async fn run_under<G: AnyGuard, T>(
    taking: impl Future<Output = Result<G, LockError>>,
    body: impl AsyncFnOnce(&G) -> T,
) -> Result<T, LockError> {
    let guard = taking.await?;
    let parts = guard.parts();
    let run = async {
        tokio::select! {
            // Poll the loss first: a body that is always ready must not hide it.
            biased;
            lost = first_lost(parts) => Err(lost.lost_error().await),
            value = body(&guard) => Ok(value),
        }
    };
    let outcome = Scope::run(parts.iter().map(LockGuard::view), run).await;
    release_all(parts).await;
    outcome
}
