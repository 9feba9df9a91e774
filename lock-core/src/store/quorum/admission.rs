//! Whether a node may vote: its server has forgotten nothing, or any vote that it may have forgotten has ended.
//!
//! The server keeps a note and decides (see `vet.lua`). A client vets it on each new connection, and uses it for votes only on that
//! connection, and only if its [address](super::look) was looked at a short time ago. If the client has seen the wait of a node, the
//! wait must also have ended by the clock of the client.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{OptionFuture, join3};
use tokio::time::{Instant, timeout, timeout_at};

use super::admission_state::{Note, VettedOn};
use super::causes::{in_wait, late, no_note, reconnected, twice};
use super::members::{Member, Members};
use super::vetting::{FORMAT, Run, Statement, Vetted, Vetting};
use crate::base::sync::lock;
use crate::base::time::{Clock, Moment, SystemClock};
use crate::store::StoreError;
use crate::store::redis::differs;

/// A connection that may be used for votes: its generation, and the key of the node's counter.
pub(super) type Admitted = (u64, Arc<str>);

impl Member {
    /// The vetted run, if the connection in use is the vetted one.
    pub(super) fn vetted_run(&self) -> Option<(u64, Run)> {
        let generation = self.server.generation()?;
        let state = lock(&self.admission.state);
        let vetted = state.vetted.as_ref();
        let vetted = vetted.filter(|vetted| vetted.generation == generation)?;
        Some((generation, vetted.run.clone()))
    }

    /// The rest of the wait of the node, if this client knows of one.
    pub(super) fn wait_left(&self, now: Moment) -> Duration {
        lock(&self.admission.state).wait_left(now)
    }

    /// Notes that the node has lost its data, or may be another server.
    pub(super) fn is_unknown(&self) {
        lock(&self.admission.state).vetted = None;
    }

    /// `None` if the node has to be vetted first. From now on its address is looked at: calls `watch` if no task does so yet.
    fn admitted(
        &self,
        fresh_for: Duration,
        watch: impl FnOnce(),
    ) -> Result<Option<Admitted>, StoreError> {
        let generation = self.server.generation();
        let (mut state, now) = (lock(&self.admission.state), SystemClock.now());
        if state.looks.is_used(now) {
            watch();
        }
        let Some(generation) = generation else {
            return Ok(None);
        };
        let vetted = state.vetted.as_ref();
        let vetted = vetted.filter(|vetted| vetted.generation == generation);
        let Some(vetted) = vetted.filter(|_| state.looks.is_fresh(fresh_for, now)) else {
            return Ok(None);
        };
        let left = state.wait_left(now);
        if !left.is_zero() {
            return Err(in_wait(left));
        }
        let admitted = || (generation, Arc::clone(&vetted.counter));
        Ok(vetted.votes.then(admitted))
    }
}

impl Members {
    /// A vote, or a renewal, counts if the address was looked at less than this time before it was sent. Another server that came
    /// behind the address since then votes only after the wait, when each lock has ended: its ttl is at most half of the wait. A
    /// margin is left for clocks that run at different speeds.
    fn fresh_for(&self) -> Duration {
        self.wait * 12 / 25
    }

    /// Whether this node may vote on its current connection.
    pub(super) async fn admit(
        self: &Arc<Self>,
        node: &Arc<Member>,
    ) -> Result<Admitted, StoreError> {
        let admitted = || node.admitted(self.fresh_for(), || self.watch(node));
        if let Some(admitted) = admitted()? {
            return Ok(admitted);
        }
        Box::pin(self.vetted(node)).await?;
        admitted()?.ok_or_else(reconnected)
    }

    /// Maximum time of a vetting. Two of its five round trips make the connection, within one command deadline, so all take at most
    /// two and a half.
    pub(super) fn vetting_limit(&self) -> Duration {
        self.limit * 3
    }

    /// Waits for the vetting of the connection. The vetting runs in its own task, because the caller may have its majority, and leave,
    /// long before.
    pub(super) async fn vetted(self: &Arc<Self>, node: &Arc<Member>) -> Result<(), StoreError> {
        let ends = node.admission.vetting.ends();
        if let Some(flight) = node.admission.vetting.begin() {
            let (members, node) = (Arc::clone(self), Arc::clone(node));
            self.engine.spawn(async move {
                let limit = members.vetting_limit();
                let vetted = timeout(limit, members.vet(&node)).await;
                let outcome = vetted.unwrap_or_else(|_| {
                    node.went_silent();
                    Err(late(limit))
                });
                if outcome.is_err() {
                    node.rtt.missed();
                }
                lock(&node.admission.state).refused = outcome.err();
                drop(flight);
                members.noted.notify_waiters();
            });
        }
        ends.await;
        match lock(&node.admission.state).refused.clone() {
            Some(refused) => Err(refused),
            None => Ok(()),
        }
    }

    /// Finds out whether the server behind a connection may have forgotten anything.
    async fn vet(&self, node: &Arc<Member>) -> Result<(), StoreError> {
        let generation = node.ready().await?;
        let (run, seen) = self.identified(node, generation).await?;
        let (mut how, end) = (Vetting::Look, Instant::now() + self.limit / 2);
        loop {
            let statement = self.statement(node, how, &run);
            let answer = node.vet(statement).await?;
            // If the connection was replaced meanwhile, the answers may be those of different servers.
            if node.server.generation() != Some(generation) {
                return Err(reconnected());
            }
            match answer {
                Vetted::Blank => how = self.how_to_begin(node, end).await?,
                other @ Vetted::Other { .. } => return Err(self.is_other(node, other)),
                Vetted::Note {
                    left,
                    boot,
                    counted,
                    is_new,
                } => {
                    self.has_minted(counted);
                    let now = SystemClock.now();
                    let mut state = lock(&node.admission.state);
                    let is_news = state.waits(&boot, left, now);
                    state.note = if is_new { Note::New(now) } else { Note::Read };
                    state.looks.seen(seen, self.wait);
                    state.vetted = Some(VettedOn {
                        generation,
                        run,
                        counter: node.counter_of(&boot).into(),
                        votes: left.is_zero(),
                    });
                    drop(state);
                    self.noted.notify_waiters();
                    if is_news {
                        tracing::warn!(
                            node = node.index,
                            address = &*node.address,
                            ?left,
                            "a node of the quorum is new, has restarted, has lost its data or was replaced: it does not vote until any lock that it may have forgotten has ended"
                        );
                    }
                    return Ok(());
                }
            }
        }
    }

    /// The run of the server behind a connection, and the time since which the address of the node led to it. Loads the scripts as
    /// well: a call that is repeated because its script is missing could arrive behind a later call.
    async fn identified(
        &self,
        node: &Member,
        generation: u64,
    ) -> Result<(Run, Moment), StoreError> {
        let now = SystemClock.now();
        let dialled = node.server.dialled(generation).ok_or_else(reconnected)?;
        // An old connection hides that the address leads elsewhere.
        let is_old = dialled.until(now) >= self.wait / 4;
        let look = OptionFuture::from(is_old.then(|| node.run_at_address()));
        let (loaded, run, looked) = join3(node.load(), node.run(), look).await;
        loaded?;
        let run = run?;
        self.is_alone(node, generation, &run)?;
        match looked.transpose()? {
            Some(other) if !run.is(&other) => {
                node.server.discard(generation);
                Err(reconnected())
            }
            Some(_) => Ok((run, now)),
            None => Ok((run, dialled)),
        }
    }

    /// Finds out whether a silent node answers again, and may vote.
    pub(super) async fn probe(self: &Arc<Self>, node: &Arc<Member>) {
        if node.vetted_run().is_none() {
            let vetted = self.vetted(node).await;
            if vetted.is_err() {
                return self.was_asked(node, &vetted);
            }
        }
        let sent = Instant::now();
        match timeout(self.limit, node.run()).await {
            // Its next vote says that it votes again.
            Ok(Ok(_)) => node.rtt.answered(sent.elapsed()),
            Ok(failed) => self.was_asked(node, &failed),
            Err(_) => {
                node.went_silent();
                self.was_asked(node, &Err::<(), _>(late(self.limit)));
            }
        }
    }

    pub(super) fn statement<'a>(
        &'a self,
        node: &'a Member,
        how: Vetting<'a>,
        run: &'a Run,
    ) -> Statement<'a> {
        Statement {
            how,
            label: &node.label,
            list: &self.list,
            wait: self.wait,
            run,
            counted: self.minted.load(Ordering::Relaxed),
        }
    }

    /// Checks that no other node is on the same server, in another database. Each node notes its run before it looks for others.
    fn is_alone(&self, node: &Member, generation: u64, run: &Run) -> Result<(), StoreError> {
        lock(&node.admission.state).run_id = Some((generation, run.id.clone()));
        let has_it = |other: &Member| {
            let generation = other.server.generation();
            let state = lock(&other.admission.state);
            let known = state.run_id.as_ref();
            known.is_some_and(|(on, id)| Some(*on) == generation && *id == run.id)
        };
        let mut others = self.all.iter().filter(|other| other.index != node.index);
        match others.find(|other| has_it(other)) {
            Some(other) => Err(twice(&other.address, &node.address)),
            None => Ok(()),
        }
    }

    /// The server of this node is another node, or a node of another quorum.
    pub(super) fn is_other(&self, node: &Member, other: Vetted) -> StoreError {
        let Vetted::Other {
            label,
            list,
            wait,
            format,
        } = other
        else {
            return reconnected();
        };
        if let Some(why) = differs(&format, FORMAT, "call `begin_quorum` with `anew`") {
            return StoreError::Misconfigured(format!("its locks have {why}").into());
        }
        let named = self.all.iter().find(|other| other.label == label);
        let named = named.filter(|named| list == self.list && named.index != node.index);
        let why = match named {
            Some(named) => return twice(&named.address, &node.address),
            None if list != self.list => format!(
                "it belongs to the quorum `{list}`, and this program names `{}`: name the same nodes in all programs",
                self.list
            ),
            None => format!(
                "its quorum waits for {wait} ms, and this program for {:?}: state one `quorum_wait` in all programs",
                self.wait
            ),
        };
        StoreError::Misconfigured(why.into())
    }

    /// A node of the quorum has this counter.
    pub(super) fn has_minted(&self, counter: u64) {
        self.minted.fetch_max(counter, Ordering::Relaxed);
    }

    /// Handles a node without a note. It gets a note only after the note of another node was read, or all nodes have said that they are
    /// new. Otherwise a client with a wrong list or wait could begin a second quorum on nodes that have lost their data.
    async fn how_to_begin(&self, node: &Member, end: Instant) -> Result<Vetting<'_>, StoreError> {
        lock(&node.admission.state).note = Note::New(SystemClock.now());
        self.noted.notify_waiters();
        loop {
            let news = self.noted.notified();
            let notes = self.all.iter().map(|node| lock(&node.admission.state).note);
            let notes: Vec<_> = notes.collect();
            if notes.contains(&Note::Read) {
                return Ok(Vetting::Join);
            }
            let now = SystemClock.now();
            let is_new =
                |note: &Note| matches!(note, Note::New(at) if at.until(now) < self.wait / 4);
            if notes.iter().all(is_new) {
                return Ok(Vetting::New);
            }
            let missing = self.all.iter().zip(&notes);
            let missing = missing.filter(|(_, note)| !is_new(note));
            let missing: Vec<_> = missing.map(|(node, _)| node).collect();
            // A node that is far away says later that it is new. Its vetting ends in any case.
            let is_vetted = |node: &&Arc<Member>| node.admission.vetting.runs();
            let end = if missing.iter().any(is_vetted) {
                end + self.limit * 2
            } else {
                end
            };
            if timeout_at(end, news).await.is_err() {
                let missing = missing.iter().map(|node| Arc::clone(&node.address));
                return Err(no_note(missing.collect()));
            }
        }
    }
}
