//! Settings for a cluster.

use std::sync::Arc;

use crate::face::builder::LockManagerBuilder;
use crate::store::ClusterAddresses;

impl LockManagerBuilder {
    /// Translates the addresses of a cluster's nodes, if this program reaches them at others: behind NAT, or a forwarded port. The
    /// function gets the host and the port that the cluster names, and returns those to connect to. Default: no change.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .cluster_addresses(|_host, port| ("127.0.0.1".to_owned(), port + 10_000))
    ///     .connect("redis+cluster://127.0.0.1:17000,127.0.0.1:17001")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn cluster_addresses(
        mut self,
        addresses: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static,
    ) -> Self {
        self.redis.cluster_addresses = Some(ClusterAddresses(Arc::new(addresses)));
        self
    }
}
