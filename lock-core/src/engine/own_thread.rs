//! A thread for the task, the timers and the connections of a manager, which the work of the program cannot keep busy.

#[cfg(not(lock_sim))]
use std::thread;

#[cfg(not(lock_sim))]
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::base::error::LockError;
use crate::base::rt::Handle;
use crate::base::time::Clock;
#[cfg(feature = "quorum")]
use crate::base::time::SystemClock;

/// The runtime of the thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct OwnThread {
    pub(super) runtime: Handle,
    _ends: oneshot::Sender<()>,
}

#[cfg(lock_sim)]
impl OwnThread {
    pub(super) fn start(_: &dyn Clock) -> Result<Self, LockError> {
        Err(LockError::config("a simulation has one thread"))
    }
}

#[cfg(not(lock_sim))]
impl OwnThread {
    #[cfg_attr(
        not(feature = "testing"),
        expect(unused_variables, reason = "only a test has another clock")
    )]
    pub(super) fn start(clock: &dyn Clock) -> Result<Self, LockError> {
        #[cfg(feature = "testing")]
        if clock.is_of_a_runtime() {
            return Err(LockError::config(
                "a thread of its own has not the time of the test: leave out `own_thread`, or use `MemoryServer::new`",
            ));
        }
        let failed = |error| LockError::config(format!("the manager gets no thread: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("lock-core".to_owned());
        let thread = thread.spawn(move || {
            let _ = runtime.block_on(ended);
        });
        thread.map_err(failed)?;
        Ok(Self {
            runtime: handle,
            _ends: ends,
        })
    }
}

/// Runs a future that has no engine: here, or on a thread of its own, which ends with it.
#[cfg(feature = "quorum")]
pub(crate) async fn run_alone<F>(own: bool, future: F) -> Result<F::Output, LockError>
where
    F: Future<Output: Send> + Send + 'static,
{
    if own {
        let thread = OwnThread::start(&SystemClock)?;
        let done = thread.runtime.spawn(future).await;
        return done.map_err(|error| LockError::config(format!("the thread has ended: {error}")));
    }
    let told = "there is no tokio runtime here: await this inside one, or use `own_thread`";
    Handle::try_current().map_err(|_| LockError::config(told))?;
    Ok(future.await)
}
