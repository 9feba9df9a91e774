//! What a lock looks like from outside.

use std::fmt;
use std::time::Duration;

use crate::store::{NodeSnapshot, Snapshot, SnapshotState};

/// A look at a lock, taken by [`Lock::inspect`](crate::Lock::inspect). Old the moment it is read: for people and dashboards, not for
/// deciding.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
/// let _guard = lock.acquire().await?;
/// let info = lock.inspect().await?;
/// assert!(info.is_held() && info.remaining().is_some());
/// assert_eq!(info.waiters(), 0);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct LockInfo {
    remaining: Option<Duration>,
    holder: Option<String>,
    foreign: Option<String>,
    waiters: u64,
    holds: u64,
    owner: Option<String>,
    nodes: Vec<NodeInfo>,
}

// An owner lets whoever knows it enter: it stays out of logs.
impl fmt::Debug for LockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockInfo")
            .field("remaining", &self.remaining)
            .field("holder", &self.holder)
            .field("foreign", &self.foreign)
            .field("waiters", &self.waiters)
            .field("holds", &self.holds)
            .finish_non_exhaustive()
    }
}

impl LockInfo {
    pub(crate) fn new(snapshot: Snapshot, behind: u64) -> Self {
        let mut info = Self {
            remaining: None,
            holder: None,
            foreign: None,
            waiters: snapshot.waiting + behind,
            holds: 0,
            owner: None,
            nodes: snapshot.nodes.into_iter().map(NodeInfo::new).collect(),
        };
        match snapshot.state {
            SnapshotState::Free => {}
            SnapshotState::Held {
                remaining,
                client,
                holds,
                owner,
            } => {
                info.remaining = Some(remaining);
                info.holds = holds;
                info.owner = owner;
                info.holder = Some(shortened(&client));
            }
            SnapshotState::Foreign { kind } => info.foreign = Some(kind),
        }
        info
    }

    /// Whether somebody held it.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// assert!(!lock.inspect().await?.is_held());
    /// let _guard = lock.acquire().await?;
    /// assert!(lock.inspect().await?.is_held());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.remaining.is_some()
    }

    /// The time left of the holder's lease on the server, in whole milliseconds; `None` if the lock was free. The nodes of a quorum
    /// keep a lock for [`clock_skew`](crate::LockManagerBuilder::clock_skew) longer than its holder believes in it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let lock = lock.ttl(Duration::from_secs(5));
    /// let _guard = lock.acquire().await?;
    /// let left = lock.inspect().await?.remaining();
    /// assert!(left.is_some_and(|left| left <= Duration::from_secs(5)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// The first eight characters of the holder's client id; `None` where nobody held it.
    ///
    /// Every manager has an id of its own, made at random: two locks with the same holder are held by the same manager.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let _guard = lock.acquire().await?;
    /// let info = lock.inspect().await?;
    /// assert_eq!(info.holder().map(str::len), Some(8));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        self.holder.as_deref()
    }

    /// How often its owner held it, over all processes: 0 where nobody held it, always 1 for a held [`Lock`](crate::Lock).
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.holds
    }

    /// The owner of a held [`ReentrantLock`](crate::ReentrantLock), as the server knows it: [`Owner::parse`](crate::Owner::parse) reads it unless another client
    /// made it. Whoever knows it can enter the lock, so it is not for logs. `None` for a [`Lock`](crate::Lock).
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// The type of what stands under the lock's name, where that is no lock: acquiring is then
    /// [`ForeignKey`](crate::LockError::ForeignKey). `None` for a lock, held or free.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// assert_eq!(lock.inspect().await?.foreign(), None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn foreign(&self) -> Option<&str> {
        self.foreign.as_deref()
    }

    /// What each node of a [quorum](crate::LockManager::quorum) said, in the order in which they were named. Empty for any other
    /// manager.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(lock: lock_core::Lock) -> Result<(), lock_core::LockError> {
    /// for node in lock.inspect().await?.nodes() {
    ///     match node.error() {
    ///         None => println!("{}: held by {:?}", node.address(), node.holder()),
    ///         Some(why) => println!("{}: {why}", node.address()),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    /// How many waited for it: every caller of this manager, and one for each other manager, however many wait in that.
    /// Managers that have crashed count until they are skipped.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let lock = lock_core::LockManager::connect("memory://").await?.lock("a");
    /// let _guard = lock.acquire().await?;
    /// assert_eq!(lock.inspect().await?.waiters(), 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn waiters(&self) -> u64 {
        self.waiters
    }
}

/// What one node of a quorum says of a lock: whose its vote is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    address: String,
    state: Result<Option<(String, Duration)>, String>,
}

impl NodeInfo {
    fn new(snapshot: NodeSnapshot) -> Self {
        let state = snapshot.state.map(|state| match state {
            SnapshotState::Held {
                remaining, client, ..
            } => Some((shortened(&client), remaining)),
            SnapshotState::Free | SnapshotState::Foreign { .. } => None,
        });
        Self {
            address: snapshot.address,
            state: state.map_err(|cause| cause.to_string()),
        }
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// As [`LockInfo::holder`], of this node's vote.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        let vote = self.state.as_ref().ok()?.as_ref();
        vote.map(|(client, _)| client.as_str())
    }

    /// For how long the vote lasts if it is not renewed, `clock_skew` included.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let vote = self.state.as_ref().ok()?.as_ref();
        vote.map(|(_, remaining)| *remaining)
    }

    /// Why the node did not say.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.state.as_ref().err().map(String::as_str)
    }
}

/// Enough to tell managers apart, too little to forge a token.
fn shortened(client: &str) -> String {
    client.chars().take(8).collect()
}
