//! The state of a lock, as seen from outside.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::base::fencing::FencingToken;
use crate::base::snapshot::{HolderSnapshot, NodeSnapshot, Snapshot, SnapshotState};
use crate::base::token::Bearer;

/// The state of a lock, returned by [`Lock::inspect`](crate::Lock::inspect). Stale as soon as it is read: for people and
/// dashboards, not for decisions.
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
    held_since: Option<SystemTime>,
    foreign: Option<String>,
    waiters: u64,
    queue: Vec<LockWaiter>,
    fence: Option<FencingToken>,
    holds: u64,
    owner: Option<String>,
    permits: Option<(u32, u32)>,
    holders: Vec<LockHolder>,
    nodes: Vec<NodeInfo>,
}

// With the text of an owner any client can enter its locks, so it stays out of logs.
impl fmt::Debug for LockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockInfo")
            .field("remaining", &self.remaining)
            .field("holder", &self.holder)
            .field("foreign", &self.foreign)
            .field("held_since", &self.held_since)
            .field("waiters", &self.waiters)
            .field("queue", &self.queue)
            .field("holds", &self.holds)
            .field("permits", &self.permits)
            .field("holders", &self.holders)
            .finish_non_exhaustive()
    }
}

impl LockInfo {
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        let mut info = Self {
            remaining: None,
            holder: None,
            held_since: None,
            foreign: None,
            queue: snapshot.queue.into_iter().map(LockWaiter).collect(),
            fence: (snapshot.fence > 0).then(|| FencingToken::new(snapshot.fence)),
            waiters: snapshot.waiting,
            holds: 0,
            owner: None,
            permits: None,
            holders: Vec::new(),
            nodes: snapshot.nodes.into_iter().map(NodeInfo::new).collect(),
        };
        match snapshot.state {
            SnapshotState::Free => {}
            SnapshotState::Held {
                remaining,
                client,
                holder,
                holds,
                owner,
            } => {
                info.remaining = Some(remaining);
                info.holds = holds;
                info.owner = owner;
                info.holder = Some(shown(holder.name, &client));
                info.held_since = holder.since;
            }
            SnapshotState::Shared { used, max, members } => {
                info.permits = Some((used, max));
                info.remaining = members.iter().map(|member| member.remaining).min();
                info.holders = members.into_iter().map(LockHolder).collect();
                info.holds = info.holders.len() as u64;
                if let Some(first) = info.holders.first() {
                    info.holder = Some(first.name());
                    info.held_since = first.since();
                }
            }
            SnapshotState::Foreign { kind } => info.foreign = Some(kind),
        }
        info
    }

    /// Whether the lock was held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.remaining.is_some()
    }

    /// The rest of the holder's lease on the server, in whole milliseconds; `None` if the lock was free. The nodes of a quorum keep
    /// a lock for [`clock_skew`](crate::LockManagerBuilder::clock_skew) longer than its ttl. If there are several
    /// [`holders`](Self::holders), the shortest lease in their list.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
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

    /// The [name](crate::LockManagerBuilder::client_name) of the holder's client; `None` if the lock was free. For a client of another
    /// library, which has no name, the first eight characters of its token. The first of several [`holders`](Self::holders).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let builder = lock_core::LockManager::builder().client_name("orders-7");
    /// let lock = builder.connect("memory://").await?.lock("a");
    /// let _guard = lock.acquire().await?;
    /// assert_eq!(lock.inspect().await?.holder(), Some("orders-7"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        self.holder.as_deref()
    }

    /// The time since when the holder's process has the lock; `None` if the lock was free, or held by a client of another library.
    ///
    /// For a [`Lock`](crate::Lock) it is the time of the holder's request, by the clock of its machine: a holder that had to wait
    /// has held the lock for a shorter time. Local hand-overs inside the process do not change it. For a
    /// [`ReentrantLock`](crate::ReentrantLock) it is the time of the owner's first hold, by the clock of the server. If there are
    /// several [`holders`](Self::holders), it is the time of the first one.
    #[must_use]
    pub fn held_since(&self) -> Option<SystemTime> {
        self.held_since
    }

    /// An upper bound for the fencing tokens of all holders so far; `None` if it is not known. All locks of a server share one
    /// counter, so the holder's own token is often smaller. For a held [`ReentrantLock`](crate::ReentrantLock) it is the owner's
    /// token. For a [`Semaphore`](crate::Semaphore) or an [`RwLock`](crate::RwLock) it is the number of the last grant.
    #[must_use]
    pub fn fence(&self) -> Option<FencingToken> {
        self.fence
    }

    /// The first 100 waiters in the server's queue, in order. A place stands for all callers of one manager; in the queue of a
    /// [`Semaphore`](crate::Semaphore) or an [`RwLock`](crate::RwLock), for one caller. Over a quorum it is the queue of one node. Empty
    /// for a [`ReentrantLock`](crate::ReentrantLock), which has no queue.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(lock: lock_core::Lock) -> Result<(), lock_core::LockError> {
    /// for waiter in lock.inspect().await?.queue() {
    ///     println!("{} waits since {:?}", waiter.name().unwrap_or("?"), waiter.since());
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn queue(&self) -> &[LockWaiter] {
        &self.queue
    }

    /// The owner's number of holds, over all processes: 0 if the lock was free, always 1 for a held [`Lock`](crate::Lock). For a lock
    /// that several may hold, the number of [`holders`](Self::holders), at most 100.
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.holds
    }

    /// The owner of a held [`ReentrantLock`](crate::ReentrantLock), as stored on the server: [`Owner::parse`](crate::Owner::parse)
    /// reads it unless another client made it. With it any client can enter the lock, so keep it out of logs. `None` for a
    /// [`Lock`](crate::Lock).
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// `(in use, maximum)`: the permits of a held [`Semaphore`](crate::Semaphore) or [`RwLock`](crate::RwLock). A writer has all 2^30.
    /// Above 1,000 holders, the permits of crashed holders count until the next change. `None` for any other lock.
    #[must_use]
    pub fn permits(&self) -> Option<(u32, u32)> {
        self.permits
    }

    /// The first 100 holders of a lock that several may hold: a [`Semaphore`](crate::Semaphore) or an [`RwLock`](crate::RwLock). If there
    /// are more than 1,000 holders, not all are read, and these are any 100. Empty for any other lock, which has one
    /// [`holder`](Self::holder).
    #[must_use]
    pub fn holders(&self) -> &[LockHolder] {
        &self.holders
    }

    /// The type of the value under the lock's key, if it is not a lock. An acquisition then fails with
    /// [`NotALock`](crate::LockError::NotALock). `None` for a lock, held or free.
    #[must_use]
    pub fn foreign(&self) -> Option<&str> {
        self.foreign.as_deref()
    }

    /// The answer of each node of a [quorum](crate::LockManager::connect_quorum), in the order in which the nodes were named. Empty
    /// for any other manager.
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

    /// The number of waiters. Callers of this manager are counted one by one; any other manager in which callers wait counts as one.
    /// For a [`Semaphore`](crate::Semaphore) and an [`RwLock`](crate::RwLock) all callers are counted one by one. Crashed managers count
    /// until a grant skips them.
    #[must_use]
    pub fn waiters(&self) -> u64 {
        self.waiters
    }
}

/// The answer of one node of a quorum about a lock: the holder of its vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    address: String,
    state: Result<Option<(String, Duration)>, String>,
}

impl NodeInfo {
    fn new(snapshot: NodeSnapshot) -> Self {
        let state = snapshot.state.map(|state| match state {
            SnapshotState::Held {
                remaining,
                client,
                holder,
                ..
            } => Some((shown(holder.name, &client), remaining)),
            SnapshotState::Free | SnapshotState::Shared { .. } | SnapshotState::Foreign { .. } => {
                None
            }
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

    /// As [`LockInfo::holder`], for this node's vote.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        let vote = self.state.as_ref().ok()?.as_ref();
        vote.map(|(client, _)| client.as_str())
    }

    /// How long the vote lasts unless it is renewed, including `clock_skew`.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let vote = self.state.as_ref().ok()?.as_ref();
        vote.map(|(_, remaining)| *remaining)
    }

    /// Why the node gave no answer.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.state.as_ref().err().map(String::as_str)
    }
}

/// One of several holders of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder(HolderSnapshot);

impl LockHolder {
    /// As [`LockInfo::holder`].
    #[must_use]
    pub fn name(&self) -> String {
        shown(self.0.holder.name.clone(), &self.0.client)
    }

    /// The time of its request, by the clock of its machine: a holder that had to wait has held the lock for a shorter time.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        self.0.holder.since
    }

    /// The number of its permits. A reader has one, a writer 2^30.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.0.weight
    }

    /// The rest of its lease on the server, in whole milliseconds.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining
    }
}

/// A waiter in the queue of a lock: a manager, or one of its callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWaiter(Bearer);

impl LockWaiter {
    /// The [name](crate::LockManagerBuilder::client_name) of its manager.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The time of its first request, by the clock of its machine.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        self.0.since
    }
}

/// The name of a client, or a part of its token: enough to tell clients apart, and too little to forge the token.
fn shown(name: Option<Box<str>>, token: &str) -> String {
    let part = || {
        let most = (token.chars().count() / 2).min(8);
        let plain = |c: char| if c.is_ascii_graphic() { c } else { '?' };
        token.chars().take(most).map(plain).collect()
    };
    name.map_or_else(part, String::from)
}
