//! Lock names: what is allowed, and how one becomes part of other names.

use std::hash::{BuildHasher, Hash, Hasher};

use once_cell::sync::Lazy;

use crate::base::error::LockError;
use crate::base::kind::{Kind, Traits};
use crate::base::rt::RandomState;

/// The longest key, in bytes.
const MAX_LEN: usize = 1024;

/// The prefix of derived keys, so no lock may have it.
pub(crate) const RESERVED: &str = "lock-core:";

/// The key of a lock. One text, since thousands of locks may be held: every name of it on a server is a part of this text behind a
/// fixed beginning.
#[derive(Debug)]
pub(crate) struct LockKey {
    /// The name of the lock as a hash tag, or its tag and then its name: the end of the keys beside the lock.
    tagged: Box<str>,
    /// The position of the lock's name in `tagged`.
    start: u16,
    prefix_len: u16,
    kind: Kind,
    /// The hash of the name, since each acquisition looks it up several times. Three bytes, which fit beside the kind.
    hash: [u8; 3],
}

/// Users choose the names, so the hashes are seeded at random: names cannot be chosen to collide.
static HASHES: Lazy<RandomState> = Lazy::new(RandomState::default);

// The other fields follow from the kind and the name.
impl PartialEq for LockKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.kind == other.kind && self.lock() == other.lock()
    }
}

impl Eq for LockKey {}

impl Hash for LockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c] = self.hash;
        state.write_u64(u64::from_le_bytes([a, b, c, self.kind as u8, 0, 0, 0, 0]));
    }
}

impl LockKey {
    pub(crate) fn new(prefix: &str, key: &str) -> Result<Self, LockError> {
        Self::checked(prefix, key, Kind::Exclusive)
    }

    pub(crate) fn reentrant(prefix: &str, key: &str) -> Result<Self, LockError> {
        Self::checked(prefix, key, Kind::Reentrant)
    }

    /// The locks with this name on the server of which releases are announced. The name was checked as prefix and key: both
    /// together may be longer than a key.
    pub(crate) fn announced(lock: &str) -> impl Iterator<Item = Self> {
        let tag = tag(lock).unwrap_or_default();
        let kinds = Kind::all().filter(|kind| !kind.traits().queues);
        kinds.map(move |kind| Self::of("", lock, tag, kind))
    }

    /// The lock of this kind with this name on the server, if it has the prefix. The name comes from outside.
    pub(crate) fn named(prefix: &str, lock: &str, kind: Kind) -> Option<Self> {
        Self::checked(prefix, lock.strip_prefix(prefix)?, kind).ok()
    }

    fn checked(prefix: &str, key: &str, kind: Kind) -> Result<Self, LockError> {
        let tag = check(prefix, key).map_err(|reason| LockError::InvalidKey {
            key: key.chars().take(64).collect(),
            reason,
        })?;
        Ok(Self::of(prefix, key, tag, kind))
    }

    fn of(prefix: &str, key: &str, tag: Option<(usize, usize)>, kind: Kind) -> Self {
        // A name without a tag becomes the tag as a whole. A name with a tag follows a copy of its tag, which no name without a tag
        // can produce: `a` and `{a}` do not share a queue.
        let (before, between, after) = match tag {
            Some((open, close)) => (&key[open..=close], ":", ""),
            None => ("{", "", "}"),
        };
        let tagged = [before, between, prefix, key, after].concat();
        let [a, b, c, ..] = HASHES.hash_one(&tagged).to_le_bytes();
        Self {
            tagged: tagged.into(),
            // Prefix and key are at most 1024 bytes each.
            start: (before.len() + between.len()) as u16,
            prefix_len: prefix.len() as u16,
            kind,
            hash: [a, b, c],
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// What this lock can do.
    pub(crate) fn traits(&self) -> &'static Traits {
        self.kind.traits()
    }

    /// The lock itself on the server: prefix and key.
    pub(crate) fn lock(&self) -> &str {
        let end = self.tagged.len() - usize::from(self.is_its_own_tag());
        &self.tagged[usize::from(self.start)..end]
    }

    /// The key as the user wrote it.
    pub(crate) fn name(&self) -> &str {
        &self.lock()[usize::from(self.prefix_len)..]
    }

    /// The name behind its hash tag: the end of each key beside the lock, which is then in the lock's hash slot. No two locks have
    /// the same.
    pub(crate) fn tagged(&self) -> &str {
        &self.tagged
    }

    /// The name, as a hash tag if it has none.
    pub(crate) fn with_tag(&self) -> &str {
        if self.is_its_own_tag() {
            &self.tagged
        } else {
            self.lock()
        }
    }

    fn is_its_own_tag(&self) -> bool {
        self.start == 1
    }
}

/// The position of the tag, if there is one, as in [`tag`].
fn check(prefix: &str, key: &str) -> Result<Option<(usize, usize)>, &'static str> {
    if key.is_empty() {
        return Err("it is empty: name what the lock protects, for example `order:42`");
    }
    if key.len() > MAX_LEN {
        return Err("it is longer than 1024 bytes: hash the long part");
    }
    let tag = tag(key)?;
    // A short prefix and the beginning of a key may form the reserved prefix together.
    let is_reserved = prefix.starts_with(RESERVED)
        || RESERVED
            .strip_prefix(prefix)
            .is_some_and(|rest| key.starts_with(rest));
    if is_reserved {
        return Err(
            "names that start with `lock-core:` are reserved: use another name or a prefix",
        );
    }
    Ok(tag)
}

/// The positions of the first and the last brace of a key. A key has no braces, or exactly one `{tag}`: other braces would move a
/// derived key to another hash slot.
fn tag(key: &str) -> Result<Option<(usize, usize)>, &'static str> {
    let mut braces = key
        .bytes()
        .enumerate()
        .filter(|(_, byte)| matches!(byte, b'{' | b'}'));
    match (braces.next(), braces.next(), braces.next()) {
        (None, ..) => Ok(None),
        (Some((open, b'{')), Some((close, b'}')), None) if close > open + 1 => {
            Ok(Some((open, close)))
        }
        _ => Err("braces are allowed only as one non-empty `{tag}`: escape or remove the others"),
    }
}

/// A prefix is part of every key, so it may not contain braces or lead to the reserved names.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), LockError> {
    if prefix.contains(['{', '}']) {
        return Err(LockError::config(
            "the prefix holds a brace: put the `{tag}` into the keys",
        ));
    }
    if prefix.starts_with(RESERVED) {
        return Err(LockError::config(
            "prefixes that start with `lock-core:` are reserved: choose another",
        ));
    }
    if prefix.len() > MAX_LEN {
        return Err(LockError::config(
            "the prefix is longer than 1024 bytes: choose a shorter one",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(key: &str) -> bool {
        matches!(
            LockKey::new("lock:", key),
            Err(LockError::InvalidKey { .. })
        )
    }

    #[test]
    fn ill_formed_keys_are_refused() {
        for key in ["", "a{", "a}", "}{", "{}", "{a}{b}", "{{a}}", "{a", "a}b{c"] {
            assert!(refused(key), "{key:?}");
        }
        assert!(refused(&"x".repeat(1025)));
        assert!(!refused(&"x".repeat(1024)));
        assert!(!refused("{user1}:cart"));
        assert!(!refused("käse \u{1F512} with spaces"));
    }

    #[test]
    fn reserved_names_are_refused_only_where_they_would_collide() {
        assert!(LockKey::new("", "lock-core:fence").is_err());
        assert!(LockKey::new("lock:", "lock-core:fence").is_ok());
        assert!(LockKey::new("lock", "-core:queue:{lock:victim}").is_err());
        assert!(LockKey::new("lock", "-cor").is_ok());
        assert!(check_prefix("lock-core:x").is_err());
        assert!(check_prefix("a{b}").is_err());
    }

    #[test]
    fn a_name_behind_its_tag_is_in_the_slot_of_the_lock_and_never_collides() {
        for (prefix, key, tagged, with_tag) in [
            ("", "a", "{a}", "{a}"),
            ("", "{a}", "{a}:{a}", "{a}"),
            ("p:", "a b", "{p:a b}", "{p:a b}"),
            ("", "a{x}b", "{x}:a{x}b", "a{x}b"),
            (
                "lock:",
                "{user1}:cart",
                "{user1}:lock:{user1}:cart",
                "lock:{user1}:cart",
            ),
        ] {
            let lock = LockKey::new(prefix, key).unwrap();
            assert_eq!((lock.tagged(), lock.with_tag()), (tagged, with_tag));
            assert_eq!((lock.lock(), lock.name()), (&*[prefix, key].concat(), key));
        }
    }

    #[test]
    fn ill_formed_and_reserved_names_are_refused_for_the_reentrant_lock_too() {
        assert!(LockKey::reentrant("", "foo{bar").is_err());
        assert!(LockKey::reentrant("", "lock-core:fence").is_err());
    }
}
