//! A thread for the task, the timers and the connections of a manager, which the work of the program cannot keep busy.

use std::future::poll_fn;
use std::pin::pin;
#[cfg(not(lock_sim))]
use std::thread;

#[cfg(not(lock_sim))]
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::base::error::LockError;
use crate::base::rt::Handle;

/// The runtime of the thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct OwnThread {
    pub(super) runtime: Handle,
    _ends: oneshot::Sender<()>,
}

#[cfg(lock_sim)]
impl OwnThread {
    pub(super) fn start() -> Result<Self, LockError> {
        Err(LockError::config("a simulation has one thread"))
    }
}

#[cfg(not(lock_sim))]
impl OwnThread {
    pub(super) fn start() -> Result<Self, LockError> {
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

/// Runs a future that has no engine: here, or with a thread of its own.
pub(crate) async fn run_alone<F: Future>(own: bool, future: F) -> Result<F::Output, LockError> {
    if own {
        let thread = OwnThread::start()?;
        return Ok(with_timers_of(&thread.runtime, future).await);
    }
    let told = "there is no tokio runtime here: await this inside one, or use `own_thread`";
    Handle::try_current().map_err(|_| LockError::config(told))?;
    Ok(future.await)
}

/// Runs a future with the timers of this runtime, whatever polls it.
pub(super) async fn with_timers_of<F: Future>(runtime: &Handle, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        #[cfg(not(lock_sim))]
        let _entered = runtime.enter();
        #[cfg(lock_sim)]
        let _ = runtime;
        future.as_mut().poll(context)
    })
    .await
}
