//! Proof of ownership: the client, and the number of its acquisition.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::base::rt;

/// Characters of a client id at the start of every token. The scripts rely on it.
pub(crate) const CLIENT_LEN: usize = 36;

/// Maximum length of the name of a client.
pub(crate) const NAME_LEN: usize = 40;

/// A client id, the largest number and the longest name, with colons between them.
const LONGEST: usize = CLIENT_LEN + 1 + 20 + 1 + NAME_LEN;

/// Low bits of a sequence number. Those above count milliseconds since [`EPOCH`], so that a token tells when its acquisition began.
const COUNT_BITS: u32 = 6;

/// 2026-01-01, after 1970-01-01.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// One manager, as the server sees it: a random uuid (v4), and a name for people.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClientId {
    id: Box<str>,
    name: Box<str>,
}

impl ClientId {
    pub(crate) fn random(name: &str) -> Self {
        Self {
            id: rt::uuid().to_string().into(),
            name: name.into(),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn token(&self, sequence: u64) -> Token {
        Token::new(self.id.as_bytes(), sequence, self.name.as_bytes())
    }

    /// The sequence number in a token of this client, `None` in any other.
    pub(crate) fn sequence_of(&self, token: &str) -> Option<u64> {
        let rest = token.strip_prefix(&*self.id)?;
        number_of(rest.strip_prefix(':')?)
    }
}

/// New for every acquisition, so that no late release can ever match a later hold.
///
/// It is made for each request from the sequence number, and not kept: thousands of locks may be held.
#[derive(Clone, Copy)]
pub(crate) struct Token {
    text: [u8; LONGEST],
    len: u8,
}

impl Token {
    fn new(client: &[u8], number: u64, name: &[u8]) -> Self {
        let mut text = [b':'; LONGEST];
        text[..CLIENT_LEN].copy_from_slice(client);
        // Without `write!`, which costs more than the rest: a token is made for each request.
        let start = CLIENT_LEN + 1;
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut rest = number;
        for digit in text[start..start + digits].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let end = start + digits + 1;
        text[end..end + name.len()].copy_from_slice(name);
        Self {
            text,
            len: (end + name.len()) as u8,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        let text = std::str::from_utf8(self.as_bytes());
        text.unwrap_or_else(|_| unreachable!("it was written as text"))
    }

    /// The bytes of the text.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.len)]
    }

    /// The number of the acquisition within its client.
    pub(crate) fn number(&self) -> u64 {
        number_in(self.as_str()).unwrap_or(u64::MAX)
    }

    /// The name of the client that made it.
    pub(crate) fn name(&self) -> &str {
        self.bearer().split_once(':').map_or("", |(_, name)| name)
    }

    /// The token without the id of its client: see [`Bearer`].
    pub(crate) fn bearer(&self) -> &str {
        &self.as_str()[CLIENT_LEN + 1..]
    }

    /// The id of the client that made it.
    pub(crate) fn client(&self) -> &str {
        &self.as_str()[..CLIENT_LEN]
    }
}

/// The number in the text of a token.
pub(crate) fn number_in(token: &str) -> Option<u64> {
    number_of(token.get(CLIENT_LEN + 1..)?)
}

/// The number at the beginning of a token without the id of its client.
fn number_of(rest: &str) -> Option<u64> {
    rest.split(':').next()?.parse().ok()
}

/// The smallest sequence number of an acquisition that begins at this time after 1970.
pub(crate) fn sequence_at(time: Duration) -> u64 {
    let millis = time.saturating_sub(EPOCH).as_millis() as u64;
    millis << COUNT_BITS
}

/// Whether people and servers can read this name: printable ASCII without spaces and braces.
pub(crate) fn is_name(name: &str) -> bool {
    let printable = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    (1..=NAME_LEN).contains(&name.len()) && name.bytes().all(printable)
}

/// The client of a token, as people may see it: without its id, since with the id they could release the lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bearer {
    /// `None` for a client of another kind.
    pub(crate) name: Option<Box<str>>,
    /// The time at which the acquisition began, by the clock of its client.
    pub(crate) since: Option<SystemTime>,
}

impl Bearer {
    /// The client of a tenure that began when this fencing token was minted. The token is at least the clock of the server at that
    /// time, in microseconds.
    pub(crate) fn began_with(fence: u64, name: Option<Box<str>>) -> Self {
        let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(fence));
        let since = since.filter(|_| fence > 0);
        Self { name, since }
    }

    /// Reads a token without the id of its client: `number:name`.
    pub(crate) fn parse(text: &str) -> Self {
        let Some((number, name)) = text.split_once(':') else {
            return Self::default();
        };
        let Ok(number) = number.parse::<u64>() else {
            return Self::default();
        };
        // A later version may append to a token.
        let name = name.split('{').next().unwrap_or_default();
        let millis = number >> COUNT_BITS;
        // A client that begins many acquisitions in a millisecond counts ahead of its clock.
        let since = SystemTime::UNIX_EPOCH.checked_add(EPOCH + Duration::from_millis(millis));
        Self {
            name: is_name(name).then(|| name.into()),
            since: since.map(|since| since.min(SystemTime::now())),
        }
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Token {}

// A client that knows the token can release the lock, so a token must not appear in a log.
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

/// The default name of a client: the name of the machine, and the number of the process.
pub(crate) fn client_name() -> String {
    #[cfg(lock_sim)]
    return "simulated".to_owned();
    #[cfg(not(lock_sim))]
    {
        #[cfg(target_os = "linux")]
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        #[cfg(not(target_os = "linux"))]
        let host = std::env::var("HOSTNAME")
            .or_else(|_| std::env::var("COMPUTERNAME"))
            .unwrap_or_else(|_| "host".to_owned());
        let pid = std::process::id().to_string();
        // The end of a long name tells the copies of a service apart.
        let most = NAME_LEN - 1 - pid.len();
        let host = host.chars().skip(host.chars().count().saturating_sub(most));
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        };
        format!("{}-{pid}", host.map(plain).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_own_client_only() {
        let (ours, other) = (ClientId::random("orders-7"), ClientId::random("orders-7"));
        let token = ours.token(7);
        assert_eq!(ours.sequence_of(token.as_str()), Some(7));
        assert_eq!(other.sequence_of(token.as_str()), None);
        assert_eq!(ours.sequence_of("garbage"), None);
        assert_eq!(token.client(), ours.as_str());
        for sequence in [0, 1, 9, 10, 99, 100, (1 << 48) - 1] {
            let token = ours.token(sequence);
            assert_eq!(
                token.as_str(),
                format!("{}:{sequence}:orders-7", ours.as_str())
            );
            assert_eq!(token.name(), "orders-7");
            assert_eq!(token.number(), sequence);
        }
    }

    #[test]
    fn a_token_tells_the_name_and_the_time_of_its_acquisition() {
        let time = EPOCH + Duration::from_millis(1_234_567);
        let token = ClientId::random("orders-7").token(sequence_at(time) + 5);
        let expected = Bearer {
            name: Some("orders-7".into()),
            since: Some(SystemTime::UNIX_EPOCH + time),
        };
        assert_eq!(Bearer::parse(token.bearer()), expected);
        // On the nodes of a quorum its edition follows.
        let vote = format!("{}{{9}}", token.bearer());
        assert_eq!(Bearer::parse(&vote), expected);
        for other in ["", "7", "garbage", "x:orders-7"] {
            assert_eq!(Bearer::parse(other), Bearer::default());
        }
        assert_eq!(Bearer::parse("7:two words").name, None);
    }

    #[test]
    fn debug_never_shows_a_token() {
        let client = ClientId::random("orders-7");
        let shown = format!("{client:?} {:?}", client.token(1));
        assert!(!shown.contains(&client.as_str()[..8]));
    }
}
