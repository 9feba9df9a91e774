//! The frames of the wire protocol (RESP2 and RESP3), cut out of a stream of
//! bytes as they come.
//!
//! Frames are kept as they are; only requests are taken apart.

use std::fmt;

/// The bytes are not the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RespError(String);

impl fmt::Display for RespError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a RESP frame: {}", self.0)
    }
}

impl std::error::Error for RespError {}

/// Cuts a stream of bytes into whole frames.
#[derive(Debug, Default)]
pub struct Splitter {
    buffer: Vec<u8>,
    /// Bytes of the first frame that are known to be whole values.
    read: usize,
    /// Values the first frame still lacks; `None` before its first byte.
    owed: Option<u64>,
}

impl Splitter {
    /// Adds what came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, once all of it has come.
    ///
    /// # Errors
    ///
    /// When the bytes are not the protocol; the stream cannot be used further.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, RespError> {
        let mut owed = self.owed.unwrap_or(1);
        while owed > 0 {
            let Some(value) = Value::parse(&self.buffer[self.read..])? else {
                self.owed = Some(owed);
                return Ok(None);
            };
            self.read += value.len;
            // One flat count is enough: it does not matter which array a
            // value belongs to, only when the last one has come.
            owed = (owed - 1)
                .checked_add(value.children)
                .ok_or_else(|| RespError("too many values".into()))?;
        }
        let rest = self.buffer.split_off(self.read);
        self.read = 0;
        self.owed = None;
        Ok(Some(std::mem::replace(&mut self.buffer, rest)))
    }
}

/// One value without the values inside it.
struct Value<'a> {
    kind: u8,
    /// A line's text, or a bulk's content.
    content: &'a [u8],
    /// Bytes taken.
    len: usize,
    /// Values that follow as part of this one.
    children: u64,
}

impl<'a> Value<'a> {
    /// The value at the start of `bytes`, or `None` if it is not all there.
    fn parse(bytes: &'a [u8]) -> Result<Option<Self>, RespError> {
        let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        let line = &bytes[..end];
        let Some((&kind, line)) = line.split_first() else {
            return Err(RespError("empty line".into()));
        };
        let mut value = Value {
            kind,
            content: line,
            len: end + 2,
            children: 0,
        };
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'!' | b'=' => {
                let Some(size) = count(line)? else {
                    return Ok(Some(value));
                };
                let size = usize::try_from(size).map_err(|_| bad(line))?;
                let start = value.len;
                let Some(stop) = start.checked_add(size) else {
                    return Err(bad(line));
                };
                if bytes.len() < stop.saturating_add(2) {
                    return Ok(None);
                }
                if &bytes[stop..stop + 2] != b"\r\n" {
                    return Err(RespError("a bulk longer than it says".into()));
                }
                value.content = &bytes[start..stop];
                value.len = stop + 2;
            }
            b'*' | b'~' | b'>' => value.children = count(line)?.unwrap_or(0),
            b'%' => value.children = pairs(line)?,
            // Attributes stand before the value they describe.
            b'|' => value.children = pairs(line)?.saturating_add(1),
            other => {
                return Err(RespError(format!("type {:?}", char::from(other))));
            }
        }
        Ok(Some(value))
    }
}

/// A length; `None` for the null of RESP2 (`-1`).
fn count(line: &[u8]) -> Result<Option<u64>, RespError> {
    if line == b"-1" {
        return Ok(None);
    }
    std::str::from_utf8(line)
        .ok()
        .and_then(|text| text.parse().ok())
        .map(Some)
        .ok_or_else(|| bad(line))
}

fn pairs(line: &[u8]) -> Result<u64, RespError> {
    Ok(count(line)?.unwrap_or(0).saturating_mul(2))
}

fn bad(line: &[u8]) -> RespError {
    RespError(format!("length {:?}", String::from_utf8_lossy(line)))
}

/// The words of a request: an array of bulk strings. `None` for another frame.
#[must_use]
pub fn parse_request(frame: &[u8]) -> Option<Vec<Vec<u8>>> {
    let head = Value::parse(frame).ok()??;
    if head.kind != b'*' || head.children == 0 {
        return None;
    }
    let mut rest = &frame[head.len..];
    let mut words = Vec::new();
    for _ in 0..head.children {
        let word = Value::parse(rest).ok()??;
        if word.kind != b'$' {
            return None;
        }
        words.push(word.content.to_vec());
        rest = &rest[word.len..];
    }
    Some(words)
}

/// The type byte of a frame.
#[must_use]
pub fn kind(frame: &[u8]) -> u8 {
    frame.first().copied().unwrap_or_default()
}

/// The first word of an array or push, such as `message`.
#[must_use]
pub fn first_word(frame: &[u8]) -> Option<&[u8]> {
    let head = Value::parse(frame).ok()??;
    if !matches!(head.kind, b'*' | b'>') || head.children == 0 {
        return None;
    }
    let word = Value::parse(&frame[head.len..]).ok()??;
    matches!(word.kind, b'$' | b'+').then_some(word.content)
}

#[cfg(test)]
mod tests {
    use super::{Splitter, first_word, parse_request};

    const FRAMES: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":42\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$12\r\nline\r\nbreaks\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
        b"*2\r\n*2\r\n:1\r\n*0\r\n$1\r\nx\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",3.14\r\n",
        b"(123456789012345678901234567890\r\n",
        b"!5\r\nERR a\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"~2\r\n:1\r\n:2\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n",
        b"|1\r\n+ttl\r\n:5\r\n$1\r\nx\r\n",
    ];

    fn split(chunks: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
        let mut splitter = Splitter::default();
        let mut frames = Vec::new();
        for chunk in chunks {
            splitter.push(&chunk);
            while let Some(frame) = splitter.next_frame().expect("valid") {
                frames.push(frame);
            }
        }
        frames
    }

    #[test]
    fn every_frame_comes_out_whole_however_the_bytes_arrive() {
        let stream = FRAMES.concat();
        for size in 1..stream.len() {
            let frames = split(stream.chunks(size).map(<[u8]>::to_vec));
            assert_eq!(frames, FRAMES, "in chunks of {size}");
        }
    }

    #[test]
    fn an_unfinished_frame_is_kept_back() {
        let mut splitter = Splitter::default();
        splitter.push(b"*2\r\n$1\r\na\r\n$3\r\nab");
        assert_eq!(splitter.next_frame(), Ok(None));
        splitter.push(b"c\r");
        assert_eq!(splitter.next_frame(), Ok(None));
        splitter.push(b"\n");
        let frame = splitter.next_frame().expect("valid").expect("whole");
        assert_eq!(
            parse_request(&frame),
            Some(vec![b"a".to_vec(), b"abc".to_vec()])
        );
    }

    #[test]
    fn other_bytes_are_an_error() {
        for bytes in [
            &b"GET k\r\n"[..],
            b"*x\r\n",
            b"\r\n",
            b"$1\r\nabc\r\n",
            b"$18446744073709551615\r\n",
        ] {
            let mut splitter = Splitter::default();
            splitter.push(bytes);
            assert!(splitter.next_frame().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn only_an_array_of_bulk_strings_is_a_request() {
        for frame in [&b"*0\r\n"[..], b"+PING\r\n", b"*1\r\n:1\r\n"] {
            assert_eq!(parse_request(frame), None);
        }
    }

    #[test]
    fn the_kind_of_a_push_is_its_first_word() {
        assert_eq!(
            first_word(b">2\r\n+message\r\n:1\r\n"),
            Some(&b"message"[..])
        );
        assert_eq!(first_word(b"*1\r\n$1\r\nx\r\n"), Some(&b"x"[..]));
        assert_eq!(first_word(b"*1\r\n:1\r\n"), None);
        assert_eq!(first_word(b"+OK\r\n"), None);
    }
}
