//! Whether the address of a node still leads to the same server: an old connection hides that.
//!
//! Another server at the address votes only after its wait. So a client looks at intervals of a quarter of the wait, while a lease with
//! a vote of the node may last. A vote counts only if the last look is recent enough (see [`admit`](Members::admit)). A look that
//! is refused, or is not answered, proves nothing.

use std::sync::{Arc, Weak};

use tokio::time::{Instant, timeout, timeout_at};

use super::causes::late;
use super::members::{Member, Members};
use crate::base::sync::lock;
use crate::base::time::{Clock, SystemClock};
use crate::store::StoreError;

impl Members {
    /// Looks at the address of a node from now on, until the last lease with its vote has ended.
    pub(super) fn watch(self: &Arc<Self>, node: &Member) {
        self.engine.spawn(watch(Arc::downgrade(self), node.index));
    }

    /// Looks on a new connection whether the address of a node still leads to the known server.
    async fn look(self: &Arc<Self>, node: &Arc<Member>) -> Result<(), StoreError> {
        let Some((generation, known)) = node.vetted_run() else {
            // The next vetting looks.
            return Ok(());
        };
        let began = SystemClock.now();
        let looked = timeout(self.limit, node.run_at_address()).await;
        let run = looked.unwrap_or_else(|_| Err(late(self.limit)))?;
        if known.is(&run) {
            let mut state = lock(&node.admission.state);
            state.looks.seen(began, self.wait);
            return Ok(());
        }
        tracing::warn!(
            node = node.index,
            address = &*node.address,
            "the address of a node of the quorum leads to another server"
        );
        node.server.discard(generation);
        self.vetted(node).await
    }
}

/// Looks at the address of a node while it is in use. Does not keep the store alive.
async fn watch(members: Weak<Members>, index: usize) {
    loop {
        let now = Instant::now();
        let Some(members) = members.upgrade() else {
            return;
        };
        let (node, wait) = (&members.all[index], members.wait);
        let Some(at) = lock(&node.admission.state)
            .looks
            .next(SystemClock.now(), wait)
        else {
            return;
        };
        if at <= now {
            let looked = members.look(node).await;
            let mut state = lock(&node.admission.state);
            state.looks.is_over(now);
            if let Err(error) = looked
                && state.looks.warns(wait, SystemClock.now())
            {
                tracing::warn!(
                    node = index,
                    address = &*node.address,
                    %error,
                    "a node of the quorum does not vote: no new connection shows whether its address still leads to the same server"
                );
            }
            continue;
        }
        let mut alive = members.alive.subscribe();
        drop(members);
        let _ = timeout_at(at, alive.changed()).await;
    }
}
