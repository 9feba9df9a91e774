//! Settings for TLS.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The certificates to trust over TLS, and the identity of this client. Passed to
/// [`LockManagerBuilder::tls`](crate::LockManagerBuilder::tls).
///
/// Without these settings a `rediss://` URL trusts the root certificates of the system, which the environment variable
/// `SSL_CERT_FILE` replaces. Files are read when the manager connects, and again for each later connection: a certificate that was
/// renewed on disk needs no restart.
///
/// # Examples
///
/// ```no_run
/// use lock_core::{LockManager, Tls};
///
/// # async fn example() -> Result<(), lock_core::LockError> {
/// let tls = Tls::new()
///     .ca_file("/etc/redis/ca.pem")
///     .identity_files("/etc/redis/client.pem", "/etc/redis/client.key");
/// let locks = LockManager::builder().tls(tls).connect("rediss://redis.internal:6380").await?;
/// # let _ = locks; Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "settings do nothing before `LockManagerBuilder::tls`"]
pub struct Tls {
    pub(crate) authorities: Vec<Pem>,
    /// The certificate chain of this client, and its private key.
    pub(crate) identity: Option<(Pem, Pem)>,
    pub(crate) server_name: Option<String>,
    #[cfg(feature = "tls-insecure")]
    pub(crate) insecure: bool,
}

/// A text in PEM format.
#[derive(Clone)]
pub(crate) enum Pem {
    Bytes(Arc<[u8]>),
    File(PathBuf),
}

impl Tls {
    /// Trusts the roots of the system, and has no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificate authorities in this PEM text, and no others. Further calls add to them.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example() -> std::io::Result<lock_core::Tls> {
    /// let pem = std::fs::read("/etc/redis/ca.pem")?;
    /// Ok(lock_core::Tls::new().ca(pem))
    /// # }
    /// ```
    pub fn ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities.push(Pem::bytes(pem));
        self
    }

    /// As [`ca`](Self::ca), with the PEM text in a file.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.authorities.push(Pem::File(path.into()));
        self
    }

    /// The certificate and the private key of this client, both in PEM format, for a server that requires them (mutual TLS).
    /// Intermediate certificates follow the certificate in the same text.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example() -> std::io::Result<lock_core::Tls> {
    /// let (certificate, key) = (std::fs::read("client.pem")?, std::fs::read("client.key")?);
    /// Ok(lock_core::Tls::new().identity(certificate, key))
    /// # }
    /// ```
    pub fn identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((Pem::bytes(certificate), Pem::bytes(key)));
        self
    }

    /// As [`identity`](Self::identity), with the PEM texts in files.
    pub fn identity_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.identity = Some((Pem::File(certificate.into()), Pem::File(key.into())));
        self
    }

    /// The name in the server's certificate, if it differs from the host in the URL: behind a tunnel, or for a server that is
    /// reached by its IP address.
    ///
    /// # Examples
    ///
    /// ```
    /// let tls = lock_core::Tls::new().server_name("redis.internal");
    /// ```
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Trusts any certificate. For tests only: an attacker between this client and the server can then read and change everything,
    /// including the password.
    #[cfg(feature = "tls-insecure")]
    pub fn insecure(mut self) -> Self {
        self.insecure = true;
        self
    }
}

impl Pem {
    fn bytes(pem: impl Into<Vec<u8>>) -> Self {
        Self::Bytes(pem.into().into())
    }
}

// The key is a secret.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}
