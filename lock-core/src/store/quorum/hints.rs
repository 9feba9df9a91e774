//! The messages of all nodes, combined for the engine.

use std::sync::Arc;
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::tokens::Tokens;
use crate::base::rt::{self, Handle};
use crate::base::token::number_in;
use crate::store::{Concerned, EventSink, Events, Grant};

/// Average pause after the first "free" of a node, for the other nodes to send theirs.
const COLLECT: Duration = Duration::from_millis(3);

/// Receives the messages of all nodes and passes them on to the engine.
pub(super) struct Hints {
    majority: usize,
    engine: OnceCell<(EventSink, Handle)>,
    tokens: Arc<Tokens>,
}

impl Hints {
    pub(super) fn new(majority: usize, tokens: Arc<Tokens>) -> Arc<Self> {
        Arc::new(Self {
            majority,
            engine: OnceCell::new(),
            tokens,
        })
    }

    pub(super) fn attach(&self, sink: EventSink, runtime: Handle) {
        let _ = self.engine.set((sink, runtime));
    }

    /// Runs a task on the engine's runtime.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.engine.get() {
            Some((_, runtime)) => drop(runtime.spawn(task)),
            None => drop(rt::spawn(task)),
        }
    }

    fn tell(&self, event: impl FnOnce(&dyn Events)) {
        if let Some(engine) = self.engine.get().and_then(|(sink, _)| sink.upgrade()) {
            event(&*engine);
        }
    }
}

/// The event sink of every node. It keeps the hints alive; the hints do not keep the sink alive.
pub(super) struct Sink(pub(super) Arc<Hints>);

impl Events for Sink {
    // No node of a quorum grants a lock by itself.
    fn granted(&self, _: &str, _: Grant, _: &str) {}

    fn contended(&self, token: &str) {
        self.0.tell(|engine| engine.contended(token));
    }

    fn revoked(&self, token: &str) {
        self.0.tell(|engine| engine.revoked(token));
    }

    /// A waiter requests the lock when a majority is free: earlier, nodes that have not received the release would refuse it. If
    /// the queues differ, no majority sends to one waiter. Then the first message is enough, after a pause.
    fn freed(&self, token: &str) {
        let Some(number) = number_in(token) else {
            return;
        };
        let count = self.0.tokens.freed(number);
        if count == 1 {
            let (hints, token): (_, Box<str>) = (Arc::clone(&self.0), token.into());
            self.0.spawn(async move {
                tokio::time::sleep(COLLECT.mul_f64(0.5 + fastrand::f64())).await;
                if hints.tokens.take_freed(number) {
                    hints.tell(|engine| engine.freed(&token));
                }
            });
        } else if count == self.0.majority && self.0.tokens.take_freed(number) {
            self.0.tell(|engine| engine.freed(token));
        }
    }

    fn unlocked(&self, _: &str) {}

    fn interrupted(&self, of: Concerned<'_>) {
        self.0.tell(|engine| engine.interrupted(of));
    }

    // A short outage of one node is no reason to doubt a lease: the other nodes send the same messages.
    fn reconnected(&self, _: Concerned<'_>) {}

    fn is_in_use(&self) -> bool {
        let engine = self.0.engine.get().and_then(|(sink, _)| sink.upgrade());
        engine.is_some_and(|engine| engine.is_in_use())
    }
}
