//! The acquisitions of this process: their attempts, the edition of their votes, and who takes these back. No I/O.
//!
//! | Of an acquisition | Begins with | Ends with |
//! |---|---|---|
//! | edition | the first attempt, and the first after the last one has lost | the last attempt that loses, or the release |
//! | attempts | each request for votes | its outcome, or its drop |
//! | asked | each request for a vote, before it is sent | a refusal; all with the edition |
//! | voted | an answer that says so | a renewal without it; a loss of data; all with the edition |
//! | queued | each request of a waiter | the release |
//! | won | an attempt with a majority, or a renewal | the release, or the end of the lease |
//! | undone | an undo of this process that is sent while the token is being released | the end of the release |
//! | freed | the first "free" message of a node | the notification of the engine, the next attempt, or the release |
//!
//! An acquisition may have two attempts at a time: one of the task that waits, and one of the refresh of its waiting line. A node has one
//! vote for both, so they share an edition. The last of them that loses takes back the votes of the edition, unless one has won, and the
//! next attempt has a later edition. So whenever an undo arrives, it removes no vote of a later attempt.
//!
//! An attempt wins only while its edition is open, and a vote that comes after that is taken back by the request that got it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::nodes::{MAXIMUM_NODES, Nodes};
use crate::base::rt;
use crate::base::sync::lock;
use crate::base::token::Token;

/// Minimum number of acquisitions before old ones are looked for.
const FEW: usize = 64;

/// The edition of no vote.
const NONE: u64 = 0;

#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<Book>);

/// The known acquisitions.
#[derive(Debug, Default)]
struct Book {
    all: HashMap<u64, TokenState>,
    /// The last edition of any acquisition. A forgotten one never gets an earlier edition again.
    editions: u64,
    /// The number of acquisitions at which old ones are looked for next.
    look_at: usize,
}

/// The votes of an acquisition: its number, and their edition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edition {
    pub(super) of: u64,
    pub(super) number: u64,
}

/// What a node stores for an edition of a token.
pub(super) fn stored(token: &Token, edition: u64) -> String {
    format!("{}{{{edition}}}", token.as_str())
}

#[derive(Debug, Default)]
struct TokenState {
    /// The last edition, and whether it is open.
    edition: u64,
    is_open: bool,
    /// Number of running attempts.
    attempts: u32,
    /// The end of the lease that an attempt has won, or a renewal has prolonged, until the lock is released.
    won: Option<Instant>,
    /// For each node, the requests for a vote of the open edition that it has not refused.
    asked: [u32; MAXIMUM_NODES],
    /// The nodes that have said that they have the vote of the open edition.
    voted: Nodes,
    /// Where it may have a place in the queue.
    queued: Nodes,
    /// Number of releases under way, and whether an undo of this process may overtake one.
    releases: u32,
    is_undone: bool,
    /// The time of its first attempt, µs since 1970: its place in the queues. A later time in some of them would put them in
    /// different orders, and their offers would go to different waiters.
    ticket: Option<u64>,
    /// Number of nodes that have sent "free" since the last attempt.
    freed: usize,
}

impl TokenState {
    fn asked(&self) -> Nodes {
        let asked = (0..MAXIMUM_NODES).filter(|node| self.asked[*node] > 0);
        asked.fold(Nodes::default(), Nodes::with)
    }

    /// Returns where it may have votes.
    fn close(&mut self) -> Nodes {
        let asked = self.asked();
        (self.is_open, self.won) = (false, None);
        (self.asked, self.voted) = ([0; MAXIMUM_NODES], Nodes::default());
        asked
    }

    fn is_won(&self, now: Instant) -> bool {
        self.won.is_some_and(|until| now < until)
    }

    fn won(&mut self, lease: Duration) {
        // An end that the clock cannot represent is later than the end of any process.
        let until = Instant::now().checked_add(lease);
        self.won = until.max(self.won);
    }

    fn is_used(&self) -> bool {
        self.attempts > 0 || self.freed > 0 || self.releases > 0
    }

    fn is_over(&self) -> bool {
        let is_asked_nowhere = self.asked().is_empty() && self.queued.is_empty();
        self.won.is_none() && is_asked_nowhere && !self.is_used()
    }
}

impl Book {
    /// Forgets old acquisitions. This is rare, so the cost for each is small.
    fn tidy(&mut self, now: Instant) {
        self.all.retain(|_, it| it.is_used() || it.is_won(now));
        self.look_at = self.all.len() * 2;
    }

    /// Changes a known acquisition, and forgets one of which nothing is left.
    fn change<T>(&mut self, number: u64, change: impl FnOnce(&mut TokenState) -> T) -> Option<T> {
        let Entry::Occupied(mut entry) = self.all.entry(number) else {
            return None;
        };
        let changed = change(entry.get_mut());
        if entry.get().is_over() {
            entry.remove();
        }
        Some(changed)
    }

    /// The acquisition, if this edition is open.
    fn open(&mut self, edition: Edition) -> Option<&mut TokenState> {
        let it = self.all.get_mut(&edition.of);
        it.filter(|it| it.is_open && it.edition == edition.number)
    }
}

/// A running release, and what it has to remove.
#[derive(Debug)]
pub(super) struct Given {
    tokens: Arc<Tokens>,
    /// Votes up to this edition.
    pub(super) edition: Edition,
    /// Where it may have votes or places; `None` if that is not known.
    pub(super) nodes: Option<Nodes>,
}

impl Given {
    /// Whether an undo of this process may have removed votes before this release.
    pub(super) fn is_undone(&self) -> bool {
        let book = lock(&self.tokens.0);
        book.all
            .get(&self.edition.of)
            .is_some_and(|it| it.is_undone)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        lock(&self.tokens.0).change(self.edition.of, |it| {
            it.releases -= 1;
            it.is_undone &= it.releases > 0;
        });
    }
}

impl Tokens {
    /// An attempt begins.
    pub(super) fn begin(self: &Arc<Self>, token: &Token) -> VoteClaim {
        let mut book = lock(&self.0);
        if book.all.len() >= book.look_at.max(FEW) {
            book.tidy(Instant::now());
        }
        let (of, next) = (token.number(), book.editions + 1);
        let it = book.all.entry(of).or_default();
        if !it.is_open {
            (it.is_open, it.edition) = (true, next);
        }
        (it.attempts, it.freed) = (it.attempts + 1, 0);
        let now = || rt::unix_time().as_micros() as u64;
        let (number, ticket) = (it.edition, *it.ticket.get_or_insert_with(now));
        book.editions = book.editions.max(number);
        drop(book);
        VoteClaim {
            tokens: Arc::clone(self),
            edition: Edition { of, number },
            ticket,
        }
    }

    /// A node is about to be asked for a vote, by a waiter perhaps for a place. Returns whether it may be.
    pub(super) fn asks(&self, edition: Edition, node: usize, waits: bool) -> bool {
        let mut book = lock(&self.0);
        let it = book.open(edition);
        it.is_some_and(|it| {
            it.asked[node] += 1;
            if waits {
                it.queued = it.queued.with(node);
            }
            true
        })
    }

    /// A node has refused a vote.
    pub(super) fn is_refused(&self, edition: Edition, node: usize) {
        if let Some(it) = lock(&self.0).open(edition) {
            it.asked[node] = it.asked[node].saturating_sub(1);
        }
    }

    /// Whether votes of this edition count.
    pub(super) fn is_open(&self, edition: Edition) -> bool {
        lock(&self.0).open(edition).is_some()
    }

    /// A node has the vote of this edition, for certain or perhaps. Returns whether it counts.
    pub(super) fn is_cast(&self, edition: Edition, node: usize, is_certain: bool) -> bool {
        let mut book = lock(&self.0);
        let it = book.open(edition);
        it.is_some_and(|it| {
            if is_certain {
                it.voted = it.voted.with(node);
            }
            true
        })
    }

    /// The rest of the lease that has been won with this edition.
    pub(super) fn left(&self, edition: Edition) -> Option<Duration> {
        let won = lock(&self.0).open(edition)?.won?;
        won.checked_duration_since(Instant::now())
    }

    /// As [`left`](Self::left), with the nodes that have the vote, if one of `nodes` has not.
    pub(super) fn bare(&self, edition: Edition, nodes: Nodes) -> Option<(Nodes, Duration)> {
        let voted = lock(&self.0).open(edition)?.voted;
        let is_bare = !nodes.but(voted).is_empty();
        Some((voted, self.left(edition).filter(|_| is_bare)?))
    }

    /// An undo is about to be sent: a release that it overtakes finds nothing.
    pub(super) fn undoes(&self, number: u64) {
        if let Some(it) = lock(&self.0).all.get_mut(&number) {
            it.is_undone = it.releases > 0;
        }
    }

    /// The open edition of a token, or one that no node has.
    pub(super) fn edition(&self, token: &Token) -> Edition {
        let of = token.number();
        let book = lock(&self.0);
        let known = book.all.get(&of).filter(|it| it.is_open);
        Edition {
            of,
            number: known.map_or(NONE, |it| it.edition),
        }
    }

    /// A node has renewed a vote: the release has to remove it.
    pub(super) fn confirmed(&self, edition: Edition, node: usize) {
        if let Some(it) = lock(&self.0).open(edition) {
            it.asked[node] = it.asked[node].max(1);
        }
    }

    /// A renewal was confirmed by these nodes, a majority.
    pub(super) fn renewed(&self, edition: Edition, lease: Duration, by: Nodes) {
        if let Some(it) = lock(&self.0).open(edition) {
            it.won(lease);
            it.voted = by;
        }
    }

    /// A node has lost its votes.
    pub(super) fn forgets(&self, node: usize) {
        let mut book = lock(&self.0);
        let all = book.all.values_mut();
        all.for_each(|it| it.voted = it.voted.without(node));
    }

    /// The numbers of the acquisitions that hold their lock, as far as is known without the vote of this node.
    pub(super) fn lacking(&self, node: usize) -> Vec<u64> {
        let (book, now) = (lock(&self.0), Instant::now());
        let all = book.all.iter();
        let lacking = all.filter(|(_, it)| it.is_won(now) && !it.voted.has(node));
        lacking.map(|(number, _)| *number).collect()
    }

    /// The token is about to be released.
    pub(super) fn release(self: &Arc<Self>, token: &Token) -> Given {
        let mut book = lock(&self.0);
        let (of, any) = (token.number(), book.editions);
        let it = book.all.entry(of).or_default();
        (it.freed, it.releases) = (0, it.releases + 1);
        let nodes = it.close().and(std::mem::take(&mut it.queued));
        // What knows of no request may be younger than the first one.
        let (number, nodes) = if nodes.is_empty() {
            (any, None)
        } else {
            (it.edition, Some(nodes))
        };
        Given {
            tokens: Arc::clone(self),
            edition: Edition { of, number },
            nodes,
        }
    }

    /// A node says that the lock is free. Returns the number of nodes that have said so since the last attempt.
    pub(super) fn freed(&self, number: u64) -> usize {
        let mut book = lock(&self.0);
        let it = book.all.entry(number).or_default();
        it.freed += 1;
        it.freed
    }

    /// The engine is about to be notified that the lock is free. Returns false if it was notified, or has sent a request, before.
    pub(super) fn take_freed(&self, number: u64) -> bool {
        let taken = |it: &mut TokenState| std::mem::take(&mut it.freed);
        lock(&self.0).change(number, taken).unwrap_or(0) > 0
    }
}

/// A running attempt. A dropped attempt has neither won nor lost: the next one goes on with its votes, or the release removes them.
#[derive(Debug)]
pub(super) struct VoteClaim {
    tokens: Arc<Tokens>,
    pub(super) edition: Edition,
    /// Its place in the queues.
    pub(super) ticket: u64,
}

impl VoteClaim {
    /// A majority has voted. Returns false if the votes were given up meanwhile.
    pub(super) fn won(self, lease: Duration) -> bool {
        let mut book = lock(&self.tokens.0);
        let it = book.open(self.edition);
        it.is_some_and(|it| {
            it.won(lease);
            true
        })
    }

    /// Returns where votes have to be taken back; none if another attempt is running or has won, or has given them up.
    pub(super) fn lost(self) -> Nodes {
        let mut book = lock(&self.tokens.0);
        let it = book.open(self.edition);
        let it = it.filter(|it| it.attempts == 1 && !it.is_won(Instant::now()));
        it.map_or_else(Nodes::default, TokenState::close)
    }
}

impl Drop for VoteClaim {
    fn drop(&mut self) {
        lock(&self.tokens.0).change(self.edition.of, |it| it.attempts -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::token::ClientId;

    const LEASE: Duration = Duration::from_secs(60);

    fn nodes(nodes: &[usize]) -> Nodes {
        let none = Nodes::default();
        nodes.iter().fold(none, |all, node| all.with(*node))
    }

    fn tokens() -> (Arc<Tokens>, Token) {
        (Arc::default(), ClientId::random("test").token(7))
    }

    /// An attempt that asks these nodes.
    fn asks(tokens: &Arc<Tokens>, token: &Token, asked: &[usize]) -> VoteClaim {
        let claim = tokens.begin(token);
        for node in asked {
            assert!(tokens.asks(claim.edition, *node, false));
        }
        claim
    }

    fn is_empty(tokens: &Tokens) -> bool {
        lock(&tokens.0).all.is_empty()
    }

    #[test]
    fn the_last_attempt_to_lose_takes_back_what_all_have_left() {
        let (tokens, token) = tokens();
        let first = asks(&tokens, &token, &[1]);
        let second = asks(&tokens, &token, &[0, 2]);
        assert_eq!(first.edition, second.edition);
        assert_eq!(first.lost(), nodes(&[]));
        tokens.is_refused(second.edition, 2);
        assert_eq!(second.lost(), nodes(&[0, 1]));
        assert!(is_empty(&tokens));
        // Both attempts are dropped: the next one takes over.
        drop((asks(&tokens, &token, &[1]), asks(&tokens, &token, &[2])));
        let third = asks(&tokens, &token, &[0]);
        tokens.is_refused(third.edition, 0);
        assert_eq!(third.lost(), nodes(&[1, 2]));
        assert!(is_empty(&tokens));
    }

    #[test]
    fn an_attempt_after_an_undo_has_a_later_edition() {
        let (tokens, token) = tokens();
        let first = asks(&tokens, &token, &[1]);
        let edition = first.edition;
        assert_eq!(first.lost(), nodes(&[1]));
        let second = asks(&tokens, &token, &[1]);
        assert!(second.edition.number > edition.number);
        assert!(!tokens.asks(edition, 0, true) && !tokens.is_open(edition));
        let other = asks(&tokens, &ClientId::random("test").token(8), &[]);
        assert!(other.edition.number > second.edition.number);
    }

    /// C1: the votes of an attempt beside another one that has undone them.
    #[test]
    fn an_attempt_wins_only_while_its_edition_is_open() {
        let (tokens, token) = tokens();
        let first = asks(&tokens, &token, &[0]);
        tokens.release(&token);
        assert!(!first.won(LEASE));
        let (first, second) = (asks(&tokens, &token, &[0]), asks(&tokens, &token, &[0]));
        assert_eq!(second.lost(), nodes(&[]), "the first goes on");
        assert!(first.won(LEASE));
    }

    #[test]
    fn an_attempt_that_loses_beside_one_that_has_won_takes_nothing_back() {
        let (tokens, token) = tokens();
        let (first, second) = (tokens.begin(&token), tokens.begin(&token));
        assert!(second.won(LEASE));
        // It votes in several rounds.
        for round in 0..3 {
            assert_eq!(asks(&tokens, &token, &[round]).lost(), nodes(&[]));
        }
        assert_eq!(first.lost(), nodes(&[]));
        let edition = tokens.edition(&token);
        let given = tokens.release(&token);
        assert_eq!(given.nodes, Some(nodes(&[0, 1, 2])));
        assert_eq!(given.edition, edition);
        drop(given);
        assert!(is_empty(&tokens) && tokens.release(&token).nodes.is_none());
    }

    #[test]
    fn a_lock_is_bare_until_each_node_has_the_vote_of_its_edition() {
        let (tokens, token) = tokens();
        let claim = asks(&tokens, &token, &[0, 1, 2]);
        let (edition, all) = (claim.edition, nodes(&[0, 1, 2]));
        assert!(tokens.is_cast(edition, 0, true) && tokens.is_cast(edition, 1, true));
        assert!(tokens.is_cast(edition, 2, false));
        assert!(tokens.bare(edition, all).is_none(), "not won yet");
        assert!(claim.won(LEASE));
        let (voted, left) = tokens.bare(edition, all).unwrap();
        assert!(voted == nodes(&[0, 1]) && left <= LEASE);
        assert_eq!(tokens.lacking(2), [token.number()]);
        tokens.renewed(edition, LEASE, all);
        assert!(tokens.bare(edition, all).is_none() && tokens.left(edition).is_some());
        assert!(tokens.lacking(2).is_empty());
        tokens.forgets(2);
        assert!(tokens.lacking(1).is_empty() && !tokens.lacking(2).is_empty());
        drop(tokens.release(&token));
        assert!(tokens.bare(edition, all).is_none() && tokens.left(edition).is_none());
        assert!(!tokens.is_cast(edition, 2, true), "to be taken back");
    }

    #[test]
    fn an_undo_counts_as_one_that_overtakes_a_release_only_while_that_runs() {
        let (tokens, token) = tokens();
        assert!(asks(&tokens, &token, &[0, 1]).won(LEASE));
        tokens.undoes(token.number());
        let release = tokens.release(&token);
        assert!(!release.is_undone());
        tokens.undoes(token.number());
        assert!(release.is_undone());
        drop(release);
        assert!(is_empty(&tokens) && !tokens.release(&token).is_undone());
    }

    /// C4: a node that has refused the last request may have a vote of an earlier one.
    #[test]
    fn a_node_that_has_refused_once_is_not_spared_the_undo() {
        let (tokens, token) = tokens();
        drop(asks(&tokens, &token, &[0, 1]));
        let again = asks(&tokens, &token, &[0, 1]);
        tokens.is_refused(again.edition, 0);
        tokens.is_refused(again.edition, 1);
        tokens.is_refused(again.edition, 1);
        assert_eq!(again.lost(), nodes(&[0]));
    }

    #[test]
    fn a_release_goes_to_every_node_that_may_have_queued_the_token() {
        let (tokens, token) = tokens();
        let claim = tokens.begin(&token);
        for node in [0, 2] {
            assert!(tokens.asks(claim.edition, node, true));
            tokens.is_refused(claim.edition, node);
        }
        assert_eq!(claim.lost(), nodes(&[]));
        assert_eq!(tokens.release(&token).nodes, Some(nodes(&[0, 2])));
        tokens.freed(token.number());
        assert_eq!(tokens.release(&token).nodes, None);
    }

    #[tokio::test(start_paused = true)]
    async fn votes_are_taken_back_again_when_the_lease_has_ended() {
        let (tokens, token) = tokens();
        assert!(tokens.begin(&token).won(LEASE));
        let edition = tokens.edition(&token);
        tokio::time::advance(LEASE / 2).await;
        tokens.renewed(edition, LEASE, nodes(&[]));
        tokens.confirmed(edition, 2);
        tokio::time::advance(LEASE * 3 / 4).await;
        assert_eq!(asks(&tokens, &token, &[1]).lost(), nodes(&[]), "renewed");
        tokio::time::advance(LEASE / 4).await;
        assert_eq!(asks(&tokens, &token, &[0]).lost(), nodes(&[0, 1, 2]));
        assert!(is_empty(&tokens));
    }

    #[test]
    fn a_renewal_that_a_release_has_overtaken_wins_nothing() {
        let (tokens, token) = tokens();
        assert!(tokens.begin(&token).won(LEASE));
        let edition = tokens.edition(&token);
        tokens.release(&token);
        tokens.renewed(edition, LEASE, nodes(&[]));
        assert!(!tokens.is_open(edition) && is_empty(&tokens));
    }

    #[test]
    fn locks_that_are_never_released_are_forgotten() {
        let tokens = Arc::<Tokens>::default();
        let client = ClientId::random("test");
        for sequence in 0..1000 {
            assert!(tokens.begin(&client.token(sequence)).won(LEASE));
        }
        let going_on = tokens.begin(&client.token(1000));
        let mut book = lock(&tokens.0);
        book.tidy(Instant::now());
        assert_eq!(book.all.len(), 1001);
        book.tidy(Instant::now() + LEASE);
        assert_eq!(book.all.len(), 1);
        drop(book);
        drop(going_on);
        assert!(is_empty(&tokens));
        // Its votes, if there are any, have an earlier edition.
        let forgotten = tokens.release(&client.token(1));
        assert_eq!((forgotten.edition.number, forgotten.nodes), (1001, None));
    }

    #[test]
    fn free_nodes_count_until_the_next_attempt_or_until_the_engine_is_told() {
        let (tokens, token) = tokens();
        let number = token.number();
        assert_eq!((tokens.freed(number), tokens.freed(number)), (1, 2));
        assert!(tokens.take_freed(number) && !tokens.take_freed(number));
        assert_eq!(tokens.freed(number), 1);
        let claim = tokens.begin(&token);
        assert!(!tokens.take_freed(number), "it asks already");
        drop(claim);
        assert!(is_empty(&tokens));
    }

    #[test]
    fn all_attempts_and_editions_of_a_waiter_have_the_ticket_of_the_first() {
        let (tokens, token) = tokens();
        let first = tokens.begin(&token);
        assert!(tokens.asks(first.edition, 0, true));
        let ticket = first.ticket;
        assert_eq!(first.lost(), nodes(&[0]));
        lock(&tokens.0).all.get_mut(&token.number()).unwrap().ticket = Some(ticket + 1);
        assert_eq!(tokens.begin(&token).ticket, ticket + 1);
    }
}
