//! Requests, cut out of the bytes of a connection.

use std::ops::Range;

use crate::number;

/// The longest line that is waited for.
const LONGEST_LINE: usize = 64 * 1024;

/// The most bytes of one word.
const LONGEST_WORD: i64 = 512 * 1024 * 1024;

/// What the bytes at hand are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// So many bytes were read, and the words are in the list; none, where nothing was asked.
    Whole(usize),
    /// More bytes are needed.
    Unfinished,
    /// Not the protocol. The connection ends with this error.
    Broken(String),
}

/// Reads one request. `words` gets the places of its words in `bytes`.
pub(crate) fn read(bytes: &[u8], words: &mut Vec<Range<usize>>) -> Request {
    words.clear();
    if bytes.first() != Some(&b'*') {
        return read_line(bytes, words);
    }
    let (count, mut at) = match number_line(bytes, 0) {
        Line::Number(count, at) if count <= i64::from(i32::MAX) => (count, at),
        Line::Number(..) | Line::Garbage => return broken("invalid multibulk length"),
        Line::TooLong => return broken("too big mbulk count string"),
        Line::Unfinished => return Request::Unfinished,
    };
    for _ in 0..count {
        match bytes.get(at) {
            Some(b'$') => {}
            // The whole line is awaited first, as its end is what is looked for.
            Some(_) if !bytes[at..].contains(&b'\r') => return Request::Unfinished,
            Some(other) => return broken(&format!("expected '$', got '{}'", char::from(*other))),
            None => return Request::Unfinished,
        }
        let (size, start) = match number_line(bytes, at) {
            Line::Number(size, start) if size <= LONGEST_WORD => (size, start),
            Line::Number(..) | Line::Garbage => return broken("invalid bulk length"),
            Line::TooLong => return broken("too big bulk count string"),
            Line::Unfinished => return Request::Unfinished,
        };
        let Ok(size) = usize::try_from(size) else {
            return broken("invalid bulk length");
        };
        if bytes.len() < start + size + 2 {
            return Request::Unfinished;
        }
        words.push(start..start + size);
        at = start + size + 2;
    }
    Request::Whole(at)
}

enum Line {
    /// The number, and where the next line begins.
    Number(i64, usize),
    Garbage,
    TooLong,
    Unfinished,
}

/// The line at `at`: a character, and a number.
fn number_line(bytes: &[u8], at: usize) -> Line {
    let line = &bytes[at..];
    let Some(end) = line.iter().position(|byte| *byte == b'\r') else {
        return if line.len() > LONGEST_LINE {
            Line::TooLong
        } else {
            Line::Unfinished
        };
    };
    if line.len() < end + 2 {
        return Line::Unfinished;
    }
    number::parse(&line[1..end]).map_or(Line::Garbage, |number| Line::Number(number, at + end + 2))
}

/// A request typed by hand: words with spaces between them. Quotes are no part of what is understood.
fn read_line(bytes: &[u8], words: &mut Vec<Range<usize>>) -> Request {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() > LONGEST_LINE {
            broken("too big inline request")
        } else {
            Request::Unfinished
        };
    };
    let mut at = 0;
    for word in bytes[..end].split(u8::is_ascii_whitespace) {
        if !word.is_empty() {
            words.push(at..at + word.len());
        }
        at += word.len() + 1;
    }
    Request::Whole(end + 1)
}

fn broken(why: &str) -> Request {
    Request::Broken(format!("ERR Protocol error: {why}"))
}

#[cfg(test)]
mod tests {
    use super::{Request, read};

    fn words(bytes: &[u8]) -> (Request, Vec<&[u8]>) {
        let mut ranges = Vec::new();
        let request = read(bytes, &mut ranges);
        (
            request,
            ranges.into_iter().map(|range| &bytes[range]).collect(),
        )
    }

    #[test]
    fn a_request_is_read_once_all_of_it_is_there() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n";
        for end in 0..bytes.len() {
            assert_eq!(words(&bytes[..end]).0, Request::Unfinished, "{end}");
        }
        assert_eq!(
            words(bytes),
            (Request::Whole(bytes.len()), vec![&b"GET"[..], b"\r\n"])
        );
    }

    #[test]
    fn a_line_is_a_request_as_well() {
        let bytes = b"  SET a  b\r\nGET";
        assert_eq!(
            words(bytes),
            (Request::Whole(12), vec![&b"SET"[..], b"a", b"b"])
        );
        assert_eq!(words(b"\r\n").0, Request::Whole(2));
        assert_eq!(words(b"PING").0, Request::Unfinished);
    }

    #[test]
    fn what_is_no_request_ends_the_connection() {
        for (bytes, why) in [
            (&b"*x\r\n"[..], "invalid multibulk length"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        ] {
            let broken = Request::Broken(format!("ERR Protocol error: {why}"));
            assert_eq!(words(bytes).0, broken);
        }
    }
}
