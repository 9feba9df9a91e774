//! TLS over a stream of the library: the trusted certificates, the certificate of this client, and their errors.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::sync::Lazy;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::base::error::LockError;
use crate::base::tls::{Pem, Tls};

/// Root certificates of the system. Read once, because reading takes many milliseconds.
static SYSTEM: Lazy<RootCertStore> = Lazy::new(|| {
    let mut roots = RootCertStore::empty();
    for root in rustls_native_certs::load_native_certs().certs {
        // A root that cannot be read is not trusted.
        let _ = roots.add(root);
    }
    #[cfg(feature = "tls-webpki-roots")]
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    roots
});

/// The TLS of one server.
pub(in crate::store::redis) struct TlsClient {
    settings: Tls,
    name: ServerName<'static>,
    /// The configuration from when the manager connected. Used while the files cannot be read.
    first: ClientConfig,
}

/// Whether a server asked for a client certificate in the handshake.
#[derive(Debug)]
pub(in crate::store::redis) struct CertificateAsked {
    certificate: AtomicBool,
    inner: Arc<dyn ResolvesClientCert>,
}

impl ResolvesClientCert for CertificateAsked {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.certificate.store(true, Ordering::Relaxed);
        self.inner.resolve(issuers, schemes)
    }

    fn has_certs(&self) -> bool {
        self.inner.has_certs()
    }
}

impl TlsClient {
    pub(in crate::store::redis) fn new(
        settings: Option<&Tls>,
        host: &str,
    ) -> Result<Self, LockError> {
        let settings = settings.cloned().unwrap_or_default();
        let name = name_of(&settings, host)?;
        let first = configured(&settings).map_err(LockError::config)?;
        Ok(Self {
            settings,
            name,
            first,
        })
    }

    /// The same settings, for another host.
    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    pub(in crate::store::redis) fn to(&self, host: &str) -> Result<Self, LockError> {
        Ok(Self {
            settings: self.settings.clone(),
            name: name_of(&self.settings, host)?,
            first: self.first.clone(),
        })
    }

    /// Starts TLS. Also returns whether the server asked for a certificate; that is certain once the first reply has come.
    pub(in crate::store::redis) async fn start(
        &self,
        stream: TcpStream,
    ) -> (io::Result<TlsStream<TcpStream>>, Arc<CertificateAsked>) {
        let mut config = if self.reads_files() {
            configured(&self.settings).unwrap_or_else(|_| self.first.clone())
        } else {
            self.first.clone()
        };
        let asked = Arc::new(CertificateAsked {
            certificate: AtomicBool::new(false),
            inner: Arc::clone(&config.client_auth_cert_resolver),
        });
        config.client_auth_cert_resolver = Arc::clone(&asked) as Arc<dyn ResolvesClientCert>;
        let connector = TlsConnector::from(Arc::new(config));
        (connector.connect(self.name.clone(), stream).await, asked)
    }

    fn reads_files(&self) -> bool {
        let identity = self.settings.identity.iter();
        let identity = identity.flat_map(|(certificate, key)| [certificate, key]);
        let mut all = self.settings.authorities.iter().chain(identity);
        all.any(|pem| matches!(pem, Pem::File(_)))
    }

    /// Why the server at this address does not speak TLS with us, if a retry would not help.
    pub(in crate::store::redis) fn misconfigured(
        &self,
        error: &io::Error,
        asked: &CertificateAsked,
        at: &str,
    ) -> Option<String> {
        let error = error.get_ref()?.downcast_ref::<Error>()?;
        let name = self.name.to_str();
        Some(match error {
            Error::InvalidMessage(_) => not_tls(at),
            Error::InvalidCertificate(why) => match why {
                // `BadSignature` comes from another CA with the same name.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                    "the certificate of the server at {at} is signed by a CA that is not trusted here: name that CA with \
                     `.tls(Tls::new().ca_file(\"ca.pem\"))`, or add it to the roots of the system (`SSL_CERT_FILE`)"
                ),
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => format!(
                    "the certificate of the server at {at} is not for the name `{name}`: write a host of its \
                     subjectAltName in the URL, or name that with `.tls(Tls::new().server_name(..))`"
                ),
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => format!(
                    "the certificate of the server at {at} has expired: renew it there, or set the clock of this machine"
                ),
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    format!(
                        "the certificate of the server at {at} is not valid yet: set the clock of this machine, or renew it there"
                    )
                }
                CertificateError::Other(_) => format!(
                    "the certificate of the server at {at} is not made for a server: it has to be of version 3, with \
                     `basicConstraints=CA:FALSE` and a subjectAltName"
                ),
                why => format!(
                    "the certificate of the server at {at} cannot be accepted ({why}): replace it there"
                ),
            },
            Error::AlertReceived(AlertDescription::ProtocolVersion) => format!(
                "the server at {at} supports neither TLS 1.2 nor TLS 1.3: permit one of them there"
            ),
            // TLS 1.2 sends these if a client certificate is missing or is not accepted.
            Error::AlertReceived(
                AlertDescription::HandshakeFailure | AlertDescription::DecryptError,
            ) if asked.certificate.load(Ordering::Relaxed) => self.wants_certificate(at),
            Error::AlertReceived(alert) => self.alerted(*alert, at)?,
            _ => return None,
        })
    }

    fn alerted(&self, alert: AlertDescription, at: &str) -> Option<String> {
        use AlertDescription as A;
        match alert {
            A::CertificateRequired
            | A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::AccessDenied => Some(self.wants_certificate(at)),
            _ => None,
        }
    }

    /// The error for a server that ends the first connection after the handshake, before any reply. Its alert may be lost.
    pub(in crate::store::redis) fn ended(
        &self,
        asked: &CertificateAsked,
        at: &str,
    ) -> Option<String> {
        let asked = asked.certificate.load(Ordering::Relaxed);
        // If this client has a certificate, only an alert proves that the server refused it.
        (asked && self.settings.identity.is_none()).then(|| self.wants_certificate(at))
    }

    fn wants_certificate(&self, at: &str) -> String {
        if self.settings.identity.is_some() {
            format!(
                "the server at {at} refuses the client certificate: give one that is signed by its CA and has not expired with \
                 `.tls(Tls::new().identity_files(..))`"
            )
        } else {
            format!(
                "the server at {at} asks for a client certificate: give it with \
                 `.tls(Tls::new().identity_files(\"client.pem\", \"client.key\"))`"
            )
        }
    }
}

/// The name that the certificate of a server must have.
fn name_of(settings: &Tls, host: &str) -> Result<ServerName<'static>, LockError> {
    let name = settings.server_name.as_deref().unwrap_or(host).to_owned();
    ServerName::try_from(name).map_err(|_| {
        LockError::config(
            "the server name for TLS is neither a host name nor an IP address: give it without a port",
        )
    })
}

/// The error for a server that was addressed over TLS and does not speak TLS.
pub(in crate::store::redis) fn not_tls(at: &str) -> String {
    format!(
        "the server at {at} does not speak TLS on this port: write `redis://`, or name its TLS port"
    )
}

fn configured(settings: &Tls) -> Result<ClientConfig, String> {
    // Use the process-wide `CryptoProvider` if the program has installed one.
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?;
    let builder = match verifier(settings, provider) {
        Some(any) => builder.dangerous().with_custom_certificate_verifier(any),
        None => builder.with_root_certificates(trusted(settings)?),
    };
    let Some((certificate, key)) = &settings.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(certificate, "client certificate")?;
    let text = key.read("private key")?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        format!(
            "{} has no private key in PEM format",
            key.place("private key")
        )
    })?;
    builder.with_client_auth_cert(chain, key).map_err(|error| {
        format!("the client certificate and its private key cannot be used: {error}")
    })
}

fn trusted(settings: &Tls) -> Result<RootCertStore, String> {
    if settings.authorities.is_empty() {
        if SYSTEM.is_empty() {
            return Err(
                "this system has no root certificates: install them (Debian's `ca-certificates`), set `SSL_CERT_FILE`, or name \
                 the CA with `.tls(Tls::new().ca_file(..))`"
                    .to_owned(),
            );
        }
        return Ok(SYSTEM.clone());
    }
    let mut roots = RootCertStore::empty();
    for pem in &settings.authorities {
        for certificate in certificates(pem, "CA")? {
            roots.add(certificate).map_err(|error| {
                format!(
                    "{} has a certificate that cannot be used: {error}",
                    pem.place("CA")
                )
            })?;
        }
    }
    Ok(roots)
}

fn certificates(pem: &Pem, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = pem.read(what)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.unwrap_or_default();
    if all.is_empty() {
        return Err(format!(
            "{} has no certificate in PEM format",
            pem.place(what)
        ));
    }
    Ok(all)
}

impl Pem {
    fn read(&self, what: &str) -> Result<Cow<'_, [u8]>, String> {
        match self {
            Self::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
            Self::File(path) => read(path)
                .map(Cow::Owned)
                .map_err(|error| format!("{} cannot be read: {error}", self.place(what))),
        }
    }

    fn place(&self, what: &str) -> String {
        match self {
            Self::Bytes(_) => format!("the text of the {what} for TLS"),
            Self::File(path) => format!("the file `{}` of the {what} for TLS", path.display()),
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path)
}

#[cfg(not(feature = "tls-insecure"))]
fn verifier(_: &Tls, _: Arc<CryptoProvider>) -> Option<Arc<dyn ServerCertVerifier>> {
    None
}

#[cfg(feature = "tls-insecure")]
fn verifier(settings: &Tls, provider: Arc<CryptoProvider>) -> Option<Arc<dyn ServerCertVerifier>> {
    settings
        .insecure
        .then(|| Arc::new(any::Any(provider)) as Arc<dyn ServerCertVerifier>)
}

/// A verifier that accepts any certificate.
#[cfg(feature = "tls-insecure")]
mod any {
    use std::sync::Arc;

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};

    #[derive(Debug)]
    pub(in crate::store::redis) struct Any(pub(in crate::store::redis) Arc<CryptoProvider>);

    impl ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.0.signature_verification_algorithms;
            verify_tls12_signature(message, cert, signed, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = &self.0.signature_verification_algorithms;
            verify_tls13_signature(message, cert, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }
}
