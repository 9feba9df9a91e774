//! Lock names: what is allowed, and the server keys that belong to one.

use std::hash::{Hash, Hasher};

use crate::LockError;

/// The longest key, in bytes.
const MAX_LEN: usize = 1024;

/// Derived keys live under this prefix, so no lock may.
pub(crate) const RESERVED: &str = "lock-core:";

/// Where Redisson announces that a reentrant lock is free.
const REDISSON_CHANNEL: &str = "redisson_lock__channel:";

/// What a lock is on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A string: one holder, which can not take it twice.
    Exclusive,
    /// A hash, as Redisson's `RLock`: one owner, which may take it again and again.
    Reentrant,
}

/// The key of a lock and everything on the server that belongs to it.
#[derive(Debug)]
pub(crate) struct LockKey {
    /// The lock itself on the server: prefix and key.
    pub(crate) lock: Box<str>,
    pub(crate) names: Names,
    prefix_len: usize,
}

/// The names that a lock of one kind needs besides its own. Keys are in the lock's hash slot.
#[derive(Debug)]
pub(crate) enum Names {
    Exclusive {
        /// The list of waiting tokens.
        queue: Box<str>,
        /// The hash of what is known about the waiters.
        waiters: Box<str>,
    },
    Reentrant {
        /// The hash of the acquisitions that are counted in the lock.
        holds: Box<str>,
        /// Where every full release is announced.
        channel: Box<str>,
    },
}

// All else follows from these two.
impl PartialEq for LockKey {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.lock == other.lock
    }
}

impl Eq for LockKey {}

impl Hash for LockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind().hash(state);
        self.lock.hash(state);
    }
}

impl LockKey {
    pub(crate) fn new(prefix: &str, key: &str) -> Result<Self, LockError> {
        Self::checked(prefix, key, |_, tagged| Names::Exclusive {
            queue: format!("{RESERVED}queue:{tagged}").into(),
            waiters: format!("{RESERVED}waiters:{tagged}").into(),
        })
    }

    pub(crate) fn reentrant(prefix: &str, key: &str) -> Result<Self, LockError> {
        Self::checked(prefix, key, reentrant_names)
    }

    /// The reentrant lock of this name, which was checked when it was made of prefix and key: both together may be
    /// longer than a key.
    pub(crate) fn reentrant_named(lock: &str) -> Self {
        Self::of(lock.to_owned(), 0, reentrant_names)
    }

    fn checked(
        prefix: &str,
        key: &str,
        names: impl FnOnce(&str, &str) -> Names,
    ) -> Result<Self, LockError> {
        check(prefix, key).map_err(|reason| LockError::InvalidKey {
            key: key.chars().take(64).collect(),
            reason,
        })?;
        Ok(Self::of(format!("{prefix}{key}"), prefix.len(), names))
    }

    fn of(lock: String, prefix_len: usize, names: impl FnOnce(&str, &str) -> Names) -> Self {
        // Without a tag of its own the whole name becomes the tag. With one, the tag stands in front and the name
        // behind it, which no name without a tag can produce: `a` and `{a}` do not share a queue.
        let tagged = match lock.find('{').zip(lock.find('}')) {
            Some((open, close)) => format!("{}:{lock}", &lock[open..=close]),
            None => format!("{{{lock}}}"),
        };
        Self {
            names: names(&lock, &tagged),
            lock: lock.into(),
            prefix_len,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.names {
            Names::Exclusive { .. } => Kind::Exclusive,
            Names::Reentrant { .. } => Kind::Reentrant,
        }
    }

    /// The key as the user wrote it.
    pub(crate) fn name(&self) -> &str {
        &self.lock[self.prefix_len..]
    }
}

fn reentrant_names(lock: &str, tagged: &str) -> Names {
    Names::Reentrant {
        holds: format!("{RESERVED}holds:{tagged}").into(),
        // Redisson's rule: a name with a tag stands as it is, any other becomes the tag.
        channel: if lock.contains('{') {
            format!("{REDISSON_CHANNEL}{lock}").into()
        } else {
            format!("{REDISSON_CHANNEL}{{{lock}}}").into()
        },
    }
}

fn check(prefix: &str, key: &str) -> Result<(), &'static str> {
    if key.is_empty() {
        return Err("it is empty: name what the lock protects, for example `order:42`");
    }
    if key.len() > MAX_LEN {
        return Err("it is longer than 1024 bytes: hash the long part");
    }
    if !braces_are_one_tag(key) {
        return Err(
            "braces are allowed only as one non-empty `{tag}`: escape or remove the others",
        );
    }
    // Joined first: a short prefix and a clever key may lead there together.
    let joined = prefix.bytes().chain(key.bytes());
    if joined.take(RESERVED.len()).eq(RESERVED.bytes()) {
        return Err(
            "names that start with `lock-core:` are reserved: use another name or a prefix",
        );
    }
    Ok(())
}

/// No braces at all, or exactly one `{tag}`. Anything else would move a derived key to another hash slot.
fn braces_are_one_tag(key: &str) -> bool {
    let mut braces = key.char_indices().filter(|(_, c)| matches!(c, '{' | '}'));
    match (braces.next(), braces.next(), braces.next()) {
        (None, ..) => true,
        (Some((open, '{')), Some((close, '}')), None) => close > open + 1,
        _ => false,
    }
}

/// A prefix is part of every key, so it may not hold braces, and may not lead into the reserved names.
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

    fn exclusive(prefix: &str, key: &str) -> (Box<str>, Box<str>) {
        match LockKey::new(prefix, key).unwrap().names {
            Names::Exclusive { queue, waiters } => (queue, waiters),
            Names::Reentrant { .. } => panic!("exclusive expected"),
        }
    }

    fn reentrant(prefix: &str, key: &str) -> (Box<str>, Box<str>) {
        match LockKey::reentrant(prefix, key).unwrap().names {
            Names::Reentrant { holds, channel } => (holds, channel),
            Names::Exclusive { .. } => panic!("reentrant expected"),
        }
    }

    #[test]
    fn derived_keys_share_the_slot_of_the_lock_and_never_collide() {
        assert_eq!(&*exclusive("", "a").0, "lock-core:queue:{a}");
        assert_eq!(&*exclusive("", "{a}").0, "lock-core:queue:{a}:{a}");
        assert_eq!(
            &*exclusive("lock:", "{user1}:cart").1,
            "lock-core:waiters:{user1}:lock:{user1}:cart"
        );
        assert_eq!(&*reentrant("", "a").0, "lock-core:holds:{a}");
        assert_eq!(&*reentrant("", "{a}").0, "lock-core:holds:{a}:{a}");
        let user = LockKey::new("lock:", "{user1}:cart").unwrap();
        assert_eq!(user.name(), "{user1}:cart");
    }

    #[test]
    fn the_channel_of_a_reentrant_lock_follows_redissons_rule() {
        for (prefix, key, channel) in [
            ("", "a", "redisson_lock__channel:{a}"),
            ("", "a{x}b", "redisson_lock__channel:a{x}b"),
            ("", "{a}", "redisson_lock__channel:{a}"),
            ("p:", "a b", "redisson_lock__channel:{p:a b}"),
        ] {
            assert_eq!(&*reentrant(prefix, key).1, channel);
        }
        let bare = LockKey::reentrant("", "a").unwrap();
        assert_eq!((&*bare.lock, bare.kind()), ("a", Kind::Reentrant));
    }

    #[test]
    fn ill_formed_and_reserved_names_are_refused_for_the_reentrant_lock_too() {
        assert!(LockKey::reentrant("", "foo{bar").is_err());
        assert!(LockKey::reentrant("", "lock-core:fence").is_err());
    }
}
