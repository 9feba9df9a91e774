//! The state of the network, shared by the streams of all processes.

use std::fmt;
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use super::Target;
use super::state::State;
use crate::trace::Trace;

/// The network, as streams and processes see it.
#[derive(Clone)]
pub(crate) struct Wire {
    state: Arc<Mutex<State>>,
    pub(crate) trace: Trace,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    pub(crate) fn new(seed: u64, servers: usize, trace: Trace) -> Self {
        Self {
            state: Arc::new(Mutex::new(State::new(seed, servers))),
            trace,
        }
    }

    /// Changes the state, and then wakes those that the change is for.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = change(&mut state);
        let wakers = take(&mut state.wake);
        drop(state);
        for waker in wakers {
            waker.wake();
        }
        outcome
    }

    /// Writes down that a fault begins or ends.
    pub(crate) fn fault(&self, target: Target, what: fmt::Arguments<'_>) {
        match target {
            Target::All => self.trace.line("network", format_args!("{what}")),
            Target::Process(n) => self.trace.line("network", format_args!("p{n}: {what}")),
            Target::Server(n) => self
                .trace
                .line("network", format_args!("to server {n}: {what}")),
            Target::Link(process, server) => {
                let what = format_args!("p{process} to server {server}: {what}");
                self.trace.line("network", what);
            }
            Target::Connection(id) => self.trace.line("network", format_args!("{id}: {what}")),
        }
    }
}
