//! The engine that uses a store.

use std::sync::Arc;

use once_cell::sync::OnceCell;
use tokio::task::JoinHandle;

use super::{EventSink, Events};
use crate::base::rt::{self, Handle};
use crate::base::timers::{Home, OF_CALLER, Timers};
use crate::base::token::ClientId;

/// What a store is told of its engine: the client, the receiver of events, and where it runs.
#[derive(Clone)]
pub(crate) struct Attached {
    pub(crate) client: ClientId,
    pub(crate) sink: EventSink,
    pub(crate) home: Home,
    /// `None` for the whole store.
    part: Option<Arc<dyn Part>>,
}

/// A part of a store, which has only some of its locks.
pub(crate) trait Part: Send + Sync {
    fn serves(&self, lock: &str) -> bool;
    /// Its server may have failed, or have given locks away.
    fn is_in_doubt(&self);
}

impl Attached {
    pub(crate) fn new(client: &ClientId, sink: EventSink, home: Home) -> Self {
        let client = client.clone();
        let part = None;
        Self {
            client,
            sink,
            home,
            part,
        }
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn for_part(&self, part: Arc<dyn Part>) -> Self {
        let part = Some(part);
        Self {
            part,
            ..self.clone()
        }
    }
}

/// The engine of a part of a store, as soon as there is one.
#[derive(Default)]
pub(crate) struct EngineRef(OnceCell<Attached>);

impl EngineRef {
    pub(crate) fn attach(&self, engine: Attached) {
        let _ = self.0.set(engine);
    }

    pub(crate) fn get(&self) -> Option<&Attached> {
        self.0.get()
    }

    pub(crate) fn events(&self) -> Option<Arc<dyn Events>> {
        self.0.get()?.sink.upgrade()
    }

    fn part(&self) -> Option<&dyn Part> {
        self.0.get()?.part.as_deref()
    }

    /// Whether this part of the store has the lock, as far as is known.
    pub(crate) fn serves(&self, lock: &str) -> bool {
        self.part().is_none_or(|part| part.serves(lock))
    }

    /// Messages about the locks of this part may have been lost.
    pub(crate) fn interrupted(&self) {
        if let Some(events) = self.events() {
            events.interrupted(&|key| self.serves(key.lock()));
        }
        self.is_in_doubt();
    }

    pub(crate) fn is_in_doubt(&self) {
        if let Some(part) = self.part() {
            part.is_in_doubt();
        }
    }

    /// The connection of this part was made anew.
    pub(crate) fn reconnected(&self) {
        if let Some(events) = self.events() {
            events.reconnected(&|key| self.serves(key.lock()));
        }
    }

    pub(crate) fn timers(&self) -> &Timers {
        self.0.get().map_or(&OF_CALLER, |it| &it.home.timers)
    }

    /// Runs a task on its runtime.
    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match self.0.get() {
            Some(engine) => engine.home.runtime.spawn(task),
            None => rt::spawn(task),
        }
    }

    /// Whether its runtime runs while this caller does: it is the caller's, or has a thread of its own.
    pub(crate) fn is_driven(&self) -> bool {
        let Some(Attached { home, .. }) = self.0.get() else {
            return true;
        };
        let is_home = |here: Handle| here.id() == home.runtime.id();
        home.timers.are_own() || Handle::try_current().is_ok_and(is_home)
    }
}
