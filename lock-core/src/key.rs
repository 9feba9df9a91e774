//! Lock names: what is allowed, and the server keys that belong to one.

use crate::LockError;

/// The longest key, in bytes.
const MAX_LEN: usize = 1024;

/// Derived keys live under this prefix, so no lock may.
pub(crate) const RESERVED: &str = "lock-core:";

/// The key of a lock and everything on the server that belongs to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockKey {
    /// The string on the server: prefix and key.
    pub(crate) lock: Box<str>,
    /// The list of waiting tokens, in the lock's hash slot.
    pub(crate) queue: Box<str>,
    /// The hash of what is known about the waiters, in the lock's hash slot.
    pub(crate) waiters: Box<str>,
    prefix_len: usize,
}

impl LockKey {
    pub(crate) fn new(prefix: &str, key: &str) -> Result<Self, LockError> {
        check(prefix, key).map_err(|reason| LockError::InvalidKey {
            key: key.chars().take(64).collect(),
            reason,
        })?;
        let lock = format!("{prefix}{key}");
        // Without a tag of its own the whole name becomes the tag. With one, the tag stands in front and the name
        // behind it, which no name without a tag can produce: `a` and `{a}` do not share a queue.
        let tagged = match lock.find('{').zip(lock.find('}')) {
            Some((open, close)) => format!("{}:{lock}", &lock[open..=close]),
            None => format!("{{{lock}}}"),
        };
        Ok(Self {
            queue: format!("{RESERVED}queue:{tagged}").into(),
            waiters: format!("{RESERVED}waiters:{tagged}").into(),
            lock: lock.into(),
            prefix_len: prefix.len(),
        })
    }

    /// The key as the user wrote it.
    pub(crate) fn name(&self) -> &str {
        &self.lock[self.prefix_len..]
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

    #[test]
    fn derived_keys_share_the_slot_of_the_lock_and_never_collide() {
        let plain = LockKey::new("", "a").unwrap();
        let tagged = LockKey::new("", "{a}").unwrap();
        assert_eq!(&*plain.queue, "lock-core:queue:{a}");
        assert_eq!(&*tagged.queue, "lock-core:queue:{a}:{a}");
        let user = LockKey::new("lock:", "{user1}:cart").unwrap();
        assert_eq!(
            &*user.waiters,
            "lock-core:waiters:{user1}:lock:{user1}:cart"
        );
        assert_eq!(user.name(), "{user1}:cart");
    }
}
