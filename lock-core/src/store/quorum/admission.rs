//! Whether a node may vote: its server has forgotten nothing, or any vote that it may have forgotten has ended.
//!
//! The server keeps a note and decides (see `note.lua`). A client enlists it on each new connection, tells it which ttls are in
//! use, and looks from time to time whether the address still leads to the same server: an old connection hides that. Where the
//! client has seen the wait of a node, its own clock counts as well.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::causes::{in_quarantine, late, new_no_more, reconnected, twice};
use super::node::{Members, NONE, Node};
use super::ttls::told_for;
use crate::store::StoreError;
use crate::store::redis::{Enlist, Enlisted, Enlisting};
use crate::sync::lock;

/// Minimum interval between looks at the address of a node, half of the least wait of a node (see `note.lua`). Usually it is half
/// of the longest ttl in use: another server does not vote before that has passed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of the server of a node.
pub(super) struct Admission {
    /// The connection on which the server was enlisted.
    vetted: AtomicU64,
    vetting: AtomicBool,
    /// Notified when a vetting is over.
    vetting_over: Notify,
    state: Mutex<AdmissionState>,
}

#[derive(Default)]
struct AdmissionState {
    /// The error of the last vetting, if it failed.
    refused: Option<StoreError>,
    /// The last known run of the server.
    run: Option<String>,
    /// The last time that it was heard of.
    heard_at: Option<Instant>,
    /// The end of the wait of the node.
    waits_until: Option<Instant>,
    /// When the node was last told of each ttl.
    told: Vec<(Duration, Instant)>,
    /// When to look at the address again.
    look_at: Option<Instant>,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            vetted: AtomicU64::new(NONE),
            vetting: AtomicBool::new(false),
            vetting_over: Notify::new(),
            state: Mutex::default(),
        }
    }
}

/// Whether a node knows that a ttl is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Yes,
    /// It is to be told again soon.
    LongAgo,
    No,
}

impl AdmissionState {
    fn is_told(&self, ttl: Duration, now: Instant) -> Told {
        let told = self.told.iter().find(|(known, _)| *known == ttl);
        // Locks may be taken and renewed on what it was told for half of the time, and then last for as long again.
        match told.map(|(_, at)| now.saturating_duration_since(*at)) {
            Some(age) if age < told_for(ttl) / 4 => Told::Yes,
            Some(age) if age < told_for(ttl) / 2 => Told::LongAgo,
            _ => Told::No,
        }
    }

    fn told(&mut self, ttls: &[(Duration, Duration)], at: Instant) {
        self.told
            .retain(|(ttl, told)| at.saturating_duration_since(*told) < told_for(*ttl));
        for (ttl, _) in ttls {
            match self.told.iter_mut().find(|(known, _)| known == ttl) {
                Some((_, told)) => *told = at,
                None => self.told.push((*ttl, at)),
            }
        }
    }

    /// Whether to look at the address now. The next time is the least interval later, unless somebody says otherwise.
    fn is_look_due(&mut self, now: Instant) -> bool {
        let due = self.look_at.is_none_or(|at| at <= now);
        if due {
            self.look_at = Some(now + LOOK_EVERY);
        }
        due
    }
}

impl Node {
    /// The connection, if the server was enlisted on it.
    pub(super) fn vetted_connection(&self) -> Option<u64> {
        let generation = self.master.generation()?;
        (generation == self.admission.vetted.load(Ordering::Acquire)).then_some(generation)
    }

    /// The server that was enlisted has answered.
    pub(super) fn heard_of(&self) {
        if self.vetted_connection().is_some() {
            lock(&self.admission.state).heard_at = Some(Instant::now());
        }
    }

    /// The rest of the wait of the node, as far as this client knows.
    pub(super) fn left(&self, now: Instant) -> Duration {
        let until = lock(&self.admission.state).waits_until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// The node says that it does not vote yet.
    pub(super) fn waits_for(&self, left: Duration) {
        lock(&self.admission.state).waits_until = Some(Instant::now() + left);
    }

    /// The node has lost its note.
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
            (left.unwrap_or_default(), state.is_told(ttl, now))
        };
        self.look_if_due(node, now);
        if !left.is_zero() {
            return Err(in_quarantine(left));
        }
        match told {
            Told::Yes => {}
            Told::LongAgo => self.tell_later(node, ttl),
            Told::No => Box::pin(self.tell(node, ttl)).await?,
        }
        Ok(generation)
    }

    /// Locks of this rounded ttl are renewed on a node: tells it in the background that the ttl is in use, if it was not told of
    /// late, and looks at its address.
    pub(super) fn renews(self: &Arc<Self>, node: &Arc<Node>, ttl: Duration) {
        if node.vetted_connection().is_none() {
            return;
        }
        let now = Instant::now();
        let told = lock(&node.admission.state).is_told(ttl, now);
        if told != Told::Yes {
            self.tell_later(node, ttl);
        }
        self.look_if_due(node, now);
    }

    fn look_if_due(self: &Arc<Self>, node: &Arc<Node>, now: Instant) {
        if !self.quarantine || !lock(&node.admission.state).is_look_due(now) {
            return;
        }
        let half = self.ttls.longest(now) / 2;
        lock(&node.admission.state).look_at = Some(now + half.max(LOOK_EVERY));
        let (members, node) = (Arc::clone(self), Arc::clone(node));
        self.spawn(async move { members.look(&node).await });
    }

    fn tell_later(self: &Arc<Self>, node: &Arc<Node>, ttl: Duration) {
        // One at a time; if it fails, the next request tries again.
        if !node.telling.swap(true, Ordering::SeqCst) {
            let (members, node) = (Arc::clone(self), Arc::clone(node));
            self.spawn(async move {
                let _ = timeout(members.limit, members.tell(&node, ttl)).await;
                node.telling.store(false, Ordering::SeqCst);
            });
        }
    }

    /// Tells a node that a rounded ttl is in use. Its vote may be part of a lock from then on.
    async fn tell(&self, node: &Arc<Node>, ttl: Duration) -> Result<(), StoreError> {
        self.ttls.uses(ttl, Instant::now());
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
            let now = Instant::now();
            let known = self.ttls.pairs(now);
            let what = Enlist {
                how,
                run,
                heard_of_another,
                ttls: &known,
            };
            match node.master.enlist(what).await? {
                Enlisted::AskOthers if how == Enlisting::Uninformed => {
                    self.ask_others(node).await;
                    how = Enlisting::Informed;
                }
                Enlisted::AskOthers | Enlisted::Already => return Err(new_no_more()),
                Enlisted::Node { left, ttls } => {
                    self.ttls.learn(ttls, now);
                    let mut state = lock(&node.admission.state);
                    state.told(&known, now);
                    state.waits_until = (!left.is_zero()).then(|| Instant::now() + left);
                    return Ok(());
                }
            }
        }
    }

    /// Learns from the other nodes which ttls are in use. Those that do not answer are not waited for long: what they know is
    /// unknown, and the node waits for what is known.
    async fn ask_others(&self, node: &Node) {
        let others = self.all.iter().filter(|other| other.index != node.index);
        let asked = others.map(async |other| {
            let what = Enlist {
                how: Enlisting::Look,
                run: "",
                heard_of_another: None,
                ttls: &[],
            };
            let now = Instant::now();
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
                let outcome = match timeout(limit * 2, members.vet(&node)).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(late(limit * 2)),
                };
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
        let generation = node.master.ready().await?;
        let (loaded, run) = join(node.master.load(), node.master.run()).await;
        loaded?;
        let run = run?;
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
            state.look_at = Some(Instant::now() + LOOK_EVERY);
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

    /// Looks on a new connection whether the address of a node still leads to the known server.
    async fn look(self: &Arc<Self>, node: &Arc<Node>) {
        let Some(generation) = node.vetted_connection() else {
            return;
        };
        let known = lock(&node.admission.state).run.clone();
        if let Ok(Ok(run)) = timeout(self.limit, node.master.run_at_address()).await
            && known.is_some_and(|known| known != run)
        {
            tracing::warn!(
                node = node.index,
                address = &*node.address,
                "the address of a node of the quorum leads to another server"
            );
            node.master.leave(generation);
            // The other server has to hear now how long this client has used the old one.
            let _ = self.vetted(node).await;
        }
    }
}
