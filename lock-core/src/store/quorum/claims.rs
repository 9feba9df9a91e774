//! Which tokens are being asked for, and which have their lock.
//!
//! A token may be asked for twice at a time, by the task that waits and by a refresh of its line. A node has one vote for
//! it whoever asked, so an attempt that has lost may only take the votes back where no other one goes on with them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::sync::lock;
use crate::token::Token;

/// So long it is remembered that a token has its lock, at most. Who waits is asked for no more, so another attempt can only
/// have begun before its caller knew; and a lock that is kept beyond its guard is never released.
const REMEMBERED: Duration = Duration::from_secs(60);

/// With so many tokens it is looked which ones have been remembered for long enough.
const FEW: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    tokens: HashMap<u64, State>,
    /// With how many tokens the next look is due.
    look_at: usize,
}

/// What is known about one token.
#[derive(Debug, Default)]
struct State {
    /// How many attempts go on.
    attempts: u32,
    /// When one of them was won, where the lock has not been released since.
    won: Option<Instant>,
}

impl Book {
    /// Forgets what has been remembered for long enough. Seldom done, so that it costs each token next to nothing.
    fn tidy(&mut self, now: Instant) {
        self.tokens.retain(|_, state| {
            let recent = |won: Instant| now.saturating_duration_since(won) < REMEMBERED;
            state.attempts > 0 || state.won.is_some_and(recent)
        });
        self.look_at = self.tokens.len() * 2;
    }
}

/// An attempt that goes on. One that is dropped has neither won nor lost: whoever gave it up releases the token.
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

    /// The token is about to be released.
    pub(super) fn release(&self, token: &Token) {
        if let Entry::Occupied(mut claimed) = lock(&self.0).tokens.entry(sequence_of(token)) {
            claimed.get_mut().won = None;
            if claimed.get().attempts == 0 {
                claimed.remove();
            }
        }
    }

    /// Does something before the next attempt can begin; not where one goes on or was won.
    pub(super) fn unless_claimed<T>(&self, token: &Token, act: impl FnOnce() -> T) -> Option<T> {
        let book = lock(&self.0);
        (!book.tokens.contains_key(&sequence_of(token))).then(act)
    }

    pub(super) fn has(&self, token: &Token) -> bool {
        self.unless_claimed(token, || ()).is_none()
    }
}

impl Claim {
    pub(super) fn won(self) {
        if let Some(state) = lock(&self.claims.0).tokens.get_mut(&self.sequence) {
            state.won = Some(Instant::now());
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Entry::Occupied(mut claimed) = lock(&self.claims.0).tokens.entry(self.sequence) {
            let state = claimed.get_mut();
            state.attempts -= 1;
            if state.attempts == 0 && state.won.is_none() {
                claimed.remove();
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

    #[test]
    fn a_token_is_claimed_until_its_last_attempt_is_over_or_it_is_released() {
        let (claims, client) = (Arc::<Claims>::default(), ClientId::random());
        let (one, other) = (client.token(1), client.token(2));
        let first = claims.begin(&one);
        let second = claims.begin(&one);
        assert!(claims.has(&one) && !claims.has(&other));
        drop(first);
        assert!(claims.has(&one), "the second goes on");
        second.won();
        assert!(claims.has(&one), "it has the lock");
        drop(claims.begin(&one));
        assert!(claims.has(&one), "a refresh that has lost changes nothing");
        let late = claims.begin(&one);
        claims.release(&one);
        assert!(claims.has(&one), "the refresh goes on");
        drop(late);
        assert!(!claims.has(&one));
        claims.begin(&other).won();
        claims.release(&other);
        claims.release(&other);
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
