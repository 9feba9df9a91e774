//! The keys, their values, and when they expire.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use crate::hashes::Fields;
use crate::reply::{Refusal, WRONG_TYPE};

type Entries = HashMap<Vec<u8>, Entry, BuildHasherDefault<DefaultHasher>>;

/// A copy of all keys at a moment, with the moments at which they expire.
#[derive(Debug, Default, Clone)]
pub struct Data(Entries);

/// One database. Nothing here depends on the order in which a map is walked.
#[derive(Debug, Default)]
pub(crate) struct Keyspace {
    entries: Entries,
    now_micros: u64,
    /// A replica hides what has expired, and leaves the removal to its master.
    pub(crate) read_only: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// Milliseconds of the wall clock; the key is there up to and with this one.
    pub(crate) deadline: Option<i64>,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(Fields),
}

impl Value {
    /// The name of the type, as TYPE says it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
        }
    }

    /// Whether nothing is left of it: then the key goes, too.
    fn is_spent(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::List(list) => list.is_empty(),
            Self::Hash(fields) => fields.is_empty(),
        }
    }
}

/// A type of value that a command works on.
pub(crate) trait Kind: Default {
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    fn wrap(self) -> Value;
}

macro_rules! kind {
    ($type:ty, $variant:ident) => {
        impl Kind for $type {
            fn of(value: &Value) -> Option<&Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }

            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }

            fn wrap(self) -> Value {
                Value::$variant(self)
            }
        }
    };
}

kind!(Vec<u8>, Text);
kind!(VecDeque<Vec<u8>>, List);
kind!(Fields, Hash);

impl Keyspace {
    pub(crate) fn set_time(&mut self, now_micros: u64) {
        self.now_micros = now_micros;
    }

    pub(crate) fn now_micros(&self) -> u64 {
        self.now_micros
    }

    pub(crate) fn now_millis(&self) -> i64 {
        i64::try_from(self.now_micros / 1000).unwrap_or(i64::MAX)
    }

    /// The entry, unless it has expired. Removes nothing.
    pub(crate) fn peek(&self, key: &[u8]) -> Option<&Entry> {
        let entry = self.entries.get(key)?;
        self.is_live(entry).then_some(entry)
    }

    fn is_live(&self, entry: &Entry) -> bool {
        entry
            .deadline
            .is_none_or(|deadline| self.now_millis() <= deadline)
    }

    /// The entry, removed where it has expired.
    pub(crate) fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        if !self.read_only
            && let Some(entry) = self.entries.get(key)
            && !self.is_live(entry)
        {
            self.entries.remove(key);
        }
        let now = self.now_millis();
        self.entries
            .get_mut(key)
            .filter(|entry| entry.deadline.is_none_or(|deadline| now <= deadline))
    }

    /// The value of a type, to read.
    pub(crate) fn read<T: Kind>(&mut self, key: &[u8]) -> Result<Option<&T>, Refusal> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => T::of(&entry.value).map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// The value of a type, to change.
    pub(crate) fn change<T: Kind>(&mut self, key: &[u8]) -> Result<Option<&mut T>, Refusal> {
        match self.entry(key) {
            None => Ok(None),
            Some(entry) => T::of_mut(&mut entry.value).map(Some).ok_or(WRONG_TYPE),
        }
    }

    /// The value of a type, made where there is none.
    pub(crate) fn make<T: Kind>(&mut self, key: &[u8]) -> Result<&mut T, Refusal> {
        if self.entry(key).is_none() {
            self.put(key, T::default().wrap(), None);
        }
        self.change(key)?.ok_or(WRONG_TYPE)
    }

    /// Sets a key, whatever it held.
    pub(crate) fn put(&mut self, key: &[u8], value: Value, deadline: Option<i64>) {
        let entry = Entry { value, deadline };
        if let Some(old) = self.entries.get_mut(key) {
            *old = entry;
        } else {
            self.entries.insert(key.to_vec(), entry);
        }
    }

    /// Removes a key; whether it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some() && self.entries.remove(key).is_some()
    }

    /// Removes a key that is known to be there, expired or not.
    pub(crate) fn remove_now(&mut self, key: &[u8]) {
        self.entries.remove(key);
    }

    /// Removes a key of which nothing is left.
    pub(crate) fn drop_if_spent(&mut self, key: &[u8]) {
        if self
            .entries
            .get(key)
            .is_some_and(|entry| entry.value.is_spent())
        {
            self.entries.remove(key);
        }
    }

    pub(crate) fn data(&self) -> Data {
        Data(self.entries.clone())
    }

    pub(crate) fn replace(&mut self, Data(entries): Data) {
        self.entries = entries;
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    /// What DBSIZE counts: a key that has expired is one until it is touched.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The keys that have not expired, sorted.
    pub(crate) fn keys(&self) -> Vec<&[u8]> {
        let live = self.entries.iter().filter(|(_, entry)| self.is_live(entry));
        let mut keys: Vec<_> = live.map(|(key, _)| key.as_slice()).collect();
        keys.sort_unstable();
        keys
    }
}
