//! The commands of lists.

use std::collections::VecDeque;
use std::ops::Range;

use crate::keyspace::Keyspace;
use crate::number;
use crate::reply::{Answer, NO_INTEGER, Reply, SYNTAX, wrong_arity};

type List = VecDeque<Vec<u8>>;

/// RPUSH.
pub(crate) fn rpush(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let list = keyspace.make::<List>(words[1])?;
    list.extend(words[2..].iter().map(|word| word.to_vec()));
    Ok(Reply::count(list.len()))
}

/// LPUSH.
pub(crate) fn lpush(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let list = keyspace.make::<List>(words[1])?;
    for word in &words[2..] {
        list.push_front(word.to_vec());
    }
    Ok(Reply::count(list.len()))
}

/// LPOP.
pub(crate) fn lpop(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    pop(keyspace, words, "lpop", VecDeque::pop_front)
}

/// RPOP.
pub(crate) fn rpop(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    pop(keyspace, words, "rpop", VecDeque::pop_back)
}

fn pop(
    keyspace: &mut Keyspace,
    words: &[&[u8]],
    name: &str,
    take: fn(&mut List) -> Option<Vec<u8>>,
) -> Answer {
    let key = words[1];
    let count = match words.get(2) {
        None => None,
        Some(_) if words.len() > 3 => return Err(wrong_arity(name)),
        Some(count) => {
            let count = number::parse(count).and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or("ERR value is out of range, must be positive")?)
        }
    };
    let Some(list) = keyspace.change::<List>(key)? else {
        return Ok(if count.is_some() {
            Reply::NilArray
        } else {
            Reply::Nil
        });
    };
    let reply = match count {
        None => take(list).map_or(Reply::Nil, Reply::Bulk),
        Some(count) => {
            let taken = std::iter::from_fn(|| take(list)).take(count);
            Reply::Array(taken.map(Reply::Bulk).collect())
        }
    };
    keyspace.drop_if_spent(key);
    Ok(reply)
}

/// LLEN.
pub(crate) fn llen(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let list = keyspace.read::<List>(words[1])?;
    Ok(Reply::count(list.map_or(0, VecDeque::len)))
}

/// LINSERT.
pub(crate) fn linsert(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let behind = match &words[2].to_ascii_uppercase()[..] {
        b"BEFORE" => 0,
        b"AFTER" => 1,
        _ => return Err(SYNTAX),
    };
    let Some(list) = keyspace.change::<List>(words[1])? else {
        return Ok(Reply::Int(0));
    };
    let Some(place) = list.iter().position(|item| item == words[3]) else {
        return Ok(Reply::Int(-1));
    };
    list.insert(place + behind, words[4].to_vec());
    Ok(Reply::count(list.len()))
}

/// LINDEX. A key that is not there needs no number.
pub(crate) fn lindex(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let Some(list) = keyspace.read::<List>(words[1])? else {
        return Ok(Reply::Nil);
    };
    let index = number::parse(words[2]).ok_or(NO_INTEGER)?;
    let place = usize::try_from(from_start(index, list.len())).ok();
    Ok(Reply::maybe(
        place.and_then(|place| list.get(place)).map(Vec::as_slice),
    ))
}

/// LRANGE.
pub(crate) fn lrange(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let start = number::parse(words[2]).ok_or(NO_INTEGER)?;
    let end = number::parse(words[3]).ok_or(NO_INTEGER)?;
    let Some(list) = keyspace.read::<List>(words[1])? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let range = list.range(span(start, end, list.len()));
    Ok(Reply::Array(range.map(Reply::bulk).collect()))
}

/// LTRIM.
pub(crate) fn ltrim(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let start = number::parse(words[2]).ok_or(NO_INTEGER)?;
    let end = number::parse(words[3]).ok_or(NO_INTEGER)?;
    if let Some(list) = keyspace.change::<List>(words[1])? {
        let span = span(start, end, list.len());
        list.truncate(span.end);
        list.drain(..span.start.min(span.end));
        keyspace.drop_if_spent(words[1]);
    }
    Ok(Reply::OK)
}

/// LREM.
pub(crate) fn lrem(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let count = number::parse(words[2]).ok_or(NO_INTEGER)?;
    let Some(list) = keyspace.change::<List>(words[1])? else {
        return Ok(Reply::Int(0));
    };
    let before = list.len();
    let mut left = match usize::try_from(count.unsigned_abs()) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(count) => count,
    };
    let mut keeps = |item: &Vec<u8>| {
        let goes = left > 0 && item == words[3];
        left -= usize::from(goes);
        !goes
    };
    if count < 0 {
        let kept: List = list.drain(..).rev().filter(|item| keeps(item)).collect();
        list.extend(kept.into_iter().rev());
    } else {
        list.retain(keeps);
    }
    let removed = before - list.len();
    keyspace.drop_if_spent(words[1]);
    Ok(Reply::count(removed))
}

/// An index that may count from the end.
fn from_start(index: i64, len: usize) -> i64 {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    if index < 0 {
        index.saturating_add(len)
    } else {
        index
    }
}

/// What two such indices enclose, the second one included.
fn span(start: i64, end: i64, len: usize) -> Range<usize> {
    let start = usize::try_from(from_start(start, len).max(0)).unwrap_or(len);
    let end = usize::try_from(from_start(end, len).saturating_add(1).max(0)).unwrap_or(len);
    let end = end.min(len);
    if start < end { start..end } else { 0..0 }
}
