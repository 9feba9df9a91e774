//! The commands of strings.
#![expect(
    clippy::unnecessary_wraps,
    reason = "all commands have one signature, that of the table"
)]

use crate::keyspace::{Keyspace, Kind, Value};
use crate::number;
use crate::reply::{Answer, NO_INTEGER, OVERFLOW, Refusal, Reply, SYNTAX, WRONG_TYPE};

type Text = Vec<u8>;

/// GET.
pub(crate) fn get(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let text = keyspace.read::<Text>(words[1])?;
    Ok(Reply::maybe(text.map(Vec::as_slice)))
}

/// MGET: what is no string counts as nothing.
pub(crate) fn mget(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let mut get = |key: &&[u8]| {
        let text = keyspace.entry(key).and_then(|entry| Text::of(&entry.value));
        Reply::maybe(text.map(Vec::as_slice))
    };
    Ok(Reply::Array(words[1..].iter().map(&mut get).collect()))
}

/// The options of SET.
#[expect(
    clippy::struct_excessive_bools,
    reason = "four words that may stand together"
)]
#[derive(Default)]
struct Options<'a> {
    only_if_absent: bool,
    only_if_present: bool,
    get: bool,
    keep_ttl: bool,
    expiry: Option<(Expiry, &'a [u8])>,
}

#[derive(Clone, Copy, PartialEq)]
enum Expiry {
    Seconds,
    Millis,
    AtSeconds,
    AtMillis,
}

impl<'a> Options<'a> {
    fn parse(words: &[&'a [u8]]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            if is("NX") && !options.only_if_present {
                options.only_if_absent = true;
            } else if is("XX") && !options.only_if_absent {
                options.only_if_present = true;
            } else if is("GET") {
                options.get = true;
            } else if is("KEEPTTL") && options.expiry.is_none() {
                options.keep_ttl = true;
            } else if is("EX") {
                options.expire(Expiry::Seconds, words.next())?;
            } else if is("PX") {
                options.expire(Expiry::Millis, words.next())?;
            } else if is("EXAT") {
                options.expire(Expiry::AtSeconds, words.next())?;
            } else if is("PXAT") {
                options.expire(Expiry::AtMillis, words.next())?;
            } else {
                return Err(SYNTAX);
            }
        }
        Ok(options)
    }

    /// A time of the same kind may be said again, and the last one counts.
    fn expire(&mut self, kind: Expiry, value: Option<&&'a [u8]>) -> Result<(), Refusal> {
        let same = self.expiry.is_none_or(|(before, _)| before == kind);
        let value = value.filter(|_| same && !self.keep_ttl).ok_or(SYNTAX)?;
        self.expiry = Some((kind, value));
        Ok(())
    }

    /// When the key expires, in milliseconds of the wall clock.
    fn deadline(&self, now: i64, command: &str) -> Result<Option<i64>, Refusal> {
        self.expiry
            .map(|(kind, value)| deadline(kind, value, now, command))
            .transpose()
    }
}

fn deadline(kind: Expiry, value: &[u8], now: i64, command: &str) -> Result<i64, Refusal> {
    let value = number::parse(value).ok_or(NO_INTEGER)?;
    let millis = match kind {
        Expiry::Seconds | Expiry::AtSeconds => value.checked_mul(1000),
        Expiry::Millis | Expiry::AtMillis => Some(value),
    };
    let millis = millis.filter(|millis| *millis > 0);
    let deadline = millis.and_then(|millis| match kind {
        Expiry::Seconds | Expiry::Millis => millis.checked_add(now),
        Expiry::AtSeconds | Expiry::AtMillis => Some(millis),
    });
    deadline.ok_or_else(|| format!("ERR invalid expire time in '{command}' command").into())
}

/// SET.
pub(crate) fn set(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let (key, value) = (words[1], words[2]);
    let options = Options::parse(&words[3..])?;
    let deadline = options.deadline(keyspace.now_millis(), "set")?;
    let entry = keyspace.entry(key);
    let is_there = entry.is_some();
    let mut reply = Reply::OK;
    if options.get {
        reply = match &entry {
            None => Reply::Nil,
            Some(entry) => Reply::bulk(Text::of(&entry.value).ok_or(WRONG_TYPE)?),
        };
    }
    if options.only_if_absent && is_there || options.only_if_present && !is_there {
        return Ok(if options.get { reply } else { Reply::Nil });
    }
    let Some(entry) = entry else {
        keyspace.put(key, Value::Text(value.to_vec()), deadline);
        return Ok(reply);
    };
    // In place: a counter is set again and again.
    match &mut entry.value {
        Value::Text(text) => {
            text.clear();
            text.extend_from_slice(value);
        }
        other => *other = Value::Text(value.to_vec()),
    }
    if !options.keep_ttl {
        entry.deadline = deadline;
    }
    Ok(reply)
}

/// SETNX.
pub(crate) fn setnx(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let is_free = keyspace.entry(words[1]).is_none();
    if is_free {
        keyspace.put(words[1], Value::Text(words[2].to_vec()), None);
    }
    Ok(Reply::flag(is_free))
}

/// SETEX.
pub(crate) fn setex(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    set_for(keyspace, words, Expiry::Seconds, "setex")
}

/// PSETEX.
pub(crate) fn psetex(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    set_for(keyspace, words, Expiry::Millis, "psetex")
}

fn set_for(keyspace: &mut Keyspace, words: &[&[u8]], kind: Expiry, command: &str) -> Answer {
    let deadline = deadline(kind, words[2], keyspace.now_millis(), command)?;
    keyspace.put(words[1], Value::Text(words[3].to_vec()), Some(deadline));
    Ok(Reply::OK)
}

/// GETSET.
pub(crate) fn getset(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let old = get(keyspace, words)?;
    keyspace.put(words[1], Value::Text(words[2].to_vec()), None);
    Ok(old)
}

/// GETDEL.
pub(crate) fn getdel(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let old = get(keyspace, words)?;
    keyspace.remove(words[1]);
    Ok(old)
}

/// INCR.
pub(crate) fn incr(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    add(keyspace, words[1], 1)
}

/// DECR.
pub(crate) fn decr(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    add(keyspace, words[1], -1)
}

/// INCRBY.
pub(crate) fn incrby(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    add(
        keyspace,
        words[1],
        number::parse(words[2]).ok_or(NO_INTEGER)?,
    )
}

/// DECRBY.
pub(crate) fn decrby(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let by = number::parse(words[2]).ok_or(NO_INTEGER)?;
    let by = by.checked_neg().ok_or("ERR decrement would overflow")?;
    add(keyspace, words[1], by)
}

fn add(keyspace: &mut Keyspace, key: &[u8], by: i64) -> Answer {
    if let Some(text) = keyspace.change::<Text>(key)? {
        let old = number::parse(text).ok_or(NO_INTEGER)?;
        let new = old.checked_add(by).ok_or(OVERFLOW)?;
        *text = new.to_string().into_bytes();
        return Ok(Reply::Int(new));
    }
    keyspace.put(key, Value::Text(by.to_string().into_bytes()), None);
    Ok(Reply::Int(by))
}

/// APPEND.
pub(crate) fn append(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let text = keyspace.make::<Text>(words[1])?;
    text.extend_from_slice(words[2]);
    Ok(Reply::count(text.len()))
}

/// STRLEN.
pub(crate) fn strlen(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let text = keyspace.read::<Text>(words[1])?;
    Ok(Reply::count(text.map_or(0, Vec::len)))
}
