//! Commands, as they arrive at the server.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use lock_core::sim;

use crate::network::ConnectionId;

/// A command that has arrived at the server.
#[derive(Clone, Copy)]
pub struct Command<'a> {
    /// The virtual time since the run began.
    pub at: Duration,
    /// The process that sent it.
    pub process: usize,
    /// The connection on which it came.
    pub connection: ConnectionId,
    bytes: &'a [u8],
    words: &'a [Range<usize>],
    script: Option<&'static str>,
}

impl<'a> Command<'a> {
    pub(crate) fn new(
        process: usize,
        connection: ConnectionId,
        bytes: &'a [u8],
        words: &'a [Range<usize>],
    ) -> Self {
        let mut command = Self {
            at: sim::elapsed(),
            process,
            connection,
            bytes,
            words,
            script: None,
        };
        command.script = script(command.verb(), command.word(1));
        command
    }

    /// The first word, as it was sent.
    #[must_use]
    pub fn verb(&self) -> &'a [u8] {
        self.word(0)
    }

    /// The name of the script, where the command runs one of lock-core.
    #[must_use]
    pub fn script(&self) -> Option<&'static str> {
        self.script
    }

    /// The word at this place; empty where there is none.
    #[must_use]
    pub fn word(&self, at: usize) -> &'a [u8] {
        self.words
            .get(at)
            .map_or(&[], |range| &self.bytes[range.clone()])
    }

    /// All words.
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.words.iter().map(move |range| &bytes[range.clone()])
    }

    /// The KEYS of a script.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.words().skip(3).take(self.key_count())
    }

    /// The ARGV of a script.
    pub fn args(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.words().skip(3 + self.key_count())
    }

    fn key_count(&self) -> usize {
        let count = std::str::from_utf8(self.word(2)).ok();
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

/// The script by its name, then the keys and the arguments; or the words.
impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = match self.script {
            Some(name) => {
                write!(f, "[{name}]")?;
                3
            }
            None => 0,
        };
        for word in self.words().skip(skipped) {
            write!(f, " {}", shown(word, 80))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({self})")
    }
}

/// The name of the script of lock-core that a command runs, by its first two words.
pub(crate) fn script(verb: &[u8], which: &[u8]) -> Option<&'static str> {
    let which = std::str::from_utf8(which).ok();
    match verb {
        b"EVALSHA" => which.and_then(sim::script_name),
        b"EVAL" => which.and_then(|text| sim::script_name(redis::Script::new(text).get_hash())),
        _ => None,
    }
}

/// Bytes as text, at most so many of them.
pub(crate) fn shown(bytes: &[u8], most: usize) -> String {
    let text = bytes[..bytes.len().min(most)].escape_ascii().to_string();
    let cut = if bytes.len() > most { ".." } else { "" };
    text + cut
}

/// Cuts what a client sends into commands: arrays of bulk strings.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// The begin of a command whose end has not arrived.
    begun: Vec<u8>,
}

impl Requests {
    /// Calls `found` for each command that is whole now, with all the bytes and the places of its words.
    pub(crate) fn feed(&mut self, arrived: &[u8], mut found: impl FnMut(&[u8], &[Range<usize>])) {
        let mut words = Vec::new();
        if self.begun.is_empty() {
            let used = commands(arrived, &mut words, &mut found);
            self.begun.extend_from_slice(&arrived[used..]);
        } else {
            self.begun.extend_from_slice(arrived);
            let used = commands(&self.begun, &mut words, &mut found);
            self.begun.drain(..used);
        }
    }
}

/// How many bytes are whole commands.
fn commands(
    bytes: &[u8],
    words: &mut Vec<Range<usize>>,
    found: &mut impl FnMut(&[u8], &[Range<usize>]),
) -> usize {
    let mut used = 0;
    while let Some(end) = command(bytes, used, words) {
        found(bytes, words);
        used = end;
    }
    used
}

/// Where the command that begins at `at` ends.
fn command(bytes: &[u8], at: usize, words: &mut Vec<Range<usize>>) -> Option<usize> {
    words.clear();
    let (count, mut at) = header(bytes, at, b'*')?;
    for _ in 0..count {
        let (len, start) = header(bytes, at, b'$')?;
        at = start + len + 2;
        if at > bytes.len() {
            return None;
        }
        words.push(start..start + len);
    }
    Some(at)
}

/// The number in a line that begins with `mark`, and where the line ends.
fn header(bytes: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    let line = bytes.get(at..)?;
    let end = line.windows(2).position(|two| two == b"\r\n")?;
    if line[0] != mark {
        return None;
    }
    let number = std::str::from_utf8(&line[1..end]).ok()?.parse().ok()?;
    Some((number, at + end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_however_the_bytes_are_cut() {
        let bytes = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        for cut in 0..bytes.len() {
            let (mut requests, mut seen) = (Requests::default(), Vec::new());
            for part in [&bytes[..cut], &bytes[cut..]] {
                requests.feed(part, |bytes, words| {
                    let texts = words.iter().map(|word| shown(&bytes[word.clone()], 9));
                    seen.push(texts.collect::<Vec<_>>().join(" "));
                });
            }
            assert_eq!(seen, ["PING", "GET a"], "cut at {cut}");
        }
    }
}
