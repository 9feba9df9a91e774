//! The beginning of a quorum.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;

use crate::base::config::Config;
use crate::base::error::LockError;
use crate::base::rt::Handle;
use crate::store::{QuorumStore, StoreError};

/// The beginning of a quorum, by [`LockManagerBuilder::begin_quorum`](crate::LockManagerBuilder::begin_quorum). It does nothing until
/// it is awaited.
#[derive(Debug)]
#[must_use = "a quorum begins when this is awaited"]
pub struct BeginQuorum {
    pub(crate) config: Config,
    pub(crate) nodes: Vec<String>,
    pub(crate) anew: bool,
}

impl BeginQuorum {
    /// Begins the quorum whatever its nodes have: it ends their waits, and replaces their list and their
    /// [wait](crate::LockManagerBuilder::quorum_wait).
    ///
    /// With this call the operator asserts that **no program uses these nodes, and that no lock is held**: otherwise two clients may
    /// hold one lock. It is the way to add nodes, to change the wait, and to repair a quorum of which a node has lost its data for
    /// good.
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
        self.config.check()?;
        Handle::try_current().map_err(|_| {
            LockError::config("there is no tokio runtime here: begin a quorum inside one")
        })?;
        let store = QuorumStore::open(&self.nodes, &self.config)?;
        let begun = if self.anew {
            store.begin_anew().await
        } else {
            store.begin().await
        };
        begun.map_err(StoreError::into_lock_error)
    }
}

impl IntoFuture for BeginQuorum {
    type Output = Result<(), LockError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
