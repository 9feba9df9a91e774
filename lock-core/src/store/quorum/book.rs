//! The states of the tokens of this process, and which of them are forgotten. No I/O.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tokio::time::Instant;

use super::editions::Editions;
use super::token_state::TokenState;

/// Minimum number of tokens before old ones are looked for.
const FEW: usize = 64;

/// The known tokens.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) tokens: HashMap<u64, TokenState>,
    pub(super) editions: Editions,
    /// Number of undos so far.
    pub(super) undos: u64,
    /// The number of tokens at which old ones are looked for next.
    look_at: usize,
}

impl Book {
    /// Whether there are enough tokens for [`tidy`](Self::tidy).
    pub(super) fn is_due(&self) -> bool {
        self.tokens.len() >= self.look_at.max(FEW)
    }

    /// Forgets old tokens. This is rare, so the cost for each token is small.
    pub(super) fn tidy(&mut self, now: Instant) {
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
    pub(super) fn change(&mut self, number: u64, change: impl FnOnce(&mut TokenState)) {
        if let Entry::Occupied(mut entry) = self.tokens.entry(number) {
            change(entry.get_mut());
            if entry.get().is_over() {
                entry.remove();
            }
        }
    }
}
