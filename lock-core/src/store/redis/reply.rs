//! The replies of the scripts, as values.

use std::time::Duration;

use redis::Value;

use super::error::garbled;
use crate::base::refusal::Refusal;
use crate::base::token::{Bearer, is_name, number_in};
use crate::store::{
    Answer, OrRefused, Passed, QueuePlace, Released, Snapshot, SnapshotState, StoreError, Together,
};

pub(super) type Parsed<T> = Result<T, StoreError>;

/// The reply to a request for `reserve` reserved tokens.
pub(super) fn acquired(value: Value, reserve: u64) -> Parsed<Answer> {
    match value {
        Value::Int(fence) if fence > 0 => Ok(Answer::Granted {
            fence: fence as u64,
            reserve,
        }),
        Value::Array(parts) => match (text(parts.first()), &parts[..]) {
            (None, [Value::Int(fence @ 1..), reserve]) => Ok(Answer::Granted {
                fence: *fence as u64,
                reserve: number(reserve)?,
            }),
            (Some("busy"), [_, pttl, holder]) => Ok(Answer::Busy {
                remaining: millis(pttl)?,
                holder: name(holder),
            }),
            (Some("queued"), [_, pttl, last, own, holder]) => Ok(Answer::Queued(QueuePlace {
                remaining: millis(pttl)?,
                last_fence: number(last)?,
                holder: name(holder),
                own_holder: text(Some(own)).and_then(number_in),
                // Each client of this library has a name.
                is_foreign: text(Some(holder)) == Some(""),
            })),
            (Some("foreign"), [_, kind]) => Ok(Answer::Refused(Refusal::Foreign(word(kind)?))),
            _ => Err(garbled()),
        },
        _ => Err(garbled()),
    }
}

/// The reply to a request for `count` locks. A refusal ends with the place of the lock, counted from 1.
pub(super) fn acquired_all(value: Value, count: usize) -> Parsed<Together> {
    let Value::Array(mut parts) = value else {
        return Err(garbled());
    };
    if text(parts.first()).is_none() {
        let fences: Vec<_> = parts.iter().map(number).collect::<Result<_, _>>()?;
        return if fences.len() == count && !fences.contains(&0) {
            Ok(Together::Granted(fences))
        } else {
            Err(garbled())
        };
    }
    let at = parts.pop().map_or(Ok(0), |at| number(&at))? as usize;
    match acquired(Value::Array(parts), 0)? {
        answer @ (Answer::Busy { .. } | Answer::Refused(_)) if (1..=count).contains(&at) => {
            Ok(Together::Refused(at - 1, answer))
        }
        _ => Err(garbled()),
    }
}

pub(super) fn passed(value: Value, reserve: u64) -> Parsed<Passed> {
    match &value {
        Value::Array(parts) if text(parts.first()) == Some("lost") => Ok(Passed::Lost),
        _ => acquired(value, reserve).map(Passed::On),
    }
}

pub(super) fn released(value: &Value) -> Parsed<Released> {
    match value {
        Value::Int(0) => Ok(Released::NotHeld),
        Value::Int(1) => Ok(Released::Free),
        Value::Int(2) => Ok(Released::HandedOver),
        _ => Err(garbled()),
    }
}

pub(crate) fn extended(value: Value, expected: usize) -> Parsed<Vec<bool>> {
    match value {
        Value::Int(all) if usize::try_from(all) == Ok(expected) => Ok(vec![true; expected]),
        Value::Array(flags) if flags.len() == expected => flags
            .iter()
            .map(|flag| number(flag).map(|n| n == 1))
            .collect(),
        _ => Err(garbled()),
    }
}

pub(crate) fn inspected(value: Value) -> Parsed<Snapshot> {
    let Value::Array(parts) = value else {
        return Err(garbled());
    };
    let [_, waiting, Value::Array(queue), fence, rest @ ..] = &parts[..] else {
        return Err(garbled());
    };
    let state = match (text(parts.first()), rest) {
        (Some("free"), []) => SnapshotState::Free,
        (Some("held"), [pttl, client, token]) => SnapshotState::Held {
            remaining: millis(pttl)?,
            client: lossy(client)?,
            holder: Bearer::parse(&lossy(token)?),
            holds: 1,
            owner: None,
        },
        (Some("foreign"), [kind]) => SnapshotState::Foreign { kind: word(kind)? },
        _ => return Err(garbled()),
    };
    let bearer = |token| lossy(token).map(|token| Bearer::parse(&token));
    Ok(Snapshot {
        state,
        waiting: number(waiting)?,
        queue: queue.iter().map(bearer).collect::<Result<_, _>>()?,
        // Any text may stand under the key of the counter.
        fence: number(fence).unwrap_or(0),
        nodes: Vec::new(),
    })
}

pub(crate) fn forced(value: Value) -> OrRefused<bool> {
    match value {
        Value::Int(0) => Ok(Ok(false)),
        Value::Int(1) => Ok(Ok(true)),
        Value::Array(parts) => match &parts[..] {
            [_, kind] => Ok(Err(Refusal::Foreign(word(kind)?))),
            _ => Err(garbled()),
        },
        _ => Err(garbled()),
    }
}

pub(in crate::store) fn text(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(in crate::store) fn word(value: &Value) -> Parsed<String> {
    text(Some(value)).map(str::to_owned).ok_or_else(garbled)
}

/// The name of a client, unless people cannot read it.
pub(in crate::store) fn name(value: &Value) -> Option<Box<str>> {
    let name = text(Some(value)).filter(|name| is_name(name))?;
    Some(name.into())
}

/// The token of another client may be any bytes, cut anywhere.
pub(super) fn lossy(value: &Value) -> Parsed<String> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Err(garbled()),
    }
}

pub(super) fn number(value: &Value) -> Parsed<u64> {
    match value {
        Value::Int(n) => u64::try_from(*n).ok(),
        other => text(Some(other)).and_then(|digits| digits.parse().ok()),
    }
    .ok_or_else(garbled)
}

/// A PTTL. It is negative for a key that expired while the script ran (possible before Redis 7.2).
pub(in crate::store) fn millis(value: &Value) -> Parsed<Duration> {
    match value {
        Value::Int(n) => Ok(Duration::from_millis(u64::try_from(*n).unwrap_or(0))),
        _ => Err(garbled()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn every_answer_of_acquire_is_understood() {
        assert_eq!(
            acquired(Value::Int(9), 7).unwrap(),
            Answer::Granted {
                fence: 9,
                reserve: 7
            }
        );
        let fewer = Value::Array(vec![Value::Int(9), Value::Int(2)]);
        assert_eq!(
            acquired(fewer, 7).unwrap(),
            Answer::Granted {
                fence: 9,
                reserve: 2
            }
        );
        let busy = |pttl| Value::Array(vec![bulk("busy"), Value::Int(pttl), bulk("orders-7")]);
        let remaining = |pttl| match acquired(busy(pttl), 0).unwrap() {
            Answer::Busy { remaining, holder } => {
                assert_eq!(holder.as_deref(), Some("orders-7"));
                remaining
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(remaining(1500), Duration::from_millis(1500));
        assert_eq!(remaining(-2), Duration::ZERO, "over by now");
        let queued = Value::Array(vec![
            bulk("queued"),
            Value::Int(1500),
            bulk("1763700000000000"),
            bulk(&format!("{}:42:orders-7", "0".repeat(36))),
            bulk("not a name"),
        ]);
        let Answer::Queued(place) = acquired(queued, 0).unwrap() else {
            panic!("queued expected")
        };
        assert_eq!(place.remaining, Duration::from_millis(1500));
        assert_eq!(place.last_fence, 1_763_700_000_000_000);
        assert_eq!((place.own_holder, place.holder), (Some(42), None));
    }

    #[test]
    fn renewals_are_answered_by_their_number_or_one_by_one() {
        assert_eq!(extended(Value::Int(3), 3).unwrap(), [true; 3]);
        assert!(extended(Value::Int(2), 3).is_err());
        let flags = Value::Array(vec![Value::Int(1), Value::Int(0)]);
        assert_eq!(extended(flags.clone(), 2).unwrap(), [true, false]);
        assert!(extended(flags, 3).is_err());
    }

    #[test]
    fn garbage_is_an_error_and_never_a_grant() {
        let garbage = [
            Value::Nil,
            Value::Okay,
            Value::Int(0),
            Value::Int(-1),
            Value::Array(vec![]),
            Value::Array(vec![bulk("queued")]),
            Value::Array(vec![bulk("granted"), Value::Int(1)]),
            bulk("1"),
        ];
        for value in garbage {
            assert!(acquired(value.clone(), 0).is_err(), "{value:?}");
            assert!(extended(value.clone(), 1).is_err(), "{value:?}");
            assert!(inspected(value).is_err());
        }
        assert!(released(&Value::Int(3)).is_err());
    }
}
