//! Proof of ownership: who asks, and which of its acquisitions it is.

use std::fmt::{self, Write};

use uuid::Uuid;

/// Characters of a client id at the start of every token. The scripts rely on it.
const CLIENT_LEN: usize = 36;

/// One manager, as the server sees it: a random uuid (v4).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClientId(Box<str>);

impl ClientId {
    pub(crate) fn random() -> Self {
        Self(Uuid::new_v4().to_string().into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn token(&self, sequence: u64) -> Token {
        // As long as it will be, so that it does not move once more.
        let digits = sequence.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut token = String::with_capacity(self.0.len() + 1 + digits);
        token.push_str(&self.0);
        let _ = write!(token, ":{sequence}");
        Token(token.into())
    }

    /// The sequence number in a token of this client, `None` in any other.
    pub(crate) fn sequence_of(&self, token: &str) -> Option<u64> {
        let rest = token.strip_prefix(&*self.0)?;
        rest.strip_prefix(':')?.parse().ok()
    }
}

/// New for every acquisition, so that no late release can ever match a later hold.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(Box<str>);

impl Token {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The how manieth acquisition of its client it is for.
    pub(crate) fn sequence(&self) -> Option<u64> {
        self.0.get(CLIENT_LEN + 1..)?.parse().ok()
    }

    /// The id of the client that made it.
    pub(crate) fn client(&self) -> &str {
        &self.0[..CLIENT_LEN]
    }
}

// Whoever knows a token can release the lock: neither may appear in a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientId(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_own_client_only() {
        let (ours, other) = (ClientId::random(), ClientId::random());
        let token = ours.token(7);
        assert_eq!(ours.sequence_of(token.as_str()), Some(7));
        assert_eq!(other.sequence_of(token.as_str()), None);
        assert_eq!(ours.sequence_of("garbage"), None);
        assert_eq!(token.client(), ours.as_str());
    }

    #[test]
    fn debug_never_shows_a_token() {
        let client = ClientId::random();
        let shown = format!("{client:?} {:?}", client.token(1));
        assert!(!shown.contains(&client.as_str()[..8]));
    }
}
