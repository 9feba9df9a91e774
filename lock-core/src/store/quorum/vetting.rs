//! Makes the sessions of the nodes. On each the server is vetted: it has forgotten nothing, or any vote that it may have forgotten has
//! ended.
//!
//! The server keeps a note and decides (see `vet.lua`). If the client has seen the wait of a node, the wait must also have ended by the
//! clock of the client. A new session is made before the old one is too old: a renewal comes in time for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::try_join;
use tokio::time::{Instant, timeout, timeout_at};

use super::causes::{in_wait, late, no_note, reconnected, silent, twice};
use super::members::Members;
use super::node::Member;
use super::note::{FORMAT, Run, Statement, Vetted, Vetting};
use super::session::{Admission, Admitted, Note};
use crate::base::sync::lock;
use crate::base::time::{Clock, SystemClock};
use crate::store::StoreError;
use crate::store::redis::{Connection, differs};

impl Members {
    /// Whether this node may vote, and on which connection.
    pub(super) async fn admit(
        self: &Arc<Self>,
        node: &Arc<Member>,
    ) -> Result<Admitted, StoreError> {
        let mut admission = node.sessions.admitted(self.wait);
        if matches!(admission, Admission::None) {
            Box::pin(self.vetted(node)).await?;
            admission = node.sessions.admitted(self.wait);
        }
        match admission {
            Admission::Votes(admitted, is_due) => {
                if is_due {
                    self.begin_session(node);
                }
                Ok(admitted)
            }
            Admission::Waits(left) => Err(in_wait(left)),
            Admission::None => Err(reconnected()),
        }
    }

    /// Maximum time to make a session. Two of its five round trips make the connection, within one command deadline, so all take at
    /// most two and a half.
    pub(super) fn vetting_limit(&self) -> Duration {
        self.limit * 3
    }

    /// Waits for a new session.
    pub(super) async fn vetted(self: &Arc<Self>, node: &Arc<Member>) -> Result<(), StoreError> {
        let ends = node.sessions.making.ends();
        self.begin_session(node);
        ends.await;
        lock(&node.sessions.state).outcome()
    }

    /// Makes a new session in a task of its own, because the caller may have its majority, and leave, long before.
    pub(super) fn begin_session(self: &Arc<Self>, node: &Arc<Member>) {
        let Some(flight) = node.sessions.making.begin() else {
            return;
        };
        let (members, node) = (Arc::clone(self), Arc::clone(node));
        self.engine.spawn(async move {
            let limit = members.vetting_limit();
            let made = timeout(limit, members.make(&node)).await;
            // One that was to succeed another says nothing of that one.
            let is_needed = node.sessions.vetted().is_none();
            if made.is_err() && is_needed {
                node.went_silent();
            }
            let outcome = made.unwrap_or_else(|_| Err(late(limit)));
            if outcome.is_err() && is_needed {
                node.rtt.missed();
            }
            lock(&node.sessions.state).is_over(outcome);
            drop(flight);
            members.noted.notify_waiters();
        });
    }

    /// Makes a session: on the connection in use if that is young and was not vetted, otherwise on another one, which takes its place
    /// then.
    async fn make(self: &Arc<Self>, node: &Arc<Member>) -> Result<(), StoreError> {
        let mut connection = node.server.connected().await?;
        let votes = node.sessions.votes(self.wait);
        let vetted = node.sessions.vetted();
        let is_vetted = vetted.is_some_and(|vetted| Arc::ptr_eq(&vetted, &connection));
        let age = connection.dialled.until(SystemClock.now());
        let beside = is_vetted || age >= self.wait / 4;
        if beside {
            connection = node.server.dial_beside().await?;
        }
        // A call that is repeated because its script is missing could arrive behind a later call.
        let ((), run) = try_join(node.load(&connection), node.run(&connection)).await?;
        if self.is_alone(node, &connection, &run)? && beside {
            tracing::warn!(
                node = node.index,
                address = &*node.address,
                "the address of a node of the quorum leads to another server"
            );
        }
        let Standing { boot, left, is_new } = self.standing(node, &connection, &run).await?;
        if beside && !node.server.is_succeeded_by(&connection) {
            return Err(reconnected());
        }
        let is_news = {
            let (mut state, now) = (lock(&node.sessions.state), SystemClock.now());
            state.note = if is_new { Note::New(now) } else { Note::Read };
            state.made(&connection, node.counter_of(&boot), left);
            state.waits(&boot, left, now)
        };
        self.noted.notify_waiters();
        if is_news {
            tracing::warn!(
                node = node.index,
                address = &*node.address,
                ?left,
                "a node of the quorum is new, has restarted, has lost its data or was replaced: it does not vote until any lock that it may have forgotten has ended"
            );
        }
        if !left.is_zero() {
            self.tokens.forgets(node.index);
            self.vets_after(left, node);
        } else if !votes && let Some(engine) = self.engine.events() {
            engine.to_be_confirmed(&self.tokens.lacking(node.index));
        }
        Ok(())
    }

    /// Makes another session when the wait of a node is over, also if no lock is asked for then.
    fn vets_after(self: &Arc<Self>, left: Duration, node: &Member) {
        let (members, mut alive) = (Arc::downgrade(self), self.alive.subscribe());
        let index = node.index;
        self.engine.spawn(async move {
            let _ = timeout(left, alive.changed()).await;
            if let Some(members) = members.upgrade() {
                members.begin_session(&members.all[index]);
            }
        });
    }

    /// Finds out whether the server behind a connection may have forgotten anything.
    async fn standing(
        &self,
        node: &Arc<Member>,
        connection: &Arc<Connection>,
        run: &Run,
    ) -> Result<Standing, StoreError> {
        let (mut how, end) = (Vetting::Look, Instant::now() + self.limit / 2);
        loop {
            let statement = self.statement(node, how, run);
            match node.vet(connection, statement).await? {
                Vetted::Blank => how = self.how_to_begin(node, end).await?,
                other @ Vetted::Other { .. } => return Err(self.is_other(node, other)),
                Vetted::Note {
                    left,
                    boot,
                    counted,
                    is_new,
                } => {
                    self.has_minted(counted);
                    return Ok(Standing { boot, left, is_new });
                }
            }
        }
    }

    /// Finds out whether a silent node answers again, and may vote.
    pub(super) async fn probe(self: &Arc<Self>, node: &Arc<Member>) {
        let vetted = match node.sessions.vetted() {
            Some(_) => Ok(()),
            None if node.server.is_reached().await => self.vetted(node).await,
            None => lock(&node.sessions.state).outcome().and(Err(silent())),
        };
        let Some(connection) = node.sessions.vetted().filter(|_| vetted.is_ok()) else {
            return self.was_asked(node, &vetted);
        };
        let sent = Instant::now();
        match timeout(self.limit, node.run(&connection)).await {
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
    fn is_alone(
        &self,
        node: &Member,
        connection: &Arc<Connection>,
        run: &Run,
    ) -> Result<bool, StoreError> {
        let is_other = node.sessions.has_heard(connection, run);
        let mut others = self.all.iter().filter(|other| other.index != node.index);
        match others.find(|other| other.sessions.leads_to(run)) {
            Some(other) => Err(twice(&other.address, &node.address)),
            None => Ok(is_other),
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
        lock(&node.sessions.state).note = Note::New(SystemClock.now());
        self.noted.notify_waiters();
        loop {
            let news = self.noted.notified();
            let notes = self.all.iter().map(|node| lock(&node.sessions.state).note);
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
            let is_vetted = |node: &&Arc<Member>| node.sessions.making.runs();
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

/// What a node that belongs to the quorum has said of its note.
struct Standing {
    boot: String,
    /// The rest of its wait; zero if it votes.
    left: Duration,
    /// Whether the quorum has not begun.
    is_new: bool,
}
