//! Proof of ownership: who asks, and which of its acquisitions it is.

use std::fmt;

use crate::rt;

/// Characters of a client id at the start of every token. The scripts rely on it.
pub(crate) const CLIENT_LEN: usize = 36;

/// Bits of the number in a token that are the number of the acquisition. Those above are its edition.
const SEQUENCE_BITS: u32 = 48;

/// A client id, a colon, and the largest number.
const LONGEST: usize = CLIENT_LEN + 1 + 20;

/// One manager, as the server sees it: a random uuid (v4).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClientId(Box<str>);

impl ClientId {
    pub(crate) fn random() -> Self {
        Self(rt::uuid().to_string().into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn token(&self, sequence: u64) -> Token {
        Token::new(self.0.as_bytes(), sequence)
    }

    /// The sequence number in a token of this client, `None` in any other.
    pub(crate) fn sequence_of(&self, token: &str) -> Option<u64> {
        let rest = token.strip_prefix(&*self.0)?;
        rest.strip_prefix(':')?.parse().ok().map(sequence_of)
    }
}

/// New for every acquisition, so that no late release can ever match a later hold.
///
/// Made for each request, of the sequence number alone: there may be thousands of locks that are held.
#[derive(Clone, Copy)]
pub(crate) struct Token {
    text: [u8; LONGEST],
    len: u8,
}

impl Token {
    fn new(client: &[u8], number: u64) -> Self {
        let mut text = [b':'; LONGEST];
        text[..CLIENT_LEN].copy_from_slice(client);
        // By hand, since tokens are made for each request: the machinery of `write!` costs more than all the rest.
        let start = CLIENT_LEN + 1;
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut rest = number;
        for digit in text[start..start + digits].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Self {
            text,
            len: (start + digits) as u8,
        }
    }

    /// Another token of the same acquisition, which nothing that is under way for the others concerns.
    pub(crate) fn edition(&self, edition: u16) -> Self {
        let sequence = sequence_of(self.number());
        let number = u64::from(edition) << SEQUENCE_BITS | sequence;
        Self::new(&self.text[..CLIENT_LEN], number)
    }

    pub(crate) fn as_str(&self) -> &str {
        let text = std::str::from_utf8(self.as_bytes());
        text.unwrap_or_else(|_| unreachable!("it was written as text"))
    }

    /// The same, for where nobody has to know that it is text.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.len)]
    }

    /// The number of the token within its client.
    pub(crate) fn number(&self) -> u64 {
        number_in(self.as_str()).unwrap_or(u64::MAX)
    }

    /// The number of the acquisition within its client.
    pub(crate) fn sequence(&self) -> u64 {
        sequence_of(self.number())
    }

    /// The id of the client that made it.
    pub(crate) fn client(&self) -> &str {
        &self.as_str()[..CLIENT_LEN]
    }
}

/// The number in the text of a token.
pub(crate) fn number_in(token: &str) -> Option<u64> {
    token.get(CLIENT_LEN + 1..)?.parse().ok()
}

/// The number of the acquisition in the number of one of its tokens.
fn sequence_of(number: u64) -> u64 {
    number & ((1 << SEQUENCE_BITS) - 1)
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Token {}

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
        for sequence in [0, 1, 9, 10, 99, 100, (1 << SEQUENCE_BITS) - 1] {
            let token = ours.token(sequence);
            assert_eq!(token.as_str(), format!("{}:{sequence}", ours.as_str()));
            assert_eq!(token.sequence(), sequence);
        }
    }

    #[test]
    fn every_edition_of_a_token_belongs_to_the_same_acquisition() {
        let client = ClientId::random();
        let first = client.token(7);
        let editions = [0, 1, 2, u16::MAX].map(|edition| first.edition(edition));
        assert!(editions[0] == first && editions[1] != first && editions[1] != editions[2]);
        for token in editions {
            assert_eq!(token.sequence(), 7);
            assert_eq!(client.sequence_of(token.as_str()), Some(7));
            assert!(token.edition(0) == first);
        }
    }

    #[test]
    fn debug_never_shows_a_token() {
        let client = ClientId::random();
        let shown = format!("{client:?} {:?}", client.token(1));
        assert!(!shown.contains(&client.as_str()[..8]));
    }
}
