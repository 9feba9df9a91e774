//! The owner of a reentrant lock.

use std::fmt;
use std::sync::Arc;
#[cfg(not(lock_sim))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(lock_sim))]
use once_cell::sync::Lazy;

use crate::base::error::LockError;
#[cfg(lock_sim)]
use crate::base::sim::owner as unused;

/// Characters of the uuid that every owner begins with.
const UUID_LEN: usize = 36;

/// The uuid of this process: the beginning of all owners made here.
#[cfg(not(lock_sim))]
static PROCESS: Lazy<String> = Lazy::new(|| crate::base::rt::uuid().to_string());

#[cfg(not(lock_sim))]
static NEXT: AtomicU64 = AtomicU64::new(1);

tokio::task_local! {
    static CURRENT: Owner;
}

/// The holder of a reentrant lock: code with the same owner may acquire the lock again while it is held.
///
/// An owner stands for one piece of work, such as a request, never for a thread or a task. It is cheap to clone, and can be sent to
/// another process: [`Display`](fmt::Display) gives the text to send, for example in a request header, and [`parse`](Self::parse)
/// makes the same owner from it. The text has the form `<uuid>:<number>`, in which Redisson names its threads.
///
/// An owner is as secret as a password while the work lasts: with it, any client can enter and release the locks of that work. Send
/// it only to services that you trust, and do not log it; `Debug` does not show it.
///
/// If one of several processes of an owner crashes, its holds count for one more ttl: the longest ttl that this process requested
/// for the lock. Meanwhile the other processes of the owner may acquire and release the lock.
///
/// # The owner of a scope
///
/// [`scope`](Self::scope) makes an owner the [`current`](Self::current) one for a future and everything that it awaits, joins or
/// selects. **Tasks that the future spawns do not inherit it**, since they may outlive the work. Pass the owner to a task that is
/// part of the work:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use lock_core::Owner;
///
/// let owner = Owner::new();
/// owner
///     .scope(async {
///         let here = Owner::current().expect("a scope is open");
///         let lost = tokio::spawn(async { Owner::current() }).await.unwrap();
///         assert_eq!(lost, None);
///
///         let part = async { Owner::current() };
///         let passed_on = tokio::spawn(here.scope(part)).await.unwrap();
///         assert_eq!(passed_on, Some(here));
///     })
///     .await;
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(
    /// One pointer, because every held lock has room for an owner.
    Arc<String>,
);

impl Owner {
    /// A new owner, different from all others.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::Owner;
    ///
    /// assert_ne!(Owner::new(), Owner::new());
    /// ```
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a default is the same each time; this is never the same"
    )]
    pub fn new() -> Self {
        Self(Arc::new(unused()))
    }

    /// Makes the owner from a text that another process has sent.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidConfig`] if the text does not have the form of [`Display`](fmt::Display): a uuid in lower case, a colon,
    /// and a number. The error does not repeat the text.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::Owner;
    ///
    /// let ours = Owner::new();
    /// let header = ours.to_string();
    /// // .. and in the service that is called:
    /// assert_eq!(Owner::parse(&header)?, ours);
    /// assert!(Owner::parse("me").is_err());
    /// # Ok::<(), lock_core::LockError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, LockError> {
        if well_formed(text) {
            Ok(Self(Arc::new(text.to_owned())))
        } else {
            Err(LockError::config(
                "this text is not a lock owner: send the text that `Owner` displays, `<uuid in lower case>:<number>`",
            ))
        }
    }

    /// Makes this the [`current`](Self::current) owner while `future` runs.
    ///
    /// An inner scope hides the outer one until it ends. Tasks that `future` spawns are outside: see
    /// [above](Self#the-owner-of-a-scope).
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops `future`, and nothing else.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use lock_core::Owner;
    ///
    /// let owner = Owner::new();
    /// let seen = owner.scope(async { Owner::current() }).await;
    /// assert_eq!(seen, Some(owner));
    /// assert_eq!(Owner::current(), None);
    /// # }
    /// ```
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), future)
    }

    /// The owner of the innermost open [`scope`](Self::scope); `None` outside of any.
    ///
    /// # Examples
    ///
    /// ```
    /// use lock_core::Owner;
    ///
    /// assert_eq!(Owner::current(), None);
    /// ```
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// As [`scope`](Self::scope), for one step of a future that is polled by hand.
    #[cfg(feature = "macros")]
    pub(crate) fn enter<T>(&self, step: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), step)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text of a new owner.
#[cfg(not(lock_sim))]
fn unused() -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}:{number}", *PROCESS)
}

/// Accepts only one form of an owner: two different texts are never the same owner.
fn well_formed(text: &str) -> bool {
    let Some((uuid, number)) = text.split_once(':') else {
        return false;
    };
    let uuid_is_plain = uuid.len() == UUID_LEN
        && uuid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
    uuid_is_plain && number.parse().is_ok_and(|n: u64| n.to_string() == number)
}

/// The text to send to another process, for [`parse`](Owner::parse).
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// With an owner any client can enter its locks, so it must not appear in a log by accident.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_text_is_an_owner() {
        let uuid = "0123abcd-0123-4567-89ab-0123456789ab";
        for good in ["0", "1", "18446744073709551615"] {
            let text = format!("{uuid}:{good}");
            assert_eq!(Owner::parse(&text).unwrap().to_string(), text);
        }
        let upper = uuid.to_uppercase();
        let bad = [
            String::new(),
            "secret".to_owned(),
            uuid.to_owned(),
            format!("{uuid}:"),
            format!("{uuid}:x"),
            format!("{uuid}:+1"),
            format!("{uuid}:-1"),
            format!("{uuid}:01"),
            format!("{uuid}:1 "),
            format!("{uuid}:1:2"),
            format!("{uuid}:18446744073709551616"),
            format!("{upper}:1"),
            format!("{}:1", uuid.replace('-', "a")),
            format!("{}:1", &uuid[1..]),
            "é".repeat(18) + ":1",
        ];
        for text in bad {
            let error = Owner::parse(&text).unwrap_err();
            assert!(matches!(error, LockError::InvalidConfig { .. }), "{text}");
            let shown = format!("{error} {error:?}");
            assert!(text.len() < 2 || !shown.contains(&text));
            assert!(!shown.contains("0123"), "{shown}");
        }
    }

    #[test]
    fn debug_never_shows_an_owner() {
        assert_eq!(format!("{:?}", Owner::new()), "Owner(..)");
    }

    #[tokio::test]
    async fn an_inner_scope_hides_the_outer_one_and_gives_it_back() {
        let (outer, inner) = (Owner::new(), Owner::new());
        outer
            .scope(async {
                let seen = inner.scope(async { Owner::current() }).await;
                assert_eq!(seen, Some(inner));
                assert_eq!(Owner::current(), Some(outer.clone()));
            })
            .await;
        assert_eq!(Owner::current(), None);
    }
}
