//! Lock names: what is allowed, and how one becomes part of other names.

use std::hash::{BuildHasher, Hash, Hasher};

use once_cell::sync::Lazy;

use crate::base::beside::Beside;
use crate::base::error::LockError;
use crate::base::kind::{Kind, Traits};
use crate::base::rt::RandomState;

/// The longest key, in bytes.
const MAX_LEN: usize = 1024;

/// The longest prefix with its namespace, in bytes.
const MAX_PREFIX: usize = 255;

/// The prefix of derived keys, so no lock may have it.
pub(crate) const RESERVED: &str = "lock-core:";

/// What stands in front of the key of a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prefix<'a> {
    /// In front of every name of the library on a server: empty, or the namespace of a tenant.
    pub(crate) namespace: &'a str,
    pub(crate) prefix: &'a str,
}

/// A prefix outside of any namespace.
impl<'a> From<&'a str> for Prefix<'a> {
    fn from(prefix: &'a str) -> Self {
        let namespace = "";
        Self { namespace, prefix }
    }
}

impl Prefix<'_> {
    /// As it is on the server.
    pub(crate) fn whole(self) -> String {
        [self.namespace, self.prefix].concat()
    }

    /// It is part of every key, so it may not contain braces or lead to the reserved names.
    pub(crate) fn check(self) -> Result<(), LockError> {
        let Self { namespace, prefix } = self;
        if prefix.contains(['{', '}']) {
            return Err(LockError::config(
                "the prefix holds a brace: put the `{tag}` into the keys",
            ));
        }
        // The scripts find the reserved name behind the namespace, and channels are words of a message.
        let is_plain =
            |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b'\'' | b'"');
        if !namespace.bytes().all(is_plain) || namespace.contains(RESERVED) {
            return Err(LockError::config(
                "the namespace cannot be used: choose printable ASCII characters without spaces, quotes and braces, and not `lock-core:`",
            ));
        }
        if self.is_reserved("") {
            return Err(LockError::config(
                "prefixes that start with `lock-core:` are reserved: choose another",
            ));
        }
        if namespace.len() + prefix.len() > MAX_PREFIX {
            return Err(LockError::config(
                "namespace and prefix are longer than 255 bytes: choose shorter ones",
            ));
        }
        Ok(())
    }

    /// Whether this key is one of ours, in the namespace or outside of any.
    fn is_reserved(self, key: &str) -> bool {
        is_ours(["", self.prefix, key]) || is_ours([self.namespace, self.prefix, key])
    }
}

/// Whether these parts together begin with the reserved prefix.
fn is_ours(parts: [&str; 3]) -> bool {
    let mut rest = RESERVED;
    for part in parts {
        if part.len() >= rest.len() {
            return part.starts_with(rest);
        }
        match rest.strip_prefix(part) {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    false
}

/// The key of a lock. One text, since thousands of locks may be held: every name of it on a server is a part of this text behind a
/// fixed beginning.
#[derive(Debug)]
pub(crate) struct LockKey {
    /// The name of the lock as a hash tag, or its tag and then its name: the end of the keys beside the lock.
    tagged: Box<str>,
    /// The position of the lock's name in `tagged`.
    start: u16,
    /// The length of the prefix with its namespace, and that of the namespace.
    prefix_len: u8,
    namespace_len: u8,
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
    pub(crate) fn new<'a>(prefix: impl Into<Prefix<'a>>, key: &str) -> Result<Self, LockError> {
        Self::checked(prefix.into(), key, Kind::Exclusive)
    }

    pub(crate) fn reentrant<'a>(
        prefix: impl Into<Prefix<'a>>,
        key: &str,
    ) -> Result<Self, LockError> {
        Self::checked(prefix.into(), key, Kind::Reentrant)
    }

    /// The locks with this name on the server of which releases are announced. The name was checked as prefix and key: both
    /// together may be longer than a key.
    pub(crate) fn announced(lock: &str) -> impl Iterator<Item = Self> {
        let tag = tag(lock).unwrap_or_default();
        let kinds = Kind::all().filter(|kind| !kind.traits().queues);
        kinds.map(move |kind| Self::of("".into(), lock, tag, kind))
    }

    /// The lock of this kind with this name on the server, if it has the prefix. The name comes from outside.
    pub(crate) fn named(prefix: Prefix<'_>, lock: &str, kind: Kind) -> Option<Self> {
        let key = lock.strip_prefix(prefix.namespace)?;
        Self::checked(prefix, key.strip_prefix(prefix.prefix)?, kind).ok()
    }

    /// The lock of this kind, by the end of a key beside it: see [`tagged`](Self::tagged).
    pub(crate) fn beside(prefix: Prefix<'_>, tagged: &str, kind: Kind) -> Option<Self> {
        let (tag, behind) = tagged.strip_prefix('{')?.split_once('}')?;
        Self::named(prefix, behind.strip_prefix(':').unwrap_or(tag), kind)
    }

    pub(crate) fn checked(prefix: Prefix<'_>, key: &str, kind: Kind) -> Result<Self, LockError> {
        let tag = check(prefix, key).map_err(|reason| LockError::InvalidKey {
            key: key.chars().take(64).collect(),
            reason,
        })?;
        Ok(Self::of(prefix, key, tag, kind))
    }

    fn of(prefix: Prefix<'_>, key: &str, tag: Option<(usize, usize)>, kind: Kind) -> Self {
        let Prefix { namespace, prefix } = prefix;
        // A name without a tag becomes the tag as a whole. A name with a tag follows a copy of its tag, which no name without a tag
        // can produce: `a` and `{a}` do not share a queue.
        let (before, between, after) = match tag {
            Some((open, close)) => (&key[open..=close], ":", ""),
            None => ("{", "", "}"),
        };
        let tagged = [before, between, namespace, prefix, key, after].concat();
        let [a, b, c, ..] = HASHES.hash_one(&tagged).to_le_bytes();
        Self {
            tagged: tagged.into(),
            // A key is at most 1024 bytes, and what stands in front of it 255.
            start: (before.len() + between.len()) as u16,
            prefix_len: (namespace.len() + prefix.len()) as u8,
            namespace_len: namespace.len() as u8,
            kind,
            hash: [a, b, c],
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether both are one lock for other clients, whatever their kinds.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        self.lock() == other.lock() && self.kind.stored() == other.kind.stored()
    }

    /// The names of the locks that are this one for other clients: of each such kind.
    pub(crate) fn twins(&self) -> impl Iterator<Item = Self> {
        self.kind.twins().map(|kind| Self {
            tagged: self.tagged.clone(),
            kind,
            ..*self
        })
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

    /// The error of a name with something else.
    pub(crate) fn not_a_lock(&self, kind: String) -> LockError {
        LockError::NotALock {
            key: self.name().to_owned(),
            stored: self.lock().into(),
            kind,
        }
    }

    /// The name of what is announced beside it.
    pub(crate) fn name_of(&self, what: Beside) -> String {
        [self.namespace(), what.0, self.tagged()].concat()
    }

    /// In front of each name beside the lock.
    pub(crate) fn namespace(&self) -> &str {
        &self.lock()[..usize::from(self.namespace_len)]
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
fn check(prefix: Prefix<'_>, key: &str) -> Result<Option<(usize, usize)>, &'static str> {
    if key.is_empty() {
        return Err("it is empty: name what the lock protects, for example `order:42`");
    }
    if key.len() > MAX_LEN {
        return Err("it is longer than 1024 bytes: hash the long part");
    }
    let tag = tag(key)?;
    // A short prefix and the beginning of a key may form the reserved prefix together.
    if prefix.is_reserved(key) {
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
        let within = |namespace, prefix| Prefix { namespace, prefix };
        let team = |prefix| within("team-a:", prefix);
        assert!(LockKey::new(team(""), "lock-core:fence").is_err());
        assert!(LockKey::new(team("lock"), "-core:fence").is_err());
        assert!(LockKey::new(team("lock:"), "lock-core:fence").is_ok());
        assert!(LockKey::new(within("lock", "-core:"), "fence").is_err());
        for (namespace, prefix) in [
            ("", "lock-core:x"),
            ("", "a{b}"),
            ("team-a:", "lock-core:x"),
            ("lock-core:", ""),
            ("of lock", ""),
            ("{a}", ""),
            ("k\u{e4}se", ""),
        ] {
            let checked = within(namespace, prefix).check();
            assert!(checked.is_err(), "{namespace:?}, {prefix:?}");
        }
        let (most, prefix) = ("n".repeat(100), "p".repeat(156));
        assert!(within(&most, &prefix[1..]).check().is_ok());
        assert!(within(&most, &prefix).check().is_err());
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
            assert_eq!(
                LockKey::beside(prefix.into(), tagged, lock.kind()),
                Some(lock)
            );
        }
    }

    #[test]
    fn a_namespace_is_in_front_of_prefix_and_key() {
        let (namespace, prefix) = ("team-a:", "lock:");
        let lock = LockKey::new(Prefix { namespace, prefix }, "order:7").unwrap();
        assert_eq!(lock.lock(), "team-a:lock:order:7");
        assert_eq!((lock.name(), lock.namespace()), ("order:7", "team-a:"));
        assert_eq!(LockKey::new("lock:", "order:7").unwrap().namespace(), "");
    }

    #[test]
    fn ill_formed_and_reserved_names_are_refused_for_the_reentrant_lock_too() {
        assert!(LockKey::reentrant("", "foo{bar").is_err());
        assert!(LockKey::reentrant("", "lock-core:fence").is_err());
    }
}
