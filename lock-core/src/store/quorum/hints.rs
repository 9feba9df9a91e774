//! The messages of all nodes, combined for the engine.

use std::sync::Arc;
use std::time::Duration;

use super::members::Members;
use crate::base::observe::Event;
use crate::base::token::number_in;
use crate::store::{Concerned, Events, Grant};

/// Average pause after the first "free" of a node, for the other nodes to send theirs.
const COLLECT: Duration = Duration::from_millis(3);

/// Receives the messages of all nodes and passes them on to the engine.
pub(super) struct Hints {
    members: Arc<Members>,
}

impl Hints {
    pub(super) fn new(members: Arc<Members>) -> Arc<Self> {
        Arc::new(Self { members })
    }

    fn tell(&self, event: impl FnOnce(&dyn Events)) {
        if let Some(engine) = self.members.engine.events() {
            event(&*engine);
        }
    }
}

impl Events for Hints {
    // No node of a quorum grants a lock by itself.
    fn granted(&self, _: &str, _: Grant, _: &str) {}

    fn contended(&self, token: &str) {
        self.tell(|engine| engine.contended(token));
    }

    fn revoked(&self, token: &str) {
        self.tell(|engine| engine.revoked(token));
    }

    /// A waiter requests the lock when a majority of nodes has sent "free": a node that has not received the release would refuse
    /// it. If the queues of the nodes differ, no waiter hears from a majority. So a pause after the first message is enough.
    fn freed(&self, token: &str) {
        let Some(number) = number_in(token) else {
            return;
        };
        let Members {
            tokens, majority, ..
        } = &*self.members;
        let count = tokens.freed(number);
        if count == 1 {
            // The task holds only what it needs: `Members` would keep the nodes alive after the store.
            let (tokens, engine) = (Arc::clone(tokens), self.members.engine.get().cloned());
            let token: Box<str> = token.into();
            self.members.engine.spawn(async move {
                tokio::time::sleep(COLLECT.mul_f64(0.5 + fastrand::f64())).await;
                if tokens.take_freed(number)
                    && let Some(engine) = engine.and_then(|engine| engine.sink.upgrade())
                {
                    engine.freed(&token);
                }
            });
        } else if count == *majority && tokens.take_freed(number) {
            self.tell(|engine| engine.freed(token));
        }
    }

    fn unlocked(&self, _: &str) {}

    fn interrupted(&self, of: Concerned<'_>) {
        self.tell(|engine| engine.interrupted(of));
    }

    // The other nodes have sent the same messages: only the votes of this one may be missing.
    fn reconnected(&self, _: Concerned<'_>) {
        let nodes = self.members.all.iter();
        for node in nodes.filter(|node| node.sessions.vetted().is_none()) {
            self.members.begin_session(node);
        }
    }

    fn observed(&self, event: &Event<'_>) {
        self.tell(|engine| engine.observed(event));
    }

    fn is_in_use(&self) -> bool {
        self.members
            .engine
            .events()
            .is_some_and(|engine| engine.is_in_use())
    }
}
