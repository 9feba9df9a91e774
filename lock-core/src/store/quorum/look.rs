//! Whether the address of a node still leads to the same server: an old connection hides that.
//!
//! Another server at the address votes only after its quarantine: the longest ttl, from the time at which a client noticed it, or
//! from the report of a client that used the former server after that time (see `note.lua`). So a client looks at intervals of half
//! the longest ttl, while a lease with a vote of the node may last. A vote counts only if the last look is recent enough.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::node::{Members, Node};
use crate::sync::lock;
use crate::time::{Clock, Moment, SystemClock};

/// Minimum interval between looks, half of the least wait of a node (see `note.lua`).
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of the address of a node.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// When the address was last seen to lead to the server, by a clock that counts suspended time.
    seen_at: Option<Moment>,
    /// When to look again.
    look_at: Option<Instant>,
    /// The end of the last lease to which the server has given a vote.
    used_until: Option<Instant>,
    /// Whether a task looks when it is time.
    watched: bool,
}

impl Looks {
    /// A connection that was made at this time led to the server.
    pub(super) fn seen(&mut self, at: Moment) {
        self.seen_at = Some(at);
        self.look_at = Some(Instant::now() + LOOK_EVERY);
    }

    /// Whether the last look is too old: a server that replaced this one since then may vote soon. The next look is due long before.
    pub(super) fn is_stale(&self, longest: Duration, now: Moment) -> bool {
        let wait = longest.max(LOOK_EVERY * 2);
        let age = self.seen_at.map(|at| at.until(now));
        age.is_none_or(|age| age >= wait * 3 / 4)
    }

    /// The server is asked for a vote, or a renewal, for this ttl. Returns whether a task has to begin to look.
    fn is_used(&mut self, ttl: Duration, now: Instant) -> bool {
        self.used_until = self.used_until.max(now.checked_add(ttl));
        !std::mem::replace(&mut self.watched, true)
    }

    /// The next look, unless none is needed any more.
    fn next(&mut self, now: Instant) -> Option<Instant> {
        self.watched = self.used_until.is_some_and(|until| now < until);
        self.watched.then(|| self.look_at.unwrap_or(now))
    }
}

impl Members {
    /// A node is asked for a vote, or a renewal, for this rounded ttl: its address is looked at until the lease has ended.
    pub(super) fn uses(self: &Arc<Self>, node: &Node, ttl: Duration, now: Instant) {
        if self.quarantine && lock(&node.admission.looks).is_used(ttl, now) {
            self.spawn(watch(Arc::downgrade(self), node.index));
        }
    }

    /// Looks on a new connection whether the address of a node still leads to the known server.
    async fn look(self: &Arc<Self>, node: &Arc<Node>) {
        let Some(generation) = node.vetted_connection() else {
            return;
        };
        let known = node.admission.run();
        let now = SystemClock.now();
        let outcome = timeout(self.limit, node.master.run_at_address()).await;
        let Ok(Ok(run)) = outcome else { return };
        if known.is_none_or(|known| known == run) {
            lock(&node.admission.looks).seen_at = Some(now);
            node.heard_of();
            return;
        }
        tracing::warn!(
            node = node.index,
            address = &*node.address,
            "the address of a node of the quorum leads to another server"
        );
        node.master.leave(generation);
        // The other server must learn now when this client last used the former server.
        let _ = self.vetted(node).await;
    }
}

/// Looks at the address of a node while it is in use. Does not keep the store alive.
async fn watch(members: Weak<Members>, index: usize) {
    loop {
        let now = Instant::now();
        let Some(members) = members.upgrade() else {
            return;
        };
        let node = &members.all[index];
        let Some(at) = lock(&node.admission.looks).next(now) else {
            return;
        };
        if at <= now {
            let began = SystemClock.now();
            members.look(node).await;
            let half = members.ttls.longest(began) / 2;
            let mut looks = lock(&node.admission.looks);
            // A failed look proves nothing.
            let pause = if looks.seen_at.is_some_and(|at| at >= began) {
                half.max(LOOK_EVERY)
            } else {
                LOOK_EVERY
            };
            looks.look_at = Some(now + pause);
            continue;
        }
        drop(members);
        sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_address_is_looked_at_until_the_last_lease_has_ended() {
        let (mut looks, now) = (Looks::default(), Instant::now());
        looks.look_at = Some(now + LOOK_EVERY);
        assert!(looks.is_used(MS * 3000, now));
        assert!(!looks.is_used(MS * 5000, now), "one task is enough");
        assert!(!looks.is_used(MS, now));
        assert_eq!(looks.next(now), Some(now + LOOK_EVERY));
        assert!(looks.next(now + MS * 4999).is_some());
        assert_eq!(looks.next(now + MS * 5000), None);
        assert!(looks.is_used(MS, now + MS * 6000), "another task begins");
    }

    #[test]
    fn a_vote_does_not_count_if_the_last_look_is_too_long_ago() {
        let (mut looks, now) = (Looks::default(), SystemClock.now());
        assert!(looks.is_stale(MS * 30_000, now), "never seen");
        looks.seen(now);
        assert!(!looks.is_stale(MS * 100, now + MS * 1499));
        assert!(looks.is_stale(MS * 100, now + MS * 1500));
        assert!(!looks.is_stale(MS * 30_000, now + MS * 22_499));
        assert!(looks.is_stale(MS * 30_000, now + MS * 22_500));
    }
}
