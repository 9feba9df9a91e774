//! The hash slots of a cluster: a key in each slot, and which node serves which slots.

use once_cell::sync::Lazy;
use redis::{Cmd, Value, cmd};

use crate::base::slot::{SLOTS, slot_of};
use crate::store::StoreError;
use crate::store::redis::error::garbled;
use crate::store::redis::reply::text;
use crate::store::redis::wire::Name;

/// For each slot, the smallest number that is in it, as a tag.
static TAGS: Lazy<Vec<Box<str>>> = Lazy::new(|| {
    let mut tags: Vec<Option<Box<str>>> = vec![None; SLOTS];
    let (mut missing, mut number) = (SLOTS, 0_u32);
    while missing > 0 {
        let tag = format!("{{{number}}}");
        let slot = &mut tags[slot_of(&tag)];
        if slot.is_none() {
            *slot = Some(tag.into());
            missing -= 1;
        }
        number += 1;
    }
    tags.into_iter().flatten().collect()
});

/// A tag in this slot.
pub(super) fn tag_of(slot: usize) -> &'static str {
    &TAGS[slot]
}

/// The key of the counter in the slot of a lock: all keys of a lock are in one slot.
pub(super) fn fence_of<'a>(namespace: &'a str, lock: &str) -> Name<'a> {
    Name([namespace, "lock-core:fence:", tag_of(slot_of(lock))])
}

pub(super) use crate::store::redis::connection::cluster_settings::Address;

/// The slots from `first` to `last`, the master that serves them, and the ids of the master and its replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) master: Address,
    pub(super) ids: Vec<Box<str>>,
}

pub(super) fn ask_for_slots() -> Cmd {
    let mut slots = cmd("CLUSTER");
    slots.arg("SLOTS");
    slots
}

/// Reads the answer of the node at `asked`: a node without a host of its own is on the host where it was asked.
pub(super) fn read_slots(answer: &Value, asked: &str) -> Result<Vec<Range>, StoreError> {
    let Value::Array(ranges) = answer else {
        return Err(garbled());
    };
    ranges
        .iter()
        .map(|range| read_range(range, asked).ok_or_else(garbled))
        .collect()
}

fn read_range(range: &Value, asked: &str) -> Option<Range> {
    let Value::Array(parts) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(master),
        ..,
    ] = &parts[..]
    else {
        return None;
    };
    let [host, Value::Int(port), ..] = &master[..] else {
        return None;
    };
    // `?` is a host that the node itself does not know yet.
    let host = text(Some(host))
        .filter(|host| !matches!(*host, "" | "?"))
        .unwrap_or(asked);
    let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
    let port = u16::try_from(*port).ok()?;
    let nodes = parts[2..].iter().filter_map(|node| match node {
        Value::Array(node) => text(node.get(2)).map(Box::from),
        _ => None,
    });
    (first <= last && last < SLOTS).then(|| Range {
        first,
        last,
        master: (host.into(), port),
        ids: nodes.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_in_the_slot_of_its_lock() {
        for lock in ["lock:a", "lock:{a}b", "x"] {
            let fence = fence_of("n:", lock).to_string();
            assert_eq!(slot_of(&fence), slot_of(lock), "{fence}");
        }
        assert_eq!(TAGS.len(), SLOTS);
    }

    #[test]
    fn slots_are_read_also_without_hosts() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), bulk("id")]);
        let range =
            |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let answer = Value::Array(vec![
            range(0, 5, node(bulk("10.0.0.1"), 7000)),
            range(6, 9, node(Value::Nil, 7001)),
            range(10, 11, node(bulk("?"), 7002)),
        ]);
        let read = read_slots(&answer, "seed").unwrap();
        let masters: Vec<_> = read
            .iter()
            .map(|range| (&*range.master.0, range.master.1))
            .collect();
        assert_eq!(
            masters,
            [("10.0.0.1", 7000), ("seed", 7001), ("seed", 7002)]
        );
        for garbage in [
            Value::Nil,
            Value::Array(vec![range(0, 16_384, node(bulk("h"), 1))]),
            Value::Array(vec![range(3, 2, node(bulk("h"), 1))]),
            Value::Array(vec![range(0, 1, node(bulk("h"), 70_000))]),
        ] {
            assert!(read_slots(&garbage, "seed").is_err(), "{garbage:?}");
        }
    }
}
