//! The reentrant kind: Redisson's `RLock` on the wire, with the scripts of `scripts/reentrant`.

use redis::Value;

use super::endpoint::Purpose;
use super::error::garbled;
use super::reply::{Parsed, lease, number, text, word};
use super::script::reentrant as script;
use super::wire::{Arg, CHANNELS};
use super::{RedisStore, reply};
use crate::base::key::{Name, Names};
use crate::base::token::{Bearer, CLIENT_LEN, Token};
use crate::store::{Answer, Attempt, Forced, Released, Renewal, Snapshot, SnapshotState};

/// The command that announces a release.
const PUBLISH: Arg<'static> = Arg::Text("PUBLISH");

/// An acquisition without an owner is its own owner: its token has the same form, and is unique.
fn or_token<'a>(owner: Option<&'a str>, token: &'a Token) -> Arg<'a> {
    Arg::Text(owner.unwrap_or_else(|| token.as_str()))
}

impl RedisStore {
    pub(super) async fn reenter(&self, attempt: Attempt<'_>, holds: Name<'_>) -> Parsed<Answer> {
        let value = self
            .run_for(
                Purpose::Grant,
                &script::ACQUIRE,
                &[attempt.key.lock().into(), holds, self.fence(attempt.key)],
                &[
                    or_token(attempt.owner, attempt.token),
                    Arg::Text(attempt.token.as_str()),
                    Arg::Millis(attempt.ttl),
                    Arg::Number(attempt.reserve),
                ],
            )
            .await?;
        reply::acquired(value, attempt.reserve)
    }

    pub(super) async fn leave(
        &self,
        keys: [Name<'_>; 3],
        token: &Token,
        owner: Option<&str>,
    ) -> Parsed<Released> {
        let value = self
            .run(
                &script::RELEASE,
                &keys,
                &[or_token(owner, token), Arg::Text(token.as_str()), PUBLISH],
            )
            .await?;
        released(&value)
    }

    pub(super) async fn extend_reentrant(&self, renewals: &[Renewal<'_>]) -> Parsed<Vec<bool>> {
        let mut keys = Vec::with_capacity(renewals.len() * 2);
        let mut args = Vec::with_capacity(renewals.len() * 3);
        for renewal in renewals {
            let Names::Reentrant { holds, .. } = renewal.key.names() else {
                continue;
            };
            keys.extend([renewal.key.lock().into(), holds]);
            args.extend([
                or_token(renewal.owner, renewal.token),
                Arg::Text(renewal.token.as_str()),
                Arg::Millis(renewal.ttl),
            ]);
        }
        let value = self
            .run_renewal(renewals, &script::EXTEND, &keys, &args)
            .await?;
        reply::extended(value, renewals.len())
    }

    pub(super) async fn inspect_reentrant(&self, lock: &str, holds: Name<'_>) -> Parsed<Snapshot> {
        let keys = [lock.into(), holds];
        inspected(&self.run(&script::INSPECT, &keys, &[]).await?)
    }

    pub(super) async fn force_reentrant(&self, keys: [Name<'_>; 3]) -> Parsed<Forced> {
        let value = self
            .run(
                &script::FORCE_RELEASE,
                &keys,
                &[PUBLISH, Arg::Text(CHANNELS)],
            )
            .await?;
        reply::forced(value)
    }
}

fn released(value: &Value) -> Parsed<Released> {
    match value {
        Value::Int(-1) => Ok(Released::NotHeld),
        Value::Array(parts) => match parts[..] {
            [Value::Int(heard)] if heard >= 0 => Ok(Released::Announced {
                heard: heard as u64,
            }),
            _ => Err(garbled()),
        },
        Value::Int(holds) if *holds > 0 => Ok(Released::StillHeld {
            holds: *holds as u64,
        }),
        _ => Err(garbled()),
    }
}

fn inspected(value: &Value) -> Parsed<Snapshot> {
    let Value::Array(parts) = value else {
        return Err(garbled());
    };
    let mut last = 0;
    let state = match (text(parts.first()), &parts[..]) {
        (Some("free"), [_]) => SnapshotState::Free,
        (Some("held"), [_, pttl, Value::BulkString(owner), holds, name, fence]) => {
            // The owner of another client may be any bytes.
            let owner = String::from_utf8_lossy(owner).into_owned();
            last = number(fence).unwrap_or(0);
            SnapshotState::Held {
                remaining: lease(pttl)?,
                client: owner.chars().take(CLIENT_LEN).collect(),
                holder: Bearer::began_with(last, reply::name(name)),
                holds: at_least_one(holds)?,
                owner: Some(owner),
            }
        }
        (Some("foreign"), [_, kind]) => SnapshotState::Foreign { kind: word(kind)? },
        _ => return Err(garbled()),
    };
    // Waiters only subscribe: there is no queue to count.
    Ok(Snapshot {
        state,
        waiting: 0,
        queue: Vec::new(),
        fence: last,
        nodes: Vec::new(),
    })
}

fn at_least_one(holds: &Value) -> Parsed<u64> {
    number(holds)?
        .checked_sub(1)
        .map_or_else(|| Err(garbled()), |n| Ok(n + 1))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::store::NO_TTL;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn every_answer_is_understood() {
        assert_eq!(released(&Value::Int(-1)).unwrap(), Released::NotHeld);
        let free = Released::Announced { heard: 2 };
        let answer = Value::Array(vec![Value::Int(2)]);
        assert_eq!(released(&answer).unwrap(), free);
        let still = Released::StillHeld { holds: 3 };
        assert_eq!(released(&Value::Int(3)).unwrap(), still);
        let held = Value::Array(vec![
            bulk("held"),
            Value::Int(-1),
            bulk("me"),
            Value::Int(4),
            bulk("orders-7"),
            bulk("1800000000000000"),
        ]);
        let state = SnapshotState::Held {
            remaining: NO_TTL,
            client: "me".to_owned(),
            holder: Bearer {
                name: Some("orders-7".into()),
                since: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)),
            },
            holds: 4,
            owner: Some("me".to_owned()),
        };
        assert_eq!(inspected(&held).unwrap().state, state);
    }

    #[test]
    fn garbage_is_an_error_and_never_a_grant() {
        let garbage = [
            Value::Nil,
            Value::Okay,
            Value::Int(9),
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(9)]),
            Value::Array(vec![
                bulk("held"),
                Value::Int(9),
                bulk("me"),
                Value::Int(0),
                bulk(""),
                bulk("0"),
            ]),
            bulk("1"),
        ];
        for value in garbage {
            assert!(inspected(&value).is_err(), "{value:?}");
        }
        assert!(released(&Value::Int(-2)).is_err());
        assert!(released(&Value::Int(0)).is_err());
        assert!(released(&Value::Array(vec![])).is_err());
        assert!(released(&Value::Array(vec![Value::Int(-1)])).is_err());
        assert!(released(&Value::Nil).is_err());
    }
}
