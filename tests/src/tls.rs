//! A certificate authority of a test's own, and servers over TLS.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};

use crate::port::Port;
use crate::server::{TestServer, TestServerBuilder};

/// A certificate authority.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// A certificate and its private key, both in PEM format.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl Authority {
    /// A new one, with a key of its own.
    ///
    /// # Panics
    ///
    /// When no key can be made.
    #[must_use]
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params
            .distinguished_name
            .push(DnType::CommonName, "a CA of the tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// Its certificate, in PEM format.
    #[must_use]
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A certificate for this name, valid or expired.
    ///
    /// # Panics
    ///
    /// When the name is neither a host nor an address.
    #[must_use]
    pub fn issue(&self, name: &str, expired: bool) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// A server that listens with TLS beside its plain port.
#[derive(Debug)]
pub struct TlsServer {
    server: TestServer,
    port: Port,
    // Removed after the server has ended.
    _files: tempdir::TempDir,
}

impl TlsServer {
    /// Starts a server with this certificate. With `clients`, it asks its clients for certificates of this authority.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn start(authority: &Authority, identity: &Identity, clients: bool) -> Self {
        Self::start_with(TestServer::builder(), authority, identity, clients).await
    }

    /// As [`start`](Self::start), with further options.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub async fn start_with(
        builder: TestServerBuilder,
        authority: &Authority,
        identity: &Identity,
        clients: bool,
    ) -> Self {
        let files = tempdir::TempDir::new();
        let ca = files.write("ca.pem", &authority.pem());
        let certificate = files.write("server.pem", &identity.certificate);
        let key = files.write("server.key", &identity.key);
        let port = Port::free();
        let server = builder
            .arg("--tls-port", &port.number.to_string())
            .arg("--tls-ca-cert-file", &ca)
            .arg("--tls-cert-file", &certificate)
            .arg("--tls-key-file", &key)
            .arg("--tls-auth-clients", if clients { "yes" } else { "no" })
            .start()
            .await;
        Self {
            server,
            port,
            _files: files,
        }
    }

    /// Its plain port, for what the test itself asks.
    #[must_use]
    pub fn plain(&self) -> &TestServer {
        &self.server
    }

    /// The port with TLS.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// `host:port` with TLS.
    #[must_use]
    pub fn at(&self, host: &str) -> String {
        format!("{host}:{}", self.port.number)
    }

    /// `rediss://localhost:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("rediss://{}", self.at("localhost"))
    }
}

mod tempdir {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A folder that is removed on drop.
    #[derive(Debug)]
    pub(super) struct TempDir(PathBuf);

    impl TempDir {
        pub(super) fn new() -> Self {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("lock-tests-tls-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("a folder");
            Self(path)
        }

        pub(super) fn write(&self, name: &str, text: &str) -> String {
            let path = self.0.join(name);
            fs::write(&path, text).expect("a file");
            path.display().to_string()
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
