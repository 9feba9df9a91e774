//! Replies, and how they look on the wire.

use std::borrow::Cow;
use std::io::Write;

/// What a command answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// A status such as `OK`.
    Status(Cow<'static, str>),
    /// An error, its code in front.
    Error(Cow<'static, str>),
    /// A number.
    Int(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Nil,
    /// Nothing, where an array could stand.
    NilArray,
    /// Several replies.
    Array(Vec<Reply>),
    /// Pairs: an array of twice the length for a client of the second protocol.
    Map(Vec<(Reply, Reply)>),
    /// A message, or the confirmation of a subscription.
    Push(Vec<Reply>),
    /// Several frames for one command; SUBSCRIBE confirms each channel.
    Frames(Vec<Reply>),
    /// A text for humans.
    Verbatim(String),
}

impl Reply {
    /// `OK`.
    pub(crate) const OK: Self = Self::Status(Cow::Borrowed("OK"));

    /// A bulk string.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// A bulk string, or nothing.
    pub(crate) fn maybe(bytes: Option<&[u8]>) -> Self {
        bytes.map_or(Self::Nil, Self::bulk)
    }

    /// A number that counts something in memory.
    pub(crate) fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// One or zero.
    pub(crate) fn flag(yes: bool) -> Self {
        Self::Int(i64::from(yes))
    }

    /// Appends the reply as it goes to a client of this protocol.
    pub fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(out, b'+', text.as_bytes()),
            Self::Error(text) => line(out, b'-', text.as_bytes()),
            Self::Int(number) => header(out, b':', *number),
            Self::Bulk(bytes) => bulk(out, bytes),
            Self::Nil if protocol == Protocol::Resp2 => out.extend_from_slice(b"$-1\r\n"),
            Self::NilArray if protocol == Protocol::Resp2 => out.extend_from_slice(b"*-1\r\n"),
            Self::Nil | Self::NilArray => out.extend_from_slice(b"_\r\n"),
            Self::Push(replies) if protocol == Protocol::Resp3 => all(out, b'>', replies, protocol),
            Self::Array(replies) | Self::Push(replies) => all(out, b'*', replies, protocol),
            Self::Frames(replies) => replies.iter().for_each(|reply| reply.encode(protocol, out)),
            Self::Map(pairs) => {
                let (kind, length) = match protocol {
                    Protocol::Resp2 => (b'*', 2 * pairs.len()),
                    Protocol::Resp3 => (b'%', pairs.len()),
                };
                header(out, kind, i64::try_from(length).unwrap_or(i64::MAX));
                for (key, value) in pairs {
                    key.encode(protocol, out);
                    value.encode(protocol, out);
                }
            }
            Self::Verbatim(text) if protocol == Protocol::Resp3 => {
                header(out, b'=', i64::try_from(text.len() + 4).unwrap_or(i64::MAX));
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Self::Verbatim(text) => bulk(out, text.as_bytes()),
        }
    }
}

/// The version of the protocol that a client has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// The second.
    #[default]
    Resp2,
    /// The third, by `HELLO 3`.
    Resp3,
}

fn header(out: &mut Vec<u8>, kind: u8, number: i64) {
    out.push(kind);
    // To memory: it does not fail.
    let _ = write!(out, "{number}\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A line cannot hold the end of a line.
fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend(text.iter().map(|byte| match byte {
        b'\r' | b'\n' => b' ',
        byte => *byte,
    }));
    out.extend_from_slice(b"\r\n");
}

fn all(out: &mut Vec<u8>, kind: u8, replies: &[Reply], protocol: Protocol) {
    header(out, kind, i64::try_from(replies.len()).unwrap_or(i64::MAX));
    for reply in replies {
        reply.encode(protocol, out);
    }
}

/// An error of a command.
pub(crate) type Refusal = Cow<'static, str>;

/// What a command says: its reply, or why there is none.
pub(crate) type Answer = Result<Reply, Refusal>;

pub(crate) const WRONG_TYPE: Refusal =
    Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(crate) const NO_INTEGER: Refusal = Cow::Borrowed("ERR value is not an integer or out of range");
pub(crate) const OVERFLOW: Refusal = Cow::Borrowed("ERR increment or decrement would overflow");
pub(crate) const SYNTAX: Refusal = Cow::Borrowed("ERR syntax error");

/// The error of a command that was called with too few words, or too many.
pub(crate) fn wrong_arity(command: &str) -> Refusal {
    format!("ERR wrong number of arguments for '{command}' command").into()
}
