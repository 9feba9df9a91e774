//! The commands that look at a key and not at its value.
#![expect(
    clippy::unnecessary_wraps,
    reason = "all commands have one signature, that of the table"
)]

use crate::keyspace::Keyspace;
use crate::number;
use crate::reply::{Answer, NO_INTEGER, Refusal, Reply};

/// DEL and UNLINK.
pub(crate) fn del(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    Ok(Reply::count(
        words[1..].iter().filter(|key| keyspace.remove(key)).count(),
    ))
}

/// EXISTS, which counts a key as often as it is named.
pub(crate) fn exists(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let there = words[1..]
        .iter()
        .filter(|key| keyspace.entry(key).is_some());
    Ok(Reply::count(there.count()))
}

/// TYPE.
pub(crate) fn kind(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let entry = keyspace.entry(words[1]);
    Ok(Reply::Status(
        entry.map_or("none", |entry| entry.value.kind()).into(),
    ))
}

/// PTTL.
pub(crate) fn pttl(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    Ok(Reply::Int(left(keyspace, words[1], |millis| millis)))
}

/// TTL.
pub(crate) fn ttl(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    Ok(Reply::Int(left(keyspace, words[1], |millis| {
        (millis + 500) / 1000
    })))
}

fn left(keyspace: &mut Keyspace, key: &[u8], unit: fn(i64) -> i64) -> i64 {
    let now = keyspace.now_millis();
    match keyspace.entry(key) {
        None => -2,
        Some(entry) => entry
            .deadline
            .map_or(-1, |deadline| unit((deadline - now).max(0))),
    }
}

/// PEXPIRE.
pub(crate) fn pexpire(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let now = keyspace.now_millis();
    expire_at(keyspace, words, "pexpire", |millis| millis.checked_add(now))
}

/// EXPIRE.
pub(crate) fn expire(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let now = keyspace.now_millis();
    expire_at(keyspace, words, "expire", |seconds| {
        seconds.checked_mul(1000)?.checked_add(now)
    })
}

/// PEXPIREAT.
pub(crate) fn pexpireat(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    expire_at(keyspace, words, "pexpireat", Some)
}

/// EXPIREAT.
pub(crate) fn expireat(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    expire_at(keyspace, words, "expireat", |seconds| {
        seconds.checked_mul(1000)
    })
}

fn expire_at(
    keyspace: &mut Keyspace,
    words: &[&[u8]],
    command: &str,
    deadline: impl FnOnce(i64) -> Option<i64>,
) -> Answer {
    let condition = Condition::parse(&words[3..])?;
    let time = number::parse(words[2]).ok_or(NO_INTEGER)?;
    let deadline =
        deadline(time).ok_or_else(|| format!("ERR invalid expire time in '{command}' command"))?;
    let now = keyspace.now_millis();
    let Some(entry) = keyspace.entry(words[1]) else {
        return Ok(Reply::Int(0));
    };
    if !condition.allows(entry.deadline, deadline) {
        return Ok(Reply::Int(0));
    }
    entry.deadline = Some(deadline);
    if deadline <= now {
        keyspace.remove_now(words[1]);
    }
    Ok(Reply::Int(1))
}

/// The options of EXPIRE and its kin.
#[expect(
    clippy::struct_excessive_bools,
    reason = "four words that may stand together"
)]
#[derive(Default)]
struct Condition {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
}

impl Condition {
    fn parse(words: &[&[u8]]) -> Result<Self, Refusal> {
        let mut condition = Self::default();
        for word in words {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            if is("NX") {
                condition.absent = true;
            } else if is("XX") {
                condition.present = true;
            } else if is("GT") {
                condition.greater = true;
            } else if is("LT") {
                condition.less = true;
            } else {
                let word = String::from_utf8_lossy(word);
                return Err(format!("ERR Unsupported option {word}").into());
            }
        }
        if condition.absent && (condition.present || condition.greater || condition.less) {
            return Err(
                "ERR NX and XX, GT or LT options at the same time are not compatible".into(),
            );
        }
        if condition.greater && condition.less {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(condition)
    }

    /// A key without a deadline lives longer than any.
    fn allows(&self, old: Option<i64>, new: i64) -> bool {
        !(self.absent && old.is_some()
            || self.present && old.is_none()
            || self.greater && old.is_none_or(|old| new <= old)
            || self.less && old.is_some_and(|old| new >= old))
    }
}

/// PERSIST.
pub(crate) fn persist(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let entry = keyspace.entry(words[1]);
    Ok(Reply::flag(
        entry.is_some_and(|entry| entry.deadline.take().is_some()),
    ))
}

/// KEYS, sorted, which a server does not promise.
pub(crate) fn keys(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let keys = keyspace.keys().into_iter();
    let matching = keys.filter(|key| glob(words[1], key));
    Ok(Reply::Array(matching.map(Reply::bulk).collect()))
}

/// Whether a key fits a pattern of `*` and `?`.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|from| glob(rest, &text[from..])),
        ([b'?', pattern @ ..], [_, text @ ..]) => glob(pattern, text),
        ([b'\\', a, pattern @ ..] | [a, pattern @ ..], [b, text @ ..]) => {
            a == b && glob(pattern, text)
        }
        _ => false,
    }
}

/// DBSIZE.
pub(crate) fn dbsize(keyspace: &mut Keyspace, _words: &[&[u8]]) -> Answer {
    Ok(Reply::count(keyspace.len()))
}

/// FLUSHALL and FLUSHDB.
pub(crate) fn flush(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let is_known =
        |word: &[u8]| word.eq_ignore_ascii_case(b"ASYNC") || word.eq_ignore_ascii_case(b"SYNC");
    if words.len() > 2 || words.get(1).is_some_and(|word| !is_known(word)) {
        return Err(crate::reply::SYNTAX);
    }
    keyspace.clear();
    Ok(Reply::OK)
}

/// TIME.
pub(crate) fn time(keyspace: &mut Keyspace, _words: &[&[u8]]) -> Answer {
    let now = keyspace.now_micros();
    let parts = [now / 1_000_000, now % 1_000_000];
    Ok(Reply::Array(
        parts.map(|part| Reply::bulk(part.to_string())).into(),
    ))
}
