//! Whether the address of a node still leads to the same server: an old connection hides that.
//!
//! Another server at the address votes only after its wait. So a client looks at intervals of a quarter of the wait, while a lease with
//! a vote of the node may last. A vote counts only if the last look is recent enough (see [`admit`](Members::admit)). A look that
//! is refused, or is not answered, proves nothing.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::causes::late;
use super::node::{Members, Node};
use crate::base::sync::lock;
use crate::base::time::{Clock, Moment, SystemClock};
use crate::store::StoreError;

/// Pause after a look that proved nothing.
const AGAIN: Duration = Duration::from_secs(1);

/// What is known of the address of a node.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// The beginning of the last look that found the known server, by a clock that counts suspended time.
    seen_at: Option<Moment>,
    /// When to look again.
    look_at: Option<Instant>,
    /// When the server was last asked for a vote, or a renewal.
    used_at: Option<Moment>,
    /// Whether a task looks when it is time.
    watched: bool,
    /// Whether the user was warned of looks that prove nothing.
    warned: bool,
}

impl Looks {
    /// From this time on, the address led to the known server.
    pub(super) fn seen(&mut self, at: Moment, wait: Duration) {
        self.seen_at = Some(at);
        let age = at.until(SystemClock.now());
        self.look_at = Some(Instant::now() + (wait / 4).saturating_sub(age));
        self.warned = false;
    }

    pub(super) fn is_fresh(&self, fresh_for: Duration, now: Moment) -> bool {
        self.seen_at.is_some_and(|at| at.until(now) < fresh_for)
    }

    /// The server is asked for a vote, or a renewal. Returns whether a task has to begin to look.
    pub(super) fn is_used(&mut self, now: Moment) -> bool {
        self.used_at = Some(now);
        !std::mem::replace(&mut self.watched, true)
    }

    /// The next look, unless each lease with a vote of the server has ended.
    fn next(&mut self, now: Moment, wait: Duration) -> Option<Instant> {
        self.watched = self.used_at.is_some_and(|used| now < used + wait / 2);
        self.watched
            .then(|| self.look_at.unwrap_or_else(Instant::now))
    }
}

impl Members {
    /// Looks at the address of a node from now on, until the last lease with its vote has ended.
    pub(super) fn watch(self: &Arc<Self>, node: &Node) {
        self.spawn(watch(Arc::downgrade(self), node.index));
    }

    /// Looks on a new connection whether the address of a node still leads to the known server.
    async fn look(self: &Arc<Self>, node: &Arc<Node>) -> Result<(), StoreError> {
        let Some((generation, known)) = node.vetted_run() else {
            // The next vetting looks.
            return Ok(());
        };
        let began = SystemClock.now();
        let looked = timeout(self.limit, node.master.run_at_address()).await;
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
        node.master.leave(generation);
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
            let looks = &mut state.looks;
            if looks.look_at.is_none_or(|at| at <= now) {
                looks.look_at = Some(now + AGAIN);
            }
            if let Err(error) = looked
                && !looks.is_fresh(wait / 2, SystemClock.now())
                && !std::mem::replace(&mut looks.warned, true)
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

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(60);

    #[test]
    fn an_address_is_looked_at_until_the_last_lease_has_ended() {
        let (mut looks, now) = (Looks::default(), SystemClock.now());
        let second = Duration::from_secs(1);
        looks.look_at = Some(Instant::now() + second);
        assert!(looks.is_used(now));
        assert!(!looks.is_used(now + second), "one task is enough");
        assert_eq!(looks.next(now, WAIT), looks.look_at);
        assert!(looks.next(now + second * 30, WAIT).is_some());
        assert_eq!(looks.next(now + second * 31, WAIT), None);
        assert!(looks.is_used(now + second * 40), "another task begins");
    }

    #[test]
    fn a_look_is_fresh_from_its_beginning() {
        let (mut looks, now) = (Looks::default(), SystemClock.now());
        assert!(!looks.is_fresh(WAIT, now), "never seen");
        looks.seen(now, WAIT);
        assert!(looks.is_fresh(WAIT / 2, now + WAIT * 49 / 100));
        assert!(!looks.is_fresh(WAIT / 2, now + WAIT / 2));
    }
}
