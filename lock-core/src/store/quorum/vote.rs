//! The answer of a node of a quorum to a request for its vote.

use std::time::Duration;

use redis::Value;

use crate::store::StoreError;
use crate::store::redis::{garbled, millis, name, text, word};

/// The answer of one node to [`Ballot::acquire`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Vote {
    /// The first of its fencing tokens, and the clock of the node, ms.
    Granted {
        minted: u64,
        clock: i64,
    },
    Busy {
        left: Duration,
        client: String,
        /// The name of this client, if it has one.
        name: Option<Box<str>>,
    },
    Foreign {
        kind: String,
    },
}

/// Whether the node has no counter of the name that the client knows: it has lost data, and has to be vetted.
pub(super) fn is_unknown(value: &Value) -> bool {
    matches!(value, Value::Array(parts) if parts.len() == 1 && text(parts.first()) == Some("unknown"))
}

impl Vote {
    pub(super) fn read(value: &Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(parts) => match (text(parts.first()), &parts[..]) {
                (None, [Value::Int(minted @ 1..), Value::Int(clock)]) => Ok(Self::Granted {
                    minted: *minted as u64,
                    clock: *clock,
                }),
                (Some("busy"), [_, left, client, node_name]) => Ok(Self::Busy {
                    name: name(node_name),
                    left: millis(left)?,
                    // The token of another client may be any bytes, cut anywhere.
                    client: match client {
                        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                        _ => return Err(garbled()),
                    },
                }),
                (Some("foreign"), [_, kind]) => Ok(Self::Foreign { kind: word(kind)? }),
                _ => Err(garbled()),
            },
            _ => Err(garbled()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn every_vote_is_understood_and_garbage_is_none() {
        let read = Vote::read;
        let granted = Value::Array(vec![Value::Int(9), Value::Int(7)]);
        let (minted, clock) = (9, 7);
        assert_eq!(read(&granted).unwrap(), Vote::Granted { minted, clock });
        let busy = Value::Array(vec![bulk("busy"), Value::Int(40), bulk("0a"), bulk("n")]);
        let left = Duration::from_millis(40);
        let client = "0a".to_owned();
        assert_eq!(
            read(&busy).unwrap(),
            Vote::Busy {
                left,
                client,
                name: Some("n".into())
            }
        );
        let zero = Value::Array(vec![Value::Int(0), Value::Int(7)]);
        for garbage in [
            Value::Nil,
            Value::Int(9),
            zero,
            Value::Array(vec![bulk("busy")]),
        ] {
            assert!(read(&garbage).is_err(), "{garbage:?}");
        }
    }
}
