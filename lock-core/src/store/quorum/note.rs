//! What is asked of the server behind a node of a quorum: which run it is, and whether it votes (see `vet.lua`).

use std::time::Duration;

use redis::{Cmd, Value, cmd};

use crate::base::rt;
use crate::store::StoreError;
use crate::store::redis::{Name, garbled, millis, text, word};

/// The number of the wire format on the nodes. In format 1 a vote has no edition.
pub(super) const FORMAT: u64 = if cfg!(lock_next_format) { 3 } else { 2 };

/// A run of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) id: String,
    /// The id of the replication that the server took part in before it became a master; empty for none. Never the id of the
    /// current replication: a backup begins another one.
    pub(super) replication: String,
}

impl Run {
    pub(super) fn info() -> Cmd {
        cmd("INFO")
    }

    pub(super) fn read(value: Value) -> Result<Self, StoreError> {
        let info: String = redis::from_redis_value(value).map_err(|_| garbled())?;
        let field = |name: &str| {
            let mut fields = info.lines().filter_map(|line| line.trim().split_once(':'));
            fields.find_map(|(field, value)| (field == name).then(|| value.to_owned()))
        };
        let replication = field("master_replid2").unwrap_or_default();
        let is_none = replication.bytes().all(|digit| digit == b'0');
        Ok(Self {
            id: field("run_id").ok_or_else(garbled)?,
            replication: if is_none { String::new() } else { replication },
        })
    }

    /// Whether a later answer is of the same run: no server has restarted, and none has taken over the data of another one.
    pub(super) fn is(&self, later: &Self) -> bool {
        self.id == later.id
            && (later.replication.is_empty() || later.replication == self.replication)
    }
}

/// How a node is vetted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vetting<'a> {
    /// Nothing is written: what a client would find.
    Read,
    /// Without a note it stays without one.
    Look,
    /// Without a note it gets one: the other nodes may have theirs.
    Join,
    /// As `Join`; no node has a note.
    New,
    /// The wait of this boot ends, if the quorum is new.
    Begin { boot: &'a str },
    /// The node gets a note that votes at once, whatever it has.
    Anew,
}

/// What a client states about a node.
pub(super) struct Statement<'a> {
    pub(super) how: Vetting<'a>,
    pub(super) label: &'a str,
    pub(super) list: &'a str,
    pub(super) wait: Duration,
    pub(super) run: &'a Run,
    /// The largest counter that the client knows of.
    pub(super) counted: u64,
}

impl Statement<'_> {
    /// The arguments of the script.
    pub(super) fn args(&self) -> [String; 9] {
        let how = match self.how {
            Vetting::Read => "read",
            Vetting::Look => "vet",
            Vetting::Join => "join",
            Vetting::New => "new",
            Vetting::Begin { .. } => "begin",
            Vetting::Anew => "anew",
        };
        let boot = match self.how {
            Vetting::Begin { boot } => boot.to_owned(),
            _ => rt::uuid().simple().to_string(),
        };
        let Run { id, replication } = self.run;
        [
            how.to_owned(),
            self.label.to_owned(),
            self.list.to_owned(),
            self.wait.as_millis().to_string(),
            id.clone(),
            replication.clone(),
            boot,
            self.counted.to_string(),
            FORMAT.to_string(),
        ]
    }
}

/// The answer of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Vetted {
    Note {
        /// The rest of its wait; zero if it votes.
        left: Duration,
        boot: String,
        counted: u64,
        /// Whether no node had a note when this one was written, and it has not voted since.
        is_new: bool,
    },
    /// It has no note.
    Blank,
    /// It belongs to another quorum, or is another node.
    Other {
        label: String,
        list: String,
        wait: String,
        format: String,
    },
}

impl Vetted {
    pub(super) fn read(value: &Value) -> Result<Self, StoreError> {
        let Value::Array(parts) = value else {
            return Err(garbled());
        };
        Ok(match (text(parts.first()), &parts[..]) {
            (
                None,
                [
                    left,
                    boot,
                    Value::Int(counted @ 0..),
                    Value::Int(is_new @ 0..=1),
                ],
            ) => Self::Note {
                left: millis(left)?,
                boot: word(boot)?,
                counted: *counted as u64,
                is_new: *is_new == 1,
            },
            (Some("none"), [_]) => Self::Blank,
            (Some("other"), [_, label, list, wait, format]) => Self::Other {
                label: word(label)?,
                list: word(list)?,
                wait: word(wait)?,
                format: word(format)?,
            },
            _ => return Err(garbled()),
        })
    }
}

/// The key of the note of a node (see `vet.lua`).
pub(super) fn note(namespace: &str) -> Name<'_> {
    Name::ours(namespace, "lock-core:quorum")
}

/// The key of the counter of fencing tokens of a node.
pub(super) fn counter_of(note: Name<'_>, boot: &str) -> String {
    format!("{note}:fence:{boot}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(second: &str) -> Run {
        let info = format!(
            "# Server\r\nrun_id:0a1\r\n# Replication\r\nmaster_replid:77\r\nmaster_replid2:{second}\r\n"
        );
        Run::read(Value::BulkString(info.into_bytes())).unwrap()
    }

    #[test]
    fn a_server_that_was_a_replica_is_another_run_and_a_backup_is_none() {
        let (never, once) = (run(&"0".repeat(40)), run("5f0"));
        assert!(never.is(&never) && once.is(&once));
        assert!(!never.is(&once));
        assert!(once.is(&never), "it has forgotten the former replication");
        assert!(Run::read(Value::BulkString(b"redis_version:7".to_vec())).is_err());
    }

    #[test]
    fn every_answer_is_understood_and_garbage_is_none() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let note = [Value::Int(7), bulk("b"), Value::Int(5), Value::Int(1)];
        let read = |parts: &[Value]| Vetted::read(&Value::Array(parts.to_vec()));
        let expected = Vetted::Note {
            left: Duration::from_millis(7),
            boot: "b".to_owned(),
            counted: 5,
            is_new: true,
        };
        assert_eq!(read(&note).unwrap(), expected);
        assert_eq!(read(&[bulk("none")]).unwrap(), Vetted::Blank);
        for garbage in [&note[..3], &[bulk("other")], &[]] {
            assert!(read(garbage).is_err(), "{garbage:?}");
        }
    }
}
