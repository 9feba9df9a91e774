//! What happens in a run, as lines: hashed always, kept where that is wanted.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::sim;

/// The record of a run. Cheap to clone; clones are the same record.
#[derive(Debug, Clone)]
pub struct Trace(Arc<Mutex<Record>>);

#[derive(Debug)]
struct Record {
    hash: Hash,
    /// How many records there were.
    count: u64,
    lines: Option<Vec<String>>,
}

/// An unkeyed hash of what is written to it: eight bytes in one multiplication.
#[derive(Debug, Default)]
struct Hash(u64);

impl Hash {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.word(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        let mut last = [0; 8];
        let rest = words.remainder();
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }
}

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

/// Microseconds of virtual time since the run began.
#[must_use]
pub fn micros() -> u64 {
    u64::try_from(sim::elapsed().as_micros()).unwrap_or(u64::MAX)
}

impl Trace {
    pub(crate) fn new(keep: bool) -> Self {
        Self(Arc::new(Mutex::new(Record {
            hash: Hash::default(),
            count: 0,
            lines: keep.then(Vec::new),
        })))
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record.count += 1;
        record.hash.word(micros());
        record
    }

    /// Writes a line: `who` is a process, a connection, the server or a checker.
    pub fn line(&self, who: impl fmt::Display, what: fmt::Arguments<'_>) {
        let mut record = self.record();
        // To memory: it does not fail.
        let _ = write!(record.hash, "{who} {what}");
        if let Some(lines) = &mut record.lines {
            lines.push(format!("{:>10} {who} {what}", micros()));
        }
    }

    /// As [`line`](Self::line), where the text is made of `bytes`, and only if it is kept.
    pub(crate) fn bytes(&self, id: u64, bytes: &[u8], text: impl FnOnce() -> String) {
        let mut record = self.record();
        record.hash.word(id);
        record.hash.bytes(bytes);
        if let Some(lines) = &mut record.lines {
            lines.push(format!("{:>10} {}", micros(), text()));
        }
    }

    /// The hash of everything until now, whether it is kept or not.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).hash.0
    }

    /// Whether lines are kept.
    #[must_use]
    pub fn keeps(&self) -> bool {
        let record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record.lines.is_some()
    }

    /// How many records there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Takes the lines that were kept.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record
            .lines
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }
}
