//! User and password that change while the program runs.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::base::sync::lock;

/// User and password for a connection, from a provider
/// ([`LockManagerBuilder::credentials`](crate::LockManagerBuilder::credentials)).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// let token = lock_core::Credentials::new("orders", "secret").lasts(Duration::from_secs(900));
/// assert!(!format!("{token:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) lasts: Option<Duration>,
}

impl Credentials {
    /// The user `default` is that of a server without users.
    ///
    /// # Examples
    ///
    /// See [`Credentials`].
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
            lasts: None,
        }
    }

    /// How long they last, for credentials that end a connection when they end: after four fifths of that time the provider is asked
    /// again, and the connection authenticates anew (`AUTH`). Default: without end.
    ///
    /// # Examples
    ///
    /// See [`Credentials`].
    #[must_use]
    pub fn lasts(mut self, time: Duration) -> Self {
        self.lasts = Some(time);
        self
    }
}

// The password is a secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("lasts", &self.lasts)
            .finish_non_exhaustive()
    }
}

type Failed = Box<dyn Error + Send + Sync>;
type Provide = dyn Fn() -> BoxFuture<'static, Result<Credentials, Failed>> + Send + Sync;

/// Provides credentials.
#[derive(Clone)]
pub(crate) struct Provider {
    provide: Arc<Provide>,
    /// The last user.
    user: Arc<Mutex<String>>,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").finish_non_exhaustive()
    }
}

impl Provider {
    pub(crate) fn new<F, E>(provide: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Failed>,
    {
        let provide = Arc::new(move || provide().map(|made| made.map_err(Into::into)).boxed());
        Self {
            provide,
            user: Arc::default(),
        }
    }

    /// The text of the error says what the provider did.
    pub(crate) async fn credentials(&self, limit: Duration) -> Result<Credentials, String> {
        // A panic of its own is that of one attempt.
        let provide = std::panic::AssertUnwindSafe(async { (self.provide)().await });
        let provided = tokio::time::timeout(limit, provide.catch_unwind()).await;
        let credentials = match provided {
            Ok(Ok(Ok(credentials))) => credentials,
            Ok(Ok(Err(error))) => {
                return Err(format!("the provider of credentials has none: {error}"));
            }
            Ok(Err(_)) => return Err("the provider of credentials has panicked".to_owned()),
            Err(_) => {
                return Err(format!(
                    "the provider of credentials gave none within {limit:?}"
                ));
            }
        };
        lock(&self.user).clone_from(&credentials.user);
        Ok(credentials)
    }

    /// The user of the last credentials.
    pub(crate) fn user(&self) -> String {
        lock(&self.user).clone()
    }
}
