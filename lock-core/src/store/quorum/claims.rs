//! The tokens with running attempts, and the tokens that have won their lock.
//!
//! A token may have two attempts at a time: one of the task that waits, and one of the refresh of its waiting line. A node has
//! one vote for both. So an attempt that has lost may take votes back only if no other attempt is running or has won.

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
pub(super) struct Claims(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    tokens: HashMap<u64, ClaimState>,
    /// The number of tokens at which old ones are looked for next.
    look_at: usize,
}

/// The state of one token.
#[derive(Debug, Default)]
struct ClaimState {
    /// Number of running attempts.
    attempts: u32,
    /// Set when an attempt has won, until the lock is released.
    won: Option<Won>,
    /// Nodes on which lost attempts may have left a vote, because another attempt was running or had won.
    left: Nodes,
}

#[derive(Debug, Clone, Copy)]
struct Won {
    at: Instant,
    /// Attempts that may still lose without a change: those that were running, and one that began before its caller knew of the
    /// win. A caller that asks more often does not have the lock, for example because the grant came too late.
    spares: u32,
}

impl ClaimState {
    fn is_claimed(&self) -> bool {
        self.attempts > 0 || self.won.is_some()
    }
}

impl Book {
    /// Forgets old tokens. This is rare, so the cost for each token is small.
    fn tidy(&mut self, now: Instant) {
        self.tokens.retain(|_, state| {
            let recent = |won: Won| now.saturating_duration_since(won.at) < REMEMBERED;
            state.attempts > 0 || state.won.is_some_and(recent)
        });
        self.look_at = self.tokens.len() * 2;
    }
}

/// A running attempt. A dropped attempt has neither won nor lost: the release of its token takes back what it left.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Arc<Claims>,
    sequence: u64,
}

impl Claims {
    pub(super) fn begin(self: &Arc<Self>, token: &Token) -> Claim {
        let sequence = sequence_of(token);
        let mut book = lock(&self.0);
        if book.tokens.len() >= book.look_at.max(FEW) {
            book.tidy(Instant::now());
        }
        book.tokens.entry(sequence).or_default().attempts += 1;
        drop(book);
        Claim {
            claims: Arc::clone(self),
            sequence,
        }
    }

    /// The token is about to be released, on all nodes.
    pub(super) fn release(&self, token: &Token) {
        if let Entry::Occupied(mut entry) = lock(&self.0).tokens.entry(sequence_of(token)) {
            let state = entry.get_mut();
            (state.won, state.left) = (None, Nodes::default());
            if state.attempts == 0 {
                entry.remove();
            }
        }
    }

    /// Runs `act` before the next attempt can begin. `None` if an attempt is running or has won.
    pub(super) fn unless_claimed<T>(&self, token: &Token, act: impl FnOnce() -> T) -> Option<T> {
        let book = lock(&self.0);
        let state = book.tokens.get(&sequence_of(token));
        (!state.is_some_and(ClaimState::is_claimed)).then(act)
    }
}

impl Claim {
    pub(super) fn won(self) {
        if let Some(state) = lock(&self.claims.0).tokens.get_mut(&self.sequence) {
            state.won = Some(Won {
                at: Instant::now(),
                spares: state.attempts,
            });
        }
    }

    /// The attempt may have left votes on these nodes. Returns the nodes on which the votes of all attempts have to be taken
    /// back now; `None` if another attempt is running or has won.
    pub(super) fn lost(self, left: Nodes) -> Option<Nodes> {
        let mut book = lock(&self.claims.0);
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
        if let Entry::Occupied(mut entry) = lock(&self.claims.0).tokens.entry(self.sequence) {
            let state = entry.get_mut();
            state.attempts -= 1;
            if !state.is_claimed() && state.left.is_empty() {
                entry.remove();
            }
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

    fn is_claimed(claims: &Claims, token: &Token) -> bool {
        claims.unless_claimed(token, || ()).is_none()
    }

    #[test]
    fn the_last_attempt_to_lose_takes_back_what_all_have_left() {
        let (claims, client) = (Arc::<Claims>::default(), ClientId::random());
        let (one, other) = (client.token(1), client.token(2));
        let first = claims.begin(&one);
        let second = claims.begin(&one);
        assert!(is_claimed(&claims, &one) && !is_claimed(&claims, &other));
        assert_eq!(first.lost(nodes(&[1])), None);
        assert!(is_claimed(&claims, &one), "the second goes on");
        assert_eq!(second.lost(nodes(&[0])), Some(nodes(&[0, 1])));
        assert!(lock(&claims.0).tokens.is_empty());
        // The second attempt is dropped: the next one takes over.
        let first = claims.begin(&one);
        let second = claims.begin(&one);
        assert_eq!(first.lost(nodes(&[1])), None);
        drop(second);
        assert!(!is_claimed(&claims, &one));
        assert_eq!(claims.begin(&one).lost(nodes(&[])), Some(nodes(&[1])));
        assert!(lock(&claims.0).tokens.is_empty());
    }

    #[test]
    fn who_loses_beside_one_that_has_won_takes_nothing_back() {
        let (claims, client) = (Arc::<Claims>::default(), ClientId::random());
        let token = client.token(1);
        let (first, second) = (claims.begin(&token), claims.begin(&token));
        second.won();
        assert_eq!(first.lost(nodes(&[0])), None);
        // This attempt began before its caller knew of the win.
        assert_eq!(claims.begin(&token).lost(nodes(&[1])), None);
        assert!(is_claimed(&claims, &token));
        claims.release(&token);
        claims.release(&token);
        assert!(lock(&claims.0).tokens.is_empty());
        // An attempt goes on behind a release.
        let late = claims.begin(&token);
        claims.begin(&token).won();
        claims.release(&token);
        assert_eq!(late.lost(nodes(&[2])), Some(nodes(&[2])));
        assert!(lock(&claims.0).tokens.is_empty());
    }

    #[test]
    fn a_lock_that_was_won_in_vain_does_not_keep_votes_for_ever() {
        let (claims, client) = (Arc::<Claims>::default(), ClientId::random());
        let token = client.token(1);
        claims.begin(&token).won();
        assert_eq!(claims.begin(&token).lost(nodes(&[1])), None);
        assert_eq!(claims.begin(&token).lost(nodes(&[2])), Some(nodes(&[1, 2])));
        assert!(lock(&claims.0).tokens.is_empty());
    }

    #[test]
    fn locks_that_are_never_released_are_forgotten() {
        let (claims, client) = (Arc::<Claims>::default(), ClientId::random());
        for sequence in 0..1000 {
            claims.begin(&client.token(sequence)).won();
        }
        let going_on = claims.begin(&client.token(1000));
        let mut book = lock(&claims.0);
        book.tidy(Instant::now());
        assert_eq!(book.tokens.len(), 1001);
        book.tidy(Instant::now() + REMEMBERED);
        assert_eq!(book.tokens.len(), 1);
        drop(book);
        drop(going_on);
        assert!(lock(&claims.0).tokens.is_empty());
    }
}
