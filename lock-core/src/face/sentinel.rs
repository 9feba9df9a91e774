//! Settings for sentinels.

use crate::base::credentials::{Credentials, Provider};
use crate::face::builder::LockManagerBuilder;
#[cfg(feature = "tls-rustls")]
use crate::store::SentinelTls;

impl LockManagerBuilder {
    /// As [`credentials`](Self::credentials), for the connections to sentinels.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use lock_core::{Credentials, LockManager};
    ///
    /// # async fn secret_of_the_vault() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = LockManager::builder()
    ///     .sentinel_credentials(|| async {
    ///         Ok::<_, std::io::Error>(Credentials::new("default", secret_of_the_vault().await?))
    ///     })
    ///     .connect("redis+sentinel://:secret@s1,s2,s3/mymaster")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn sentinel_credentials<F, E>(
        mut self,
        provider: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.redis.sentinel.credentials = Some(Provider::new(provider));
        self
    }

    /// The password of the sentinels behind a `redis+sentinel://` URL; the password in that URL is for the servers. Default: none.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.redis.sentinel.password = Some(password.into());
        self
    }

    /// The user of the sentinels, if they have users (`ACL`). Default: the default user.
    ///
    /// The user needs `+sentinel|get-master-addr-by-name`, `+sentinel|master`, `+sentinel|sentinels`, `+subscribe`, and the channel
    /// `+switch-master`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .sentinel_user("locks")
    ///     .sentinel_password("their secret")
    ///     .connect("redis+sentinel://s1,s2,s3/mymaster")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    pub fn sentinel_user(mut self, user: impl Into<String>) -> Self {
        self.redis.sentinel.user = Some(user.into());
        self
    }

    /// The TLS settings for the sentinels, or `None` for sentinels without TLS. Default: as for the servers. With a
    /// `rediss+sentinel://` URL that is TLS with the settings of [`tls`](Self::tls).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), lock_core::LockError> {
    /// let locks = lock_core::LockManager::builder()
    ///     .tls(lock_core::Tls::new().ca_file("/etc/redis/ca.pem"))
    ///     .sentinel_tls(None)
    ///     .connect("rediss+sentinel://s1,s2,s3/mymaster")
    ///     .await?;
    /// # let _ = locks; Ok(()) }
    /// ```
    #[cfg(feature = "tls-rustls")]
    pub fn sentinel_tls(mut self, tls: impl Into<Option<crate::Tls>>) -> Self {
        self.redis.sentinel.tls = tls.into().map_or(SentinelTls::Without, SentinelTls::With);
        self
    }
}
