//! What this process knows of each of its tokens: its attempts, its renewals, and the nodes that have told it of a free lock.
//!
//! | Of a token | Begins with | Ends with |
//! |---|---|---|
//! | attempts | each request for votes | its outcome, or its drop |
//! | won | an attempt with a majority | a release, or attempts that lose although no guard knows of the win |
//! | left | an attempt that loses beside another one: the nodes that may have its vote | the last attempt that loses, or a release |
//! | renewals | each renewal | its end, and that of the healing behind it |
//! | released | a release, or an undo, during a renewal | the end of the last renewal |
//! | freed | the first node that says that the lock is free | the question to the engine, the next attempt, or a release |
//!
//! A token may have two attempts at a time: one of the task that waits, and one of the refresh of its waiting line. A node has
//! one vote for both. So an attempt that has lost may take votes back only if no other attempt is running or has won. A vote
//! that was healed behind a release is taken back by the one that healed it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::nodes::Nodes;
use crate::sync::lock;
use crate::token::Token;

/// Maximum time for which a won lock is remembered. A lock that is kept beyond its guard is never released.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Minimum number of tokens before old ones are looked for.
const FEW: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    tokens: HashMap<u64, TokenState>,
    /// The number of tokens at which old ones are looked for next.
    look_at: usize,
}

/// The state of one token.
#[derive(Debug, Default)]
struct TokenState {
    /// Number of running attempts.
    attempts: u32,
    /// Set when an attempt has won, until the lock is released.
    won: Option<Won>,
    /// Nodes on which lost attempts may have left a vote, because another attempt was running or had won.
    left: Nodes,
    /// Number of running renewals.
    renewals: u32,
    /// Whether it was released since a running renewal began.
    released: bool,
    /// Number of nodes that have sent "free" since the last attempt.
    freed: usize,
}

#[derive(Debug, Clone, Copy)]
struct Won {
    at: Instant,
    /// Attempts that may still lose without a change: those that were running, and one that began before its caller knew of the
    /// win. A caller that asks more often does not have the lock, for example because the grant came too late.
    spares: u32,
}

impl TokenState {
    fn is_claimed(&self) -> bool {
        self.attempts > 0 || self.won.is_some()
    }

    fn is_used(&self) -> bool {
        self.attempts > 0 || self.renewals > 0 || self.freed > 0
    }
}

impl Book {
    /// Forgets old tokens. This is rare, so the cost for each token is small.
    fn tidy(&mut self, now: Instant) {
        self.tokens.retain(|_, state| {
            let recent = |won: Won| now.saturating_duration_since(won.at) < REMEMBERED;
            state.is_used() || state.won.is_some_and(recent)
        });
        self.look_at = self.tokens.len() * 2;
    }

    /// Changes the state of a token that is known, and forgets it if nothing is left to know.
    fn change(&mut self, sequence: u64, change: impl FnOnce(&mut TokenState)) {
        if let Entry::Occupied(mut entry) = self.tokens.entry(sequence) {
            let state = entry.get_mut();
            change(state);
            if !state.is_used() && state.won.is_none() && state.left.is_empty() {
                entry.remove();
            }
        }
    }
}

impl Tokens {
    pub(super) fn begin(self: &Arc<Self>, token: &Token) -> Claim {
        let sequence = sequence_of(token);
        let mut book = lock(&self.0);
        if book.tokens.len() >= book.look_at.max(FEW) {
            book.tidy(Instant::now());
        }
        let state = book.tokens.entry(sequence).or_default();
        state.attempts += 1;
        state.freed = 0;
        drop(book);
        Claim {
            tokens: Arc::clone(self),
            sequence,
        }
    }

    /// The token is about to be released, on all nodes.
    pub(super) fn release(&self, token: &Token) {
        lock(&self.0).change(sequence_of(token), |state| {
            (state.won, state.left, state.freed) = (None, Nodes::default(), 0);
            state.released = state.renewals > 0;
        });
    }

    /// Votes for the token are about to be taken back.
    pub(super) fn undo(&self, token: &Token) {
        lock(&self.0).change(sequence_of(token), |state| {
            state.released = state.renewals > 0;
        });
    }

    /// Runs `act` before the next attempt can begin. `None` if an attempt is running or has won.
    pub(super) fn unless_claimed<T>(&self, token: &Token, act: impl FnOnce() -> T) -> Option<T> {
        let book = lock(&self.0);
        let state = book.tokens.get(&sequence_of(token));
        (!state.is_some_and(TokenState::is_claimed)).then(act)
    }

    /// A renewal of these tokens begins. They may be healed, so their release must be noticed.
    pub(super) fn renew<'a>(
        self: &Arc<Self>,
        tokens: impl Iterator<Item = &'a Token>,
    ) -> RunningRenewal {
        let sequences: Vec<u64> = tokens.map(sequence_of).collect();
        let mut book = lock(&self.0);
        for sequence in &sequences {
            book.tokens.entry(*sequence).or_default().renewals += 1;
        }
        drop(book);
        RunningRenewal {
            tokens: Arc::clone(self),
            sequences,
        }
    }

    /// Whether a token was released since its renewal began.
    pub(super) fn was_released(&self, token: &Token) -> bool {
        let book = lock(&self.0);
        let state = book.tokens.get(&sequence_of(token));
        state.is_some_and(|state| state.released)
    }

    /// A node says that the lock is free. Returns the number of nodes that have said so since the last attempt.
    pub(super) fn freed(&self, sequence: u64) -> usize {
        let mut book = lock(&self.0);
        let state = book.tokens.entry(sequence).or_default();
        state.freed += 1;
        state.freed
    }

    /// The engine is about to be told that the lock is free. Returns false if it was told, or has asked, before.
    pub(super) fn take_freed(&self, sequence: u64) -> bool {
        let mut freed = 0;
        lock(&self.0).change(sequence, |state| freed = std::mem::take(&mut state.freed));
        freed > 0
    }
}

/// A running attempt. A dropped attempt has neither won nor lost: the release of its token takes back what it left.
#[derive(Debug)]
pub(super) struct Claim {
    tokens: Arc<Tokens>,
    sequence: u64,
}

impl Claim {
    pub(super) fn won(self) {
        if let Some(state) = lock(&self.tokens.0).tokens.get_mut(&self.sequence) {
            state.won = Some(Won {
                at: Instant::now(),
                spares: state.attempts,
            });
        }
    }

    /// The attempt may have left votes on these nodes. Returns the nodes on which the votes of all attempts have to be taken
    /// back now; `None` if another attempt is running or has won.
    pub(super) fn lost(self, left: Nodes) -> Option<Nodes> {
        let mut book = lock(&self.tokens.0);
        let state = book.tokens.get_mut(&self.sequence)?;
        state.left = state.left.and(left);
        let spared = state.won.is_some_and(|won| won.spares > 0);
        if let Some(won) = &mut state.won {
            won.spares = won.spares.saturating_sub(1);
        }
        if spared || state.attempts > 1 {
            return None;
        }
        state.won = None;
        Some(std::mem::take(&mut state.left))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.tokens.0).change(self.sequence, |state| state.attempts -= 1);
    }
}

/// A running renewal of some tokens.
pub(super) struct RunningRenewal {
    tokens: Arc<Tokens>,
    sequences: Vec<u64>,
}

impl Drop for RunningRenewal {
    fn drop(&mut self) {
        let mut book = lock(&self.tokens.0);
        for sequence in &self.sequences {
            book.change(*sequence, |state| {
                state.renewals -= 1;
                state.released &= state.renewals > 0;
            });
        }
    }
}

fn sequence_of(token: &Token) -> u64 {
    token.sequence().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::ClientId;

    fn nodes(nodes: &[usize]) -> Nodes {
        let none = Nodes::default();
        nodes.iter().fold(none, |all, node| all.with(*node))
    }

    fn is_claimed(tokens: &Tokens, token: &Token) -> bool {
        tokens.unless_claimed(token, || ()).is_none()
    }

    #[test]
    fn the_last_attempt_to_lose_takes_back_what_all_have_left() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random());
        let (one, other) = (client.token(1), client.token(2));
        let first = tokens.begin(&one);
        let second = tokens.begin(&one);
        assert!(is_claimed(&tokens, &one) && !is_claimed(&tokens, &other));
        assert_eq!(first.lost(nodes(&[1])), None);
        assert!(is_claimed(&tokens, &one), "the second goes on");
        assert_eq!(second.lost(nodes(&[0])), Some(nodes(&[0, 1])));
        assert!(lock(&tokens.0).tokens.is_empty());
        // The second attempt is dropped: the next one takes over.
        let first = tokens.begin(&one);
        let second = tokens.begin(&one);
        assert_eq!(first.lost(nodes(&[1])), None);
        drop(second);
        assert!(!is_claimed(&tokens, &one));
        assert_eq!(tokens.begin(&one).lost(nodes(&[])), Some(nodes(&[1])));
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[test]
    fn who_loses_beside_one_that_has_won_takes_nothing_back() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random());
        let token = client.token(1);
        let (first, second) = (tokens.begin(&token), tokens.begin(&token));
        second.won();
        assert_eq!(first.lost(nodes(&[0])), None);
        // This attempt began before its caller knew of the win.
        assert_eq!(tokens.begin(&token).lost(nodes(&[1])), None);
        assert!(is_claimed(&tokens, &token));
        tokens.release(&token);
        tokens.release(&token);
        assert!(lock(&tokens.0).tokens.is_empty());
        // An attempt goes on behind a release.
        let late = tokens.begin(&token);
        tokens.begin(&token).won();
        tokens.release(&token);
        assert_eq!(late.lost(nodes(&[2])), Some(nodes(&[2])));
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[test]
    fn a_lock_that_was_won_in_vain_does_not_keep_votes_for_ever() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random());
        let token = client.token(1);
        tokens.begin(&token).won();
        assert_eq!(tokens.begin(&token).lost(nodes(&[1])), None);
        assert_eq!(tokens.begin(&token).lost(nodes(&[2])), Some(nodes(&[1, 2])));
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[test]
    fn locks_that_are_never_released_are_forgotten() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random());
        for sequence in 0..1000 {
            tokens.begin(&client.token(sequence)).won();
        }
        let going_on = tokens.begin(&client.token(1000));
        let mut book = lock(&tokens.0);
        book.tidy(Instant::now());
        assert_eq!(book.tokens.len(), 1001);
        book.tidy(Instant::now() + REMEMBERED);
        assert_eq!(book.tokens.len(), 1);
        drop(book);
        drop(going_on);
        assert!(lock(&tokens.0).tokens.is_empty());
    }

    #[test]
    fn a_release_during_a_renewal_is_noticed_until_the_renewal_ends() {
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random());
        let token = client.token(1);
        tokens.release(&token);
        assert!(!tokens.was_released(&token), "nobody would heal it");
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
        let (tokens, client) = (Arc::<Tokens>::default(), ClientId::random());
        assert_eq!((tokens.freed(1), tokens.freed(1)), (1, 2));
        assert!(tokens.take_freed(1) && !tokens.take_freed(1));
        assert_eq!(tokens.freed(1), 1);
        let claim = tokens.begin(&client.token(1));
        assert!(!tokens.take_freed(1), "it asks already");
        drop(claim);
        assert!(lock(&tokens.0).tokens.is_empty());
    }
}
