//! Whether a node may vote: its server has forgotten nothing, or any vote that it may have forgotten has ended.
//!
//! The server keeps a note and decides (see `note.lua`). A client enlists it on each new connection, and announces the ttls in use
//! to it. If the client has seen the wait of a node, the wait must also have ended by the clock of the client.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join_all, join3};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::causes::{in_quarantine, late, new_no_more, not_told, reconnected, twice};
use super::look::Looks;
use super::node::{Members, NONE, Node};
use super::nodes::Nodes;
use super::ttls::told_for;
use crate::store::StoreError;
use crate::store::redis::{Enlist, Enlisted, Enlisting};
use crate::sync::lock;
use crate::time::{Clock, Moment, SystemClock};

/// What is known of the server of a node.
pub(super) struct Admission {
    /// The connection on which the server was enlisted.
    vetted: AtomicU64,
    vetting: AtomicBool,
    /// Notified when a vetting is over.
    vetting_over: Notify,
    state: Mutex<AdmissionState>,
    pub(super) looks: Mutex<Looks>,
}

#[derive(Default)]
struct AdmissionState {
    /// The error of the last vetting, if it failed.
    refused: Option<StoreError>,
    /// The last known run of the server.
    run: Option<String>,
    /// The last time that the address led to it, or that it voted or renewed.
    heard_at: Option<Instant>,
    /// The end of the wait of the node.
    waits_until: Option<Instant>,
    /// Each ttl that was announced to the node, and the end of its use, by a clock that counts suspended time.
    told: Vec<(Duration, Moment)>,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            vetted: AtomicU64::new(NONE),
            vetting: AtomicBool::new(false),
            vetting_over: Notify::new(),
            state: Mutex::default(),
            looks: Mutex::default(),
        }
    }
}

/// Whether a node knows that a ttl is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Yes,
    /// The announcement is to be repeated soon.
    LongAgo,
    No,
}

impl AdmissionState {
    fn is_told(&self, ttl: Duration, now: Moment) -> Told {
        // The announcement of a longer ttl is enough.
        let told = self.told.iter().filter(|(known, _)| *known >= ttl);
        // A lock that is acquired or renewed now must end before the announced use.
        match told.map(|(_, until)| now.until(*until)).max() {
            Some(left) if left > told_for(ttl) / 4 * 3 => Told::Yes,
            Some(left) if left > told_for(ttl) / 2 => Told::LongAgo,
            _ => Told::No,
        }
    }

    /// These ttls were announced to the node, each with the rest of its use: other clients may soon stop using a ttl.
    fn told(&mut self, ttls: &[(Duration, Duration)], at: Moment) {
        self.told.clear();
        self.told
            .extend(ttls.iter().map(|(ttl, time)| (*ttl, at + *time)));
    }
}

impl Admission {
    /// The last known run of the server.
    pub(super) fn run(&self) -> Option<String> {
        lock(&self.state).run.clone()
    }
}

impl Node {
    /// The connection, if the server was enlisted on it.
    pub(super) fn vetted_connection(&self) -> Option<u64> {
        let generation = self.master.generation()?;
        (generation == self.admission.vetted.load(Ordering::Acquire)).then_some(generation)
    }

    /// The server that was enlisted has voted or renewed, or its address still leads to it.
    pub(super) fn heard_of(&self) {
        if self.vetted_connection().is_some() {
            lock(&self.admission.state).heard_at = Some(Instant::now());
        }
    }

    /// Whether the node knows that a rounded ttl is in use, for as long as a lock lasts that is taken or renewed now.
    pub(super) fn is_told(&self, ttl: Duration) -> bool {
        lock(&self.admission.state).is_told(ttl, SystemClock.now()) != Told::No
    }

    /// The rest of the wait of the node, if this client knows of one.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let until = lock(&self.admission.state).waits_until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// The node says that it does not vote yet.
    pub(super) fn waits_for(&self, left: Duration) {
        lock(&self.admission.state).waits_until = Some(Instant::now() + left);
    }

    /// The node has lost its note, or may be another server.
    pub(super) fn is_unknown(&self) {
        self.admission.vetted.store(NONE, Ordering::Release);
    }
}

impl Members {
    /// Whether this node may vote for a lock of this rounded ttl on its current connection. Returns the generation of that
    /// connection.
    pub(super) async fn admit(
        self: &Arc<Self>,
        node: &Arc<Node>,
        ttl: Duration,
    ) -> Result<u64, StoreError> {
        let now = SystemClock.now();
        let is_stale =
            self.quarantine && lock(&node.admission.looks).is_stale(self.ttls.longest(now), now);
        if is_stale {
            node.is_unknown();
        }
        let generation = match node.vetted_connection() {
            Some(generation) => generation,
            None => Box::pin(self.vetted(node)).await?,
        };
        let now = Instant::now();
        let (left, told) = {
            let mut state = lock(&node.admission.state);
            let left = state
                .waits_until
                .map(|until| until.saturating_duration_since(now));
            if left == Some(Duration::ZERO) {
                state.waits_until = None;
            }
            (
                left.unwrap_or_default(),
                state.is_told(ttl, SystemClock.now()),
            )
        };
        self.uses(node, ttl, now);
        if !left.is_zero() {
            return Err(in_quarantine(left));
        }
        if told != Told::Yes {
            self.tell_later(node, ttl);
        }
        if told == Told::No && self.quarantine {
            return Err(not_told());
        }
        Ok(generation)
    }

    /// Locks of this rounded ttl are renewed on a node: announces the ttl to it in the background, unless that was done recently,
    /// and looks at its address.
    pub(super) fn renews(self: &Arc<Self>, node: &Arc<Node>, ttl: Duration) {
        let now = Instant::now();
        let told = lock(&node.admission.state).is_told(ttl, SystemClock.now());
        if told != Told::Yes {
            self.tell_later(node, ttl);
        }
        self.uses(node, ttl, now);
    }

    /// The nodes, except those in `skip`, that know that a rounded ttl is in use. If they are fewer than `enough`, the ttl is first
    /// announced to the others: a node may forget its vote, and the length of its quarantine then comes from the other nodes.
    pub(super) async fn told(
        self: &Arc<Self>,
        ttl: Duration,
        (skip, enough): (Nodes, usize),
        most: impl FnOnce() -> Duration,
    ) -> Nodes {
        let asked = || self.all.iter().filter(|node| !skip.has(node.index));
        let known = || {
            let told = asked().filter(|node| !self.quarantine || node.is_told(ttl));
            told.fold(Nodes::default(), |nodes, node| nodes.with(node.index))
        };
        let told = known();
        if told.len() == asked().count() {
            return told;
        }
        if told.len() >= enough {
            for node in asked().filter(|node| !told.has(node.index)) {
                self.tell_later(node, ttl);
            }
            return told;
        }
        let (began, most) = (Instant::now(), most());
        let (mut end, mut tried) = (began + most, Nodes::default());
        loop {
            let over = self.telling_over.notified();
            tokio::pin!(over);
            over.as_mut().enable();
            let told = known();
            if told.len() >= enough {
                // The others get the same time again.
                end = end.min(began + began.elapsed().max(Duration::from_millis(1)) * 2);
            }
            let mut is_telling = false;
            for node in asked().filter(|node| !told.has(node.index)) {
                // Another ttl may be on its way to it.
                if tried.has(node.index) {
                    is_telling |= node.telling.load(Ordering::SeqCst);
                } else {
                    is_telling = true;
                    if self.tell_later(node, ttl) {
                        tried = tried.with(node.index);
                    }
                }
            }
            if !is_telling || timeout_at(end, over).await.is_err() {
                return known();
            }
        }
    }

    /// Announces a ttl to a node in the background, one at a time. After a failure, the next request tries again. Returns whether
    /// it has begun.
    fn tell_later(self: &Arc<Self>, node: &Arc<Node>, ttl: Duration) -> bool {
        if node.telling.swap(true, Ordering::SeqCst) {
            return false;
        }
        let (members, node) = (Arc::clone(self), Arc::clone(node));
        self.spawn(async move {
            if timeout(members.limit, members.tell(&node, ttl))
                .await
                .is_err()
            {
                node.rtt.missed();
                node.master.went_silent();
            }
            node.telling.store(false, Ordering::SeqCst);
            members.telling_over.notify_waiters();
        });
        true
    }

    /// Announces to a node that a rounded ttl is in use. From then on, its vote may be part of a lock.
    async fn tell(self: &Arc<Self>, node: &Arc<Node>, ttl: Duration) -> Result<(), StoreError> {
        self.ttls.uses(ttl, SystemClock.now());
        if node.vetted_connection().is_none() {
            // Enlisting the node announces all ttls.
            return self.vetted(node).await.map(|_| ());
        }
        let run = lock(&node.admission.state).run.clone();
        self.enlist(node, &run.ok_or_else(reconnected)?, None).await
    }

    async fn enlist(
        &self,
        node: &Arc<Node>,
        run: &str,
        heard_of_another: Option<Duration>,
    ) -> Result<(), StoreError> {
        let mut how = if self.quarantine {
            Enlisting::Uninformed
        } else {
            Enlisting::Trusting
        };
        loop {
            let now = SystemClock.now();
            let known = self.ttls.pairs(now);
            let what = Enlist {
                how,
                run,
                heard_of_another,
                ttls: &known,
            };
            let before = node.master.generation();
            let answer = node.master.enlist(what).await?;
            if before.is_none() || node.master.generation() != before {
                return Err(reconnected());
            }
            match answer {
                Enlisted::AskOthers if how == Enlisting::Uninformed => {
                    self.ask_others(node).await;
                    how = Enlisting::Informed;
                }
                Enlisted::AskOthers | Enlisted::Already => return Err(new_no_more()),
                Enlisted::Node { left, ttls } => {
                    self.ttls.learn(ttls, now);
                    let mut state = lock(&node.admission.state);
                    state.told(&known, now);
                    let said = (!left.is_zero()).then(|| Instant::now() + left);
                    // The clock of the node may have jumped during its wait.
                    let seen = state.waits_until;
                    let seen = seen.filter(|until| self.quarantine && *until > Instant::now());
                    state.waits_until = said.max(seen);
                    return Ok(());
                }
            }
        }
    }

    /// Learns from the other nodes which ttls are in use. The wait for a node without an answer is short: the quarantine then uses
    /// the known ttls.
    async fn ask_others(&self, node: &Node) {
        let others = self.all.iter().filter(|other| other.index != node.index);
        let asked = others.map(async |other| {
            let what = Enlist {
                how: Enlisting::Look,
                run: "",
                heard_of_another: None,
                ttls: &[],
            };
            let now = SystemClock.now();
            let answer = timeout(self.limit / 2, other.master.enlist(what)).await;
            if let Ok(Ok(Enlisted::Node { ttls, .. })) = answer {
                self.ttls.learn(ttls, now);
            }
        });
        join_all(asked).await;
    }

    /// Waits for the vetting of the connection. The vetting runs by itself: the caller may have its majority, and
    /// leave, long before.
    pub(super) async fn vetted(self: &Arc<Self>, node: &Arc<Node>) -> Result<u64, StoreError> {
        let over = node.admission.vetting_over.notified();
        tokio::pin!(over);
        over.as_mut().enable();
        if !node.admission.vetting.swap(true, Ordering::SeqCst) {
            let (members, node) = (Arc::clone(self), Arc::clone(node));
            self.spawn(async move {
                let limit = members.limit;
                let vetted = timeout(limit * 2, members.vet(&node)).await;
                let outcome = vetted.unwrap_or_else(|_| {
                    node.master.went_silent();
                    Err(late(limit * 2))
                });
                if outcome.is_err() {
                    node.rtt.missed();
                }
                lock(&node.admission.state).refused = outcome.err();
                node.admission.vetting.store(false, Ordering::SeqCst);
                node.admission.vetting_over.notify_waiters();
            });
        }
        over.await;
        let refused = || lock(&node.admission.state).refused.clone();
        let broken = || refused().unwrap_or_else(reconnected);
        node.vetted_connection().ok_or_else(broken)
    }

    /// Finds out whether the server behind a new connection may have forgotten anything, and loads the scripts. A call that had
    /// to be repeated because its script is missing could arrive behind a later one.
    async fn vet(&self, node: &Arc<Node>) -> Result<(), StoreError> {
        let before = node.master.generation();
        let generation = node.master.ready().await?;
        let now = SystemClock.now();
        let at_address = async {
            // An old connection hides that the address leads elsewhere.
            if before == Some(generation) && self.quarantine {
                return Some(node.master.run_at_address().await);
            }
            None
        };
        let (loaded, run, at_address) =
            join3(node.master.load(), node.master.run(), at_address).await;
        loaded?;
        let run = run?;
        if at_address.transpose()?.is_some_and(|other| other != run) {
            node.master.leave(generation);
            return Err(reconnected());
        }
        let heard_of_another = {
            let state = lock(&node.admission.state);
            let other = state.run.as_ref().is_some_and(|known| *known != run);
            state.heard_at.filter(|_| other).map(|at| at.elapsed())
        };
        self.enlist(node, &run, heard_of_another).await?;
        // If the connection was replaced meanwhile, the answers may be those of different servers.
        if node.master.generation() != Some(generation) {
            return Err(reconnected());
        }
        {
            let mut state = lock(&node.admission.state);
            state.run = Some(run);
            state.heard_at = Some(Instant::now());
            lock(&node.admission.looks).seen(now);
            if let Some(until) = state.waits_until {
                tracing::warn!(
                    node = node.index,
                    address = &*node.address,
                    left = ?until.saturating_duration_since(Instant::now()),
                    "a node of the quorum is new, has restarted or was replaced: it does not vote until any lock that it may have forgotten has ended"
                );
            }
        }
        self.only_once(node)?;
        node.admission.vetted.store(generation, Ordering::Release);
        Ok(())
    }

    /// Makes sure that no other address leads to the server of this node: it would vote twice.
    fn only_once(&self, node: &Arc<Node>) -> Result<(), StoreError> {
        let run = |node: &Node| lock(&node.admission.state).run.clone();
        let ours = run(node);
        let mut others = self.all.iter().filter(|other| other.index != node.index);
        match others.find(|other| run(other) == ours) {
            Some(other) => Err(twice(&node.address, &other.address)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_told_again_of_a_ttl_that_it_knows_for_less_time_than_a_lock_would_last() {
        let (mut state, now) = (AdmissionState::default(), SystemClock.now());
        let second = Duration::from_secs(1);
        let ttl = second * 10;
        assert_eq!(state.is_told(ttl, now), Told::No);
        state.told(&[(ttl, told_for(ttl))], now);
        let told = |state: &AdmissionState, after| state.is_told(ttl, now + second * after);
        assert_eq!(told(&state, 4), Told::Yes);
        assert_eq!(told(&state, 6), Told::LongAgo);
        assert_eq!(told(&state, 10), Told::No);
        // A ttl of another client, and how much longer it is in use.
        state.told(&[(ttl, second * 9)], now);
        assert_eq!(told(&state, 0), Told::No);
        assert_eq!(state.is_told(second * 8, now), Told::LongAgo);
        assert_eq!(state.is_told(second * 3, now), Told::Yes);
    }
}
