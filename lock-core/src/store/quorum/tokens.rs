//! The state of each token of this process: its attempts, its renewals, and the messages of the nodes that the lock is free.
//!
//! | Of a token | Begins with | Ends with |
//! |---|---|---|
//! | attempts | each request for votes | its outcome, or its drop |
//! | won | an attempt with a majority, or a renewal | a release, or the end of the lease |
//! | sent on | each request for a vote | the last lost attempt, or a release |
//! | renewals | each renewal | its end, and the end of the healing after it |
//! | released | a release, or an undo, during a renewal | the end of the last renewal |
//! | undone | each undo that is sent | its answer |
//! | freed | the first "free" message of a node | the notification of the engine, the next attempt, or a release |
//!
//! A token may have two attempts at a time: one of the task that waits, and one of the refresh of its waiting line. A node has
//! one vote for both. So a lost attempt may remove votes only if no other attempt is running, and no other attempt has won a lease
//! that may not have ended. A vote that was healed after the release is removed by the healing.
//!
//! An undo that may still arrive although its connection was replaced (see [`Undone`]) would remove a vote of a later attempt. So
//! that attempt goes on with another edition of the token: for the nodes it is another token, and the undo does not affect it. It
//! gives up the votes and places of the former edition.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::nodes::{MAXIMUM_NODES, Nodes};
use super::sent_on::{SentOn, Undone};
use crate::base::rt;
use crate::base::sync::lock;
use crate::base::token::Token;

/// Minimum number of tokens before old ones are looked for.
const FEW: usize = 64;

/// Time after which an unused token is forgotten. A waiter asks again sooner, so a late undo of that token does no harm.
const UNUSED: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<Book>);

/// The known tokens.
#[derive(Debug, Default)]
struct Book {
    tokens: HashMap<u64, TokenState>,
    editions: Editions,
    /// Number of undos so far.
    undos: u64,
    /// The number of tokens at which old ones are looked for next.
    look_at: usize,
}

impl Book {
    /// Whether there are enough tokens for [`tidy`](Self::tidy).
    fn is_due(&self) -> bool {
        self.tokens.len() >= self.look_at.max(FEW)
    }

    /// Forgets old tokens. This is rare, so the cost for each token is small.
    fn tidy(&mut self, now: Instant) {
        self.tokens.retain(|_, state| {
            let may_follow = !state.undone.is_empty() && state.was_asked_for(now);
            state.is_used() || state.is_won(now) || may_follow
        });
        let tokens = &self.tokens;
        self.editions
            .forget(now, |token| !tokens.contains_key(&token.number()));
        self.look_at = self.tokens.len() * 2;
    }

    /// Changes the state of a known token, and forgets a state that has become empty.
    fn change(&mut self, number: u64, change: impl FnOnce(&mut TokenState)) {
        if let Entry::Occupied(mut entry) = self.tokens.entry(number) {
            change(entry.get_mut());
            if entry.get().is_over() {
                entry.remove();
            }
        }
    }
}

/// The state of one token.
#[derive(Debug, Default)]
struct TokenState {
    /// Number of running attempts.
    attempts: u32,
    /// The end of the lease that an attempt has won, or a renewal has prolonged, until the lock is released.
    won: Option<Instant>,
    /// Where its votes were requested.
    sent_on: SentOn,
    /// Where it may have a place in the queue.
    places: SentOn,
    /// The time of its first attempt, µs since 1970: its place in the queues. A later time in some of them would put them in
    /// different orders, and their offers would go to different waiters.
    ticket: Option<u64>,
    /// Number of running renewals.
    renewals: u32,
    /// Whether it was released since a running renewal began.
    released: bool,
    /// Number of nodes that have sent "free" since the last attempt.
    freed: usize,
    /// The undos that may still arrive.
    undone: Undone,
    /// When the last attempt began.
    asked: Option<Instant>,
}

impl TokenState {
    /// An attempt begins. Returns the ticket: the given one, of an earlier edition, if there is none yet.
    fn begins(&mut self, earlier: Option<u64>) -> u64 {
        self.attempts += 1;
        self.freed = 0;
        self.asked = Some(Instant::now());
        let now = || rt::unix_time().as_micros() as u64;
        let first = self.ticket.or(earlier).unwrap_or_else(now);
        *self.ticket.insert(first)
    }

    fn is_over(&self) -> bool {
        let is_done = self.won.is_none() && self.undone.is_empty();
        is_done && self.is_asked_nowhere() && !self.is_used()
    }

    /// Whether no request of it is known that may have left a vote or a place.
    fn is_asked_nowhere(&self) -> bool {
        self.sent_on.nodes().is_empty() && self.places.nodes().is_empty()
    }

    /// Where it may have a vote or a place.
    fn take_asked(&mut self) -> SentOn {
        let (mut asked, places) = (
            std::mem::take(&mut self.sent_on),
            std::mem::take(&mut self.places),
        );
        asked.add(&places, places.nodes());
        asked
    }

    fn is_won(&self, now: Instant) -> bool {
        self.won.is_some_and(|until| now < until)
    }

    fn is_claimed(&self) -> bool {
        self.attempts > 0 || self.is_won(Instant::now())
    }

    fn won(&mut self, lease: Duration) {
        // An end that the clock cannot represent is later than the end of any process.
        let until = Instant::now().checked_add(lease);
        self.won = until.max(self.won);
    }

    fn is_used(&self) -> bool {
        self.attempts > 0 || self.renewals > 0 || self.freed > 0
    }

    fn was_asked_for(&self, now: Instant) -> bool {
        self.asked.is_some_and(|asked| now < asked + UNUSED)
    }
}

/// The current editions of acquisitions, except first editions.
#[derive(Debug, Default)]
struct Editions(HashMap<u64, Edition>);

#[derive(Debug)]
struct Edition {
    number: u16,
    token: Token,
    used: Instant,
}

impl Editions {
    /// The token of an acquisition, of its current edition.
    fn current(&mut self, token: &Token) -> Token {
        if self.0.is_empty() {
            return *token;
        }
        match self.0.get_mut(&token.sequence()) {
            Some(edition) => {
                edition.used = Instant::now();
                edition.token
            }
            None => *token,
        }
    }

    /// The token of the next edition.
    fn next(&mut self, token: &Token) -> Token {
        let former = self.0.get(&token.sequence());
        let number = former.map_or(0, |former| former.number).wrapping_add(1);
        let (token, used) = (token.edition(number), Instant::now());
        let edition = Edition {
            number,
            token,
            used,
        };
        self.0.insert(token.sequence(), edition);
        token
    }

    /// Forgets the editions of tokens that are over and were not used recently.
    fn forget(&mut self, now: Instant, is_over: impl Fn(&Token) -> bool) {
        self.0
            .retain(|_, Edition { token, used, .. }| now < *used + UNUSED || !is_over(token));
    }
}

impl Tokens {
    /// The token of an acquisition on the nodes.
    pub(super) fn current(&self, token: &Token) -> Token {
        lock(&self.0).editions.current(token)
    }

    /// An attempt begins. `connection` is the current connection to a node, if any.
    pub(super) fn begin(
        self: &Arc<Self>,
        token: &Token,
        nodes: usize,
        connection: impl Fn(usize) -> Option<u64>,
    ) -> VoteClaim {
        let mut book = lock(&self.0);
        if book.is_due() {
            book.tidy(Instant::now());
        }
        let (mut token, mut former) = (book.editions.current(token), None);
        let known = book.tokens.get(&token.number());
        let ticket = known.and_then(|state| state.ticket);
        if let Some(state) = known
            && !state.is_claimed()
            && !state.undone.is_empty()
        {
            let follows = |node, on| state.undone.may_follow(node, on);
            if (0..nodes).any(|node| connection(node).is_some_and(|on| follows(node, on))) {
                former = Some(token);
                token = book.editions.next(&token);
            }
        }
        let state = book.tokens.entry(token.number()).or_default();
        let ticket = state.begins(ticket);
        drop(book);
        VoteClaim {
            tokens: Arc::clone(self),
            token,
            ticket,
            former,
        }
    }

    /// The token is about to be released. Returns where it was asked for; `None` if that is not known.
    pub(super) fn release(&self, token: &Token) -> Option<SentOn> {
        let mut sent_on = None;
        lock(&self.0).change(token.number(), |state| {
            // A state that knows of no request may be younger than the first one.
            sent_on = (!state.is_asked_nowhere()).then(|| state.take_asked());
            (state.won, state.freed) = (None, 0);
            state.released = state.renewals > 0;
        });
        sent_on
    }

    /// Votes for the token are about to be removed.
    pub(super) fn undo(&self, token: &Token) {
        lock(&self.0).change(token.number(), |state| {
            state.released = state.renewals > 0;
        });
    }

    /// Whether an attempt for the token is running or has won.
    pub(super) fn is_claimed(&self, token: &Token) -> bool {
        let book = lock(&self.0);
        let state = book.tokens.get(&token.number());
        state.is_some_and(TokenState::is_claimed)
    }

    /// Sends an undo to a node, before the next attempt can begin. Returns its number; `None` if an attempt is running or has
    /// won. `send` returns the connection that the undo went out on, `NONE` if that is not known.
    pub(super) fn send_undo<T>(
        &self,
        token: &Token,
        node: usize,
        send: impl FnOnce() -> (u64, T),
    ) -> Option<(u64, T)> {
        let mut book = lock(&self.0);
        book.undos += 1;
        let number = book.undos;
        let state = book.tokens.entry(token.number()).or_default();
        if state.is_claimed() {
            return None;
        }
        let (on, outcome) = send();
        state.undone.sent(node, on, number);
        Some((number, outcome))
    }

    /// The undo was answered, or certainly not carried out.
    pub(super) fn undo_answered(&self, token: &Token, node: usize, number: u64) {
        lock(&self.0).change(token.number(), |state| state.undone.answered(node, number));
    }

    /// A node has renewed a vote on this connection. Returns whether it counts. It may be of an attempt that lost, and whose undo
    /// was lost, too: the release has to remove it.
    pub(super) fn renewed_on(&self, token: &Token, node: usize, connection: u64) -> bool {
        let mut book = lock(&self.0);
        book.tokens.get_mut(&token.number()).is_none_or(|state| {
            if state.won.is_some() {
                let any = SentOn::unknown(MAXIMUM_NODES);
                state.sent_on.add(&any, Nodes::default().with(node));
            }
            !state.undone.may_follow(node, connection)
        })
    }

    /// A vote for the token is about to be requested on this connection. Returns false if an undo may arrive behind it.
    pub(super) fn is_sent(&self, token: &Token, node: usize, connection: u64) -> bool {
        let mut book = lock(&self.0);
        let state = book.tokens.entry(token.number()).or_default();
        let may_follow = state.undone.may_follow(node, connection);
        if !may_follow {
            state.sent_on.sent(node, connection);
        }
        !may_follow
    }

    /// A renewal of these tokens begins. They may be healed, so their release must be noticed.
    pub(super) fn renew<'a>(
        self: &Arc<Self>,
        tokens: impl Iterator<Item = &'a Token>,
    ) -> RunningRenewal {
        let numbers: Vec<u64> = tokens.map(Token::number).collect();
        let mut book = lock(&self.0);
        for number in &numbers {
            book.tokens.entry(*number).or_default().renewals += 1;
        }
        drop(book);
        RunningRenewal {
            tokens: Arc::clone(self),
            numbers,
        }
    }

    /// A renewal of the token was confirmed by a majority.
    pub(super) fn renewed(&self, token: &Token, lease: Duration) {
        lock(&self.0).change(token.number(), |state| {
            if !state.released {
                state.won(lease);
            }
        });
    }

    /// Whether a token was released since its renewal began.
    pub(super) fn was_released(&self, token: &Token) -> bool {
        let book = lock(&self.0);
        let state = book.tokens.get(&token.number());
        state.is_some_and(|state| state.released)
    }

    /// A node says that the lock is free. Returns the number of nodes that have said so since the last attempt.
    pub(super) fn freed(&self, number: u64) -> usize {
        let mut book = lock(&self.0);
        let state = book.tokens.entry(number).or_default();
        state.freed += 1;
        state.freed
    }

    /// The engine is about to be notified that the lock is free. Returns false if it was notified, or has sent a request, before.
    pub(super) fn take_freed(&self, number: u64) -> bool {
        let mut freed = 0;
        lock(&self.0).change(number, |state| freed = std::mem::take(&mut state.freed));
        freed > 0
    }
}

/// A running attempt. A dropped attempt has neither won nor lost: the release of its token removes what it left.
#[derive(Debug)]
pub(super) struct VoteClaim {
    tokens: Arc<Tokens>,
    /// The token that the nodes are asked for.
    pub(super) token: Token,
    /// Its place in the queues.
    pub(super) ticket: u64,
    /// The token of the former edition, which is given up.
    pub(super) former: Option<Token>,
}

impl VoteClaim {
    /// A majority has voted.
    pub(super) fn won(self, lease: Duration) {
        if let Some(state) = lock(&self.tokens.0).tokens.get_mut(&self.token.number()) {
            state.won(lease);
        }
    }

    /// These nodes have refused, and may have queued it if it waits. Returns where the votes of all attempts have to be removed
    /// now; `None` if another attempt is running or has won.
    pub(super) fn lost(self, refused: Nodes, waits: bool) -> Option<SentOn> {
        let mut book = lock(&self.tokens.0);
        let state = book.tokens.get_mut(&self.token.number())?;
        if waits {
            state.places.add(&state.sent_on, refused);
        }
        if state.is_won(Instant::now()) || state.attempts > 1 {
            return None;
        }
        state.won = None;
        let mut left = std::mem::take(&mut state.sent_on);
        left.forget(refused);
        Some(left)
    }
}

impl Drop for VoteClaim {
    fn drop(&mut self) {
        lock(&self.tokens.0).change(self.token.number(), |state| state.attempts -= 1);
    }
}

/// A running renewal of some tokens.
pub(super) struct RunningRenewal {
    tokens: Arc<Tokens>,
    numbers: Vec<u64>,
}

impl Drop for RunningRenewal {
    fn drop(&mut self) {
        let mut book = lock(&self.tokens.0);
        for number in &self.numbers {
            book.change(*number, |state| {
                state.renewals -= 1;
                state.released &= state.renewals > 0;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::token::ClientId;

    const LEASE: Duration = Duration::from_secs(60);
    const CONNECTION: u64 = 4;

    fn nodes(nodes: &[usize]) -> Nodes {
        let none = Nodes::default();
        nodes.iter().fold(none, |all, node| all.with(*node))
    }

    fn begin(tokens: &Arc<Tokens>, token: &Token) -> VoteClaim {
        tokens.begin(token, 3, |_| None)
    }

    /// An attempt that asks these nodes.
    fn asks(tokens: &Arc<Tokens>, token: &Token, asked: &[usize]) -> VoteClaim {
        let claim = begin(tokens, token);
        for node in asked {
            assert!(tokens.is_sent(token, *node, CONNECTION));
        }
        claim
    }

    /// The nodes on which votes have to be removed, after these have refused.
    fn lost(claim: VoteClaim, refused: &[usize]) -> Option<Nodes> {
        let sent_on = claim.lost(nodes(refused), false)?;
        for node in (0..3).filter(|node| sent_on.nodes().has(*node)) {
            assert_eq!(sent_on.on(node), CONNECTION);
        }
        Some(sent_on.nodes())
    }

    #[test]
    fn the_last_attempt_to_lose_takes_back_what_all_have_left() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random("test"));
        let (one, other) = (client.token(1), client.token(2));
        let first = asks(&tokens, &one, &[1]);
        let second = asks(&tokens, &one, &[0, 2]);
        assert!(tokens.is_claimed(&one) && !tokens.is_claimed(&other));
        assert_eq!(lost(first, &[]), None);
        assert!(tokens.is_claimed(&one), "the second goes on");
        assert_eq!(lost(second, &[2]), Some(nodes(&[0, 1])));
        assert!(lock(&tokens.0).tokens.is_empty());
        // Both attempts are dropped: the next one takes over.
        drop((asks(&tokens, &one, &[1]), asks(&tokens, &one, &[2])));
        assert!(!tokens.is_claimed(&one));
        assert_eq!(lost(asks(&tokens, &one, &[0]), &[0]), Some(nodes(&[1, 2])));
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[test]
    fn a_release_goes_to_every_node_that_has_queued_the_token() {
        let (tokens, token) = (Arc::default(), ClientId::random("test").token(1));
        let left = asks(&tokens, &token, &[0, 1, 2]).lost(nodes(&[0, 2]), true);
        assert_eq!(left.unwrap().nodes(), nodes(&[1]));
        tokens.freed(token.number());
        assert_eq!(tokens.release(&token).unwrap().nodes(), nodes(&[0, 2]));
        tokens.freed(token.number());
        assert_eq!(tokens.release(&token), None);
    }

    #[test]
    fn an_attempt_that_loses_beside_one_that_has_won_takes_nothing_back() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random("test"));
        let token = client.token(1);
        let (first, second) = (begin(&tokens, &token), begin(&tokens, &token));
        second.won(LEASE);
        // It votes in several rounds.
        for round in 0..3 {
            assert_eq!(lost(asks(&tokens, &token, &[round]), &[]), None);
        }
        assert_eq!(lost(first, &[]), None);
        assert!(tokens.is_claimed(&token));
        let released = tokens.release(&token).unwrap();
        assert_eq!(released.nodes(), nodes(&[0, 1, 2]));
        assert_eq!(tokens.release(&token), None);
        assert!(lock(&tokens.0).tokens.is_empty());
        // An attempt goes on behind a release.
        let late = asks(&tokens, &token, &[1]);
        begin(&tokens, &token).won(LEASE);
        tokens.release(&token);
        assert!(tokens.is_sent(&token, 2, CONNECTION));
        assert_eq!(lost(late, &[]), Some(nodes(&[2])));
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn votes_are_taken_back_again_when_the_lease_has_ended() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random("test"));
        let token = client.token(1);
        begin(&tokens, &token).won(LEASE);
        tokio::time::advance(LEASE / 2).await;
        let renewal = tokens.renew([&token].into_iter());
        tokens.renewed(&token, LEASE);
        drop(renewal);
        tokio::time::advance(LEASE * 3 / 4).await;
        assert_eq!(lost(asks(&tokens, &token, &[1]), &[]), None, "renewed");
        tokio::time::advance(LEASE / 4).await;
        assert!(!tokens.is_claimed(&token));
        let again = asks(&tokens, &token, &[2]);
        assert_eq!(lost(again, &[]), Some(nodes(&[1, 2])));
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[test]
    fn a_renewal_that_a_release_has_overtaken_wins_nothing() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random("test"));
        let token = client.token(1);
        let renewal = tokens.renew([&token].into_iter());
        tokens.release(&token);
        tokens.renewed(&token, LEASE);
        assert!(!tokens.is_claimed(&token));
        drop(renewal);
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_undo_that_may_still_arrive_gives_the_next_attempt_another_token() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random("test"));
        let token = client.token(7);
        let undo = |token: &Token, on| tokens.send_undo(token, 1, || (on, ())).map(|(n, ())| n);
        let first = begin(&tokens, &token);
        assert_eq!(undo(&token, 4), None, "an attempt is running");
        assert!(tokens.is_sent(&token, 1, CONNECTION));
        assert_eq!(lost(first, &[]), Some(nodes(&[1])));
        let number = undo(&token, 4).unwrap();
        // On the same connection, and on none, nothing arrives in the wrong order.
        for connection in [None, Some(4)] {
            let claim = tokens.begin(&token, 3, |_| connection);
            assert!(claim.token == token && claim.former.is_none());
        }
        assert!(!tokens.is_sent(&token, 1, 5) && tokens.is_sent(&token, 0, 5));
        let claim = tokens.begin(&token, 3, |_| Some(5));
        assert!(claim.former == Some(token) && claim.token == token.edition(1));
        assert!(tokens.is_sent(&claim.token, 1, 5));
        claim.won(LEASE);
        tokens.undo_answered(&token, 1, number);
        // The edition is known as long as the lease lasts, or was used a short time ago.
        tokio::time::advance(LEASE / 2).await;
        lock(&tokens.0).tidy(Instant::now());
        assert!(tokens.current(&token) == token.edition(1));
        tokens.release(&tokens.current(&token));
        assert!(tokens.current(&token) == token.edition(1));
        tokio::time::advance(UNUSED).await;
        lock(&tokens.0).tidy(Instant::now());
        assert!(tokens.current(&token) == token);
    }

    #[test]
    fn locks_that_are_never_released_are_forgotten() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random("test"));
        for sequence in 0..1000 {
            begin(&tokens, &client.token(sequence)).won(LEASE);
        }
        let going_on = begin(&tokens, &client.token(1000));
        let mut book = lock(&tokens.0);
        book.tidy(Instant::now());
        assert_eq!(book.tokens.len(), 1001);
        book.tidy(Instant::now() + LEASE);
        assert_eq!(book.tokens.len(), 1);
        drop(book);
        drop(going_on);
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[test]
    fn a_release_during_a_renewal_is_noticed_until_the_renewal_ends() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random("test"));
        let token = client.token(1);
        tokens.release(&token);
        assert!(!tokens.was_released(&token), "no node would heal it");
        let (first, second) = (
            tokens.renew([&token].into_iter()),
            tokens.renew([&token].into_iter()),
        );
        assert!(!tokens.was_released(&token));
        tokens.release(&token);
        drop(first);
        assert!(tokens.was_released(&token), "the second may heal it");
        drop(second);
        assert!(lock(&tokens.0).tokens.is_empty());
        let third = tokens.renew([&token].into_iter());
        tokens.undo(&token);
        assert!(tokens.was_released(&token));
        drop(third);
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[test]
    fn free_nodes_count_until_the_next_attempt_or_until_the_engine_is_told() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random("test"));
        assert_eq!((tokens.freed(1), tokens.freed(1)), (1, 2));
        assert!(tokens.take_freed(1) && !tokens.take_freed(1));
        assert_eq!(tokens.freed(1), 1);
        let claim = begin(&tokens, &client.token(1));
        assert!(!tokens.take_freed(1), "it asks already");
        drop(claim);
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[test]
    fn all_attempts_and_editions_of_a_token_have_the_ticket_of_the_first() {
        let mut state = TokenState::default();
        assert_eq!(state.begins(Some(7)), 7);
        assert_eq!(state.begins(None), 7);
        assert_eq!(state.begins(Some(9)), 7);
    }
}
