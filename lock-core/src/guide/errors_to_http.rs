//! Errors to HTTP: the status of each [`LockError`](crate::LockError).
//!
//! | [`LockError`](crate::LockError) | Status | `Retry-After` | Why |
//! |---|---|---|---|
//! | `Busy` | 409 | `retry_after`, rounded up, at most a few seconds | another request works on the same thing |
//! | `TimedOut` | 409 | 1 s | the same, and this request has waited |
//! | `Exhausted` | 410 | no | sold out: the next request would fail too |
//! | `Unavailable`, `ShutDown` | 503 | 1 s | the lock server cannot be reached, or this copy of the service ends |
//! | `Lost` | 500 | no | the body began and was cancelled: look at its effects before you repeat it |
//! | `InvalidKey` | 400 if the key holds input of the user, else 500 | no | for example, the key is too long |
//! | all others | 500 | no | a mistake in the program or its set-up |
//!
//! If the attribute returns an error other than `Lost`, the body has not run, and the request may be repeated. After `Lost`, a part of the
//! body may have run. If the body itself takes another lock and returns its error, this rule does not apply to that error.
//! Make the work safe to repeat: [Submitting an order once](super::recipes#submitting-an-order-once).
//!
//! **Log the text of the error, and do not send it to the client.** It names keys, servers and holders.
//! [`Busy`](crate::LockError::Busy) and [`TimedOut`](crate::LockError::TimedOut) are everyday events (level INFO); `Unavailable` and `Lost`
//! deserve an alert if they last; the others are mistakes (level ERROR).
//!
//! A handler needs a limit: `wait`, or [`default_wait`](crate::LockManagerBuilder::default_wait). Without one, requests pile up
//! behind a lock that is held for long. Also give it [`unavailable_after`](crate::LockManagerBuilder::unavailable_after): without it
//! each request waits for its whole limit while the server is away.
//!
//! # The error of the service
//!
//! An annotated function returns a `Result` with the error of the service. `From<LockError>` converts the lock's error; the
//! framework converts the error of the service (`IntoResponse` in axum, `ResponseError` in actix-web). The annotated function may be the
//! handler itself: patterns such as `State(app): State<App>` and `Path(id): Path<u64>` bind names for `key` and `client`.
//!
//! ```
//! use std::time::Duration;
//! use lock_core::{LockError, LockManager, distributed_lock};
//!
//! /// The error of the service: a status, and the number of seconds for `Retry-After`.
//! #[derive(Debug, PartialEq)]
//! struct Refused { status: u16, retry_after: Option<u64> }
//!
//! impl From<LockError> for Refused {
//!     fn from(error: LockError) -> Self {
//!         let seconds = |time: Duration| time.as_secs() + 1;
//!         let (status, retry_after) = match error {
//!             LockError::Busy { retry_after, .. } => (409, Some(retry_after.map_or(1, seconds).min(5))),
//!             LockError::TimedOut { .. } => (409, Some(1)),
//!             LockError::Exhausted { .. } => (410, None),
//!             LockError::Unavailable { .. } | LockError::ShutDown => (503, Some(1)),
//!             _ => (500, None),
//!         };
//!         Self { status, retry_after }
//!     }
//! }
//!
//! #[distributed_lock(key = "order:{id}", wait = "20ms", client = locks)]
//! async fn charge(locks: &LockManager, id: u64) -> Result<&'static str, Refused> {
//!     Ok("charged")
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory://").await?;
//! assert_eq!(charge(&locks, 7).await, Ok("charged"));
//!
//! let other = locks.lock("order:7").acquire().await?;
//! let refused = charge(&locks, 7).await.unwrap_err();
//! assert_eq!(refused, Refused { status: 409, retry_after: Some(1) });
//! other.release().await?;
//!
//! locks.shutdown(Duration::from_secs(1)).await;
//! assert_eq!(charge(&locks, 7).await.unwrap_err().status, 503);
//! # Ok(()) }
//! ```
//!
//! # A lock around each request
//!
//! A layer needs no type of this crate. With axum, for one request at a time to each path:
//!
//! ```text
//! async fn one_at_a_time(State(locks): State<LockManager>, request: Request, next: Next) -> Response {
//!     let lock = locks.lock(request.uri().path()).default_wait(Duration::from_secs(2));
//!     match lock.with(async |_| next.run(request).await).await {
//!         Ok(response) => response,
//!         Err(LockError::Busy { .. } | LockError::TimedOut { .. }) => {
//!             (StatusCode::CONFLICT, [(header::RETRY_AFTER, "1")]).into_response()
//!         }
//!         Err(LockError::Unavailable { .. } | LockError::ShutDown) => {
//!             (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")]).into_response()
//!         }
//!         Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
//!     }
//! }
//!
//! let app = Router::new()
//!     .route("/cart/{customer}", get(show))
//!     .layer(from_fn_with_state(locks, one_at_a_time));
//! ```
//!
//! The lock is held until the handler has made its response, and not while a body is streamed. If the lock is lost, the handler is cancelled.
//!
//! The example [`annotated_service`] is a service with axum that answers like this.
//!
//! [`annotated_service`]: https://github.com/lock-core/lock-core/blob/main/examples/annotated_service.rs
