//! Hashes, and their commands.

use crate::keyspace::Keyspace;
use crate::number;
use crate::reply::{Answer, NO_INTEGER, OVERFLOW, Reply, wrong_arity};

/// The fields of a hash, in the order in which they came: so a server lists those of a small one.
///
/// A list, since the hashes of locks have few fields, and a search is a comparison of lengths first.
#[derive(Debug, Default, Clone)]
pub(crate) struct Fields(Vec<(Vec<u8>, Vec<u8>)>);

impl Fields {
    fn place(&self, field: &[u8]) -> Option<usize> {
        self.0.iter().position(|(name, _)| name == field)
    }

    fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.place(field).map(|place| self.0[place].1.as_slice())
    }

    /// Sets a field; whether it is new.
    fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        if let Some(place) = self.place(field) {
            let old = &mut self.0[place].1;
            old.clear();
            old.extend_from_slice(value);
            return false;
        }
        self.0.push((field.to_vec(), value.to_vec()));
        true
    }

    fn remove(&mut self, field: &[u8]) -> bool {
        let place = self.place(field);
        place.map(|place| self.0.remove(place)).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn pairs(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.0
    }
}

/// HSET, and HMSET, which says `OK`.
pub(crate) fn hset(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let many = words[0].len() > 4;
    if words.len().is_multiple_of(2) {
        let added = keyspace.make::<Fields>(words[1]).map(|fields| {
            let pairs = words[2..].chunks_exact(2);
            pairs.filter(|pair| fields.set(pair[0], pair[1])).count()
        })?;
        return Ok(if many { Reply::OK } else { Reply::count(added) });
    }
    Err(wrong_arity(if many { "hmset" } else { "hset" }))
}

/// HSETNX.
pub(crate) fn hsetnx(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let fields = keyspace.make::<Fields>(words[1])?;
    let is_new = fields.place(words[2]).is_none();
    if is_new {
        fields.set(words[2], words[3]);
    }
    Ok(Reply::flag(is_new))
}

/// HGET.
pub(crate) fn hget(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let fields = keyspace.read::<Fields>(words[1])?;
    Ok(Reply::maybe(fields.and_then(|fields| fields.get(words[2]))))
}

/// HMGET.
pub(crate) fn hmget(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let fields = keyspace.read::<Fields>(words[1])?;
    let get = |field: &&[u8]| Reply::maybe(fields.and_then(|fields| fields.get(field)));
    Ok(Reply::Array(words[2..].iter().map(get).collect()))
}

/// HEXISTS.
pub(crate) fn hexists(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let fields = keyspace.read::<Fields>(words[1])?;
    Ok(Reply::flag(
        fields.is_some_and(|fields| fields.place(words[2]).is_some()),
    ))
}

/// HSTRLEN.
pub(crate) fn hstrlen(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let fields = keyspace.read::<Fields>(words[1])?;
    let value = fields.and_then(|fields| fields.get(words[2]));
    Ok(Reply::count(value.map_or(0, <[u8]>::len)))
}

/// HLEN.
pub(crate) fn hlen(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let fields = keyspace.read::<Fields>(words[1])?;
    Ok(Reply::count(fields.map_or(0, |fields| fields.0.len())))
}

/// HKEYS.
pub(crate) fn hkeys(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let pairs = keyspace
        .read::<Fields>(words[1])?
        .map(Fields::pairs)
        .unwrap_or_default();
    Ok(Reply::Array(
        pairs.iter().map(|(field, _)| Reply::bulk(field)).collect(),
    ))
}

/// HVALS.
pub(crate) fn hvals(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let pairs = keyspace
        .read::<Fields>(words[1])?
        .map(Fields::pairs)
        .unwrap_or_default();
    Ok(Reply::Array(
        pairs.iter().map(|(_, value)| Reply::bulk(value)).collect(),
    ))
}

/// HGETALL.
pub(crate) fn hgetall(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let pairs = keyspace
        .read::<Fields>(words[1])?
        .map(Fields::pairs)
        .unwrap_or_default();
    let pair = |(field, value): &(Vec<u8>, Vec<u8>)| (Reply::bulk(field), Reply::bulk(value));
    Ok(Reply::Map(pairs.iter().map(pair).collect()))
}

/// HDEL. The last field takes the key with it.
pub(crate) fn hdel(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let key = words[1];
    let Some(fields) = keyspace.change::<Fields>(key)? else {
        return Ok(Reply::Int(0));
    };
    let removed = words[2..]
        .iter()
        .filter(|field| fields.remove(field))
        .count();
    keyspace.drop_if_spent(key);
    Ok(Reply::count(removed))
}

/// HINCRBY.
pub(crate) fn hincrby(keyspace: &mut Keyspace, words: &[&[u8]]) -> Answer {
    let by = number::parse(words[3]).ok_or(NO_INTEGER)?;
    let fields = keyspace.make::<Fields>(words[1])?;
    let old = match fields.get(words[2]) {
        Some(value) => number::parse(value).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(OVERFLOW)?;
    fields.set(words[2], new.to_string().as_bytes());
    Ok(Reply::Int(new))
}
