//! The editions of tokens. No I/O.
//!
//! An acquisition has one token on the nodes. If a request to remove its votes may still arrive, the next attempt goes on with
//! another edition of the token: for the nodes it is another token, and the request does not affect it.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::base::token::Token;

/// Time after which an unused token is forgotten. A waiter asks again sooner, so a late undo of that token does no harm.
pub(super) const UNUSED: Duration = Duration::from_secs(600);

/// The current editions of acquisitions, except first editions.
#[derive(Debug, Default)]
pub(super) struct Editions(HashMap<u64, Edition>);

#[derive(Debug)]
struct Edition {
    number: u16,
    token: Token,
    used: Instant,
}

impl Editions {
    /// The token of an acquisition, of its current edition.
    pub(super) fn current(&mut self, token: &Token) -> Token {
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
    pub(super) fn next(&mut self, token: &Token) -> Token {
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
    pub(super) fn forget(&mut self, now: Instant, is_over: impl Fn(&Token) -> bool) {
        self.0
            .retain(|_, Edition { token, used, .. }| now < *used + UNUSED || !is_over(token));
    }
}
