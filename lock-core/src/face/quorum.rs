//! A quorum: its settings, a manager over it, and how it begins.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::base::error::LockError;
use crate::base::quorum_node::QuorumNode;
use crate::engine::run_alone;
use crate::face::builder::LockManagerBuilder;
use crate::face::connect::ready;
use crate::face::manager::LockManager;
use crate::store::{QuorumStore, StoreError, node_urls};

impl LockManager {
    /// Connects to a quorum of 3, 5, 7 or 9 independent masters with the default settings. See
    /// [`LockManagerBuilder::connect_quorum`].
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::connect_quorum`].
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a dropped future leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// let locks = lock_core::LockManager::connect_quorum(nodes).await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub async fn connect_quorum<U: AsRef<str>>(
        nodes: impl IntoIterator<Item = U>,
    ) -> Result<Self, LockError> {
        Self::builder().connect_quorum(nodes).await
    }
}

impl LockManagerBuilder {
    /// The wait of a [quorum](Self::connect_quorum): the time in which a node that has restarted, lost its data or was replaced does
    /// not vote. Default: 60 s; 2 s to 48 days.
    ///
    /// Such a node may have forgotten its votes. So a ttl (also [`at_least`](crate::Lock::at_least)) is at most half of the wait; a
    /// longer ttl is [`InvalidConfig`](crate::LockError::InvalidConfig). Set the same wait in all programs: the nodes store it, and a
    /// program with another wait does not use them. To change the wait, stop all programs, and run
    /// [`begin_quorum`](Self::begin_quorum) with [`anew`](crate::BeginQuorum::anew).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .default_ttl(Duration::from_secs(120))
    ///     .quorum_wait(Duration::from_secs(240))
    ///     .connect_quorum(["redis://a", "redis://b", "redis://c"])
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn quorum_wait(mut self, wait: Duration) -> Self {
        self.quorum.wait = wait;
        self
    }

    /// How far a node's clock in a [quorum](Self::connect_quorum) may jump without harm. Default: 500 ms; 20 ms to 60 s.
    ///
    /// A server measures a ttl with its wall clock, so after a jump forward it forgets votes too early. Therefore a node keeps each
    /// vote for `clock_skew` longer than its ttl. A lock needs a majority of nodes whose clocks agree to within half of `clock_skew`;
    /// a node with a larger jump does not count until its clock is correct again. So the clocks must be synchronised (NTP);
    /// otherwise the error states their difference. The lock of a crashed process becomes free later by `clock_skew`.
    pub fn clock_skew(mut self, most: Duration) -> Self {
        self.quorum.clock_skew = most;
        self
    }

    /// Connects to a quorum: 3, 5, 7 or 9 independent masters, which do not replicate each other. A client holds a lock if a
    /// majority of them has granted it, so the lock survives the loss of a minority. This is Redlock, with
    /// [fencing tokens](crate::FencingToken).
    ///
    /// Each URL may have its own user, password, port and database. [`connect`](Self::connect) takes the same nodes as one URL:
    /// `redis+quorum://user:password@a:6379/0,b,c`, with `%2C` for a comma in a password. All programs name the same nodes, each
    /// by the same host and port: the nodes store this list, and a program with another list does not use them. A program that
    /// reaches a node by another name appends the common name to its URL: `redis://localhost:7001?node=10.0.0.1:6379`.
    ///
    /// A ttl is at most half of the [wait](Self::quorum_wait) of the quorum: 30 s, unless you lengthen it in all programs.
    ///
    /// Every operation sends its request to all nodes at once and is done when a majority has decided. A node that does not answer
    /// costs only its vote. [Begin](Self::begin_quorum) a new quorum once, before its first lock. Waiters of different processes get
    /// the lock in approximate, not strict, FIFO order. [Reentrant locks](crate::ReentrantLock) do not work over a quorum: acquiring
    /// one is [`InvalidConfig`](LockError::InvalidConfig).
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for another number of nodes, for a node that is named twice, or as for
    /// [`connect`](Self::connect); [`Unavailable`](LockError::Unavailable), with the error of each node, if no majority answers.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a dropped future leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// let locks = lock_core::LockManager::builder().connect_quorum(nodes).await?;
    /// let guard = locks.lock("report").acquire().await?;
    /// # drop(guard); Ok(()) }
    /// ```
    pub async fn connect_quorum<U: AsRef<str>>(
        self,
        nodes: impl IntoIterator<Item = U>,
    ) -> Result<LockManager, LockError> {
        ready(self.start_quorum(&texts(nodes))?).await
    }

    /// Begins a new quorum. Call it once, before the first lock: from then on the nodes vote.
    ///
    /// A server without data may have lost votes for locks that are still held. So a node that belongs to no quorum yet votes only
    /// after the [wait](Self::quorum_wait) of the quorum, also in a new quorum. With this call the operator asserts that none of the
    /// servers was a node before, and skips the wait. **Do not call it whenever a program starts**: if all nodes have lost their data,
    /// a call ends their waits, and two clients may hold one lock. Several programs may call it at once, and a call that was
    /// interrupted may be repeated.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable) unless all nodes answer; [`InvalidConfig`](LockError::InvalidConfig) if some nodes have
    /// lost their data or have restarted since the quorum began, if one belongs to another quorum, without a tokio runtime (unless
    /// the builder has [`own_thread`](Self::own_thread)), or as for [`connect_quorum`](Self::connect_quorum).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some of the nodes may have begun. Call it again; otherwise the other nodes wait.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// lock_core::LockManager::builder().begin_quorum(nodes).await?;
    /// # Ok(()) }
    /// ```
    pub fn begin_quorum<U: AsRef<str>>(self, nodes: impl IntoIterator<Item = U>) -> BeginQuorum {
        BeginQuorum {
            builder: self,
            nodes: texts(nodes),
            anew: false,
        }
    }

    /// The state of each node of a quorum, in the order of their names: for operators. Writes nothing, and needs no majority.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](LockError::InvalidConfig) for a URL or a setting that cannot work, or without a tokio runtime (unless the
    /// builder has [`own_thread`](Self::own_thread)). The error of a node is in [`QuorumNode::vote`].
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// for node in lock_core::LockManager::builder().quorum_status(nodes).await? {
    ///     println!("{}: {:?}", node.address(), node.vote());
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn quorum_status<U: AsRef<str>>(
        self,
        nodes: impl IntoIterator<Item = U>,
    ) -> Result<Vec<QuorumNode>, LockError> {
        let own_thread = self.config.own_thread;
        let store = checked_quorum(self, &texts(nodes))?;
        run_alone(own_thread, async move { store.status().await }).await
    }
}

/// Begins a quorum when it is awaited. Made by [`LockManagerBuilder::begin_quorum`](crate::LockManagerBuilder::begin_quorum).
#[must_use = "a quorum begins when this is awaited"]
pub struct BeginQuorum {
    builder: LockManagerBuilder,
    nodes: Vec<String>,
    anew: bool,
}

// The URLs may have passwords.
impl fmt::Debug for BeginQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeginQuorum")
            .field("nodes", &self.nodes.len())
            .field("anew", &self.anew)
            .finish_non_exhaustive()
    }
}

impl BeginQuorum {
    /// Begins the quorum whatever its nodes have stored: ends their waits, and replaces their list and their
    /// [wait](crate::LockManagerBuilder::quorum_wait).
    ///
    /// With this call the operator asserts that **no program uses these nodes, and that no lock is held**: otherwise two clients may
    /// hold one lock. Use it to add nodes, to change the wait, or to repair a quorum after a node has lost its data for good.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let nodes = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// lock_core::LockManager::builder().begin_quorum(nodes).anew().await?;
    /// # Ok(()) }
    /// ```
    pub fn anew(mut self) -> Self {
        self.anew = true;
        self
    }

    async fn run(self) -> Result<(), LockError> {
        let own_thread = self.builder.config.own_thread;
        let store = checked_quorum(self.builder, &self.nodes)?;
        let beginning = async move {
            if self.anew {
                store.begin_anew().await
            } else {
                store.begin().await
            }
        };
        let done = run_alone(own_thread, beginning).await?;
        done.map_err(StoreError::into_lock_error)
    }
}

impl IntoFuture for BeginQuorum {
    type Output = Result<(), LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Makes a store without an engine, to ask the nodes of a quorum directly.
fn checked_quorum(
    mut builder: LockManagerBuilder,
    nodes: &[String],
) -> Result<QuorumStore, LockError> {
    builder.config.longest = Some(builder.quorum.longest());
    builder.check()?;
    builder.quorum_store(nodes)
}

fn texts<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Vec<String> {
    let urls: Vec<_> = urls.into_iter().collect();
    // One URL may name all nodes of the quorum.
    if let [url] = &urls[..]
        && let Some(nodes) = node_urls(url.as_ref())
    {
        return nodes;
    }
    urls.iter().map(|url| url.as_ref().to_owned()).collect()
}
