//! User and password that change while the program runs.

use std::error::Error;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::base::backoff::Backoff;
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
    /// When the provider gave them.
    pub(crate) at: Instant,
}

impl Credentials {
    /// For a server without users, name the user `default`.
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
            at: Instant::now(),
        }
    }

    /// When new credentials are due; `None` for never.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.at.checked_add(self.lasts?.mul_f64(0.8))
    }

    /// How long the credentials last, if a connection ends with them. After four fifths of that time the provider is called again, and
    /// the connection authenticates again (`AUTH`). Default: without end.
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

/// Maximum pauses after the provider was asked in vain: after the first time, and after any number.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(1_600);

/// Provides credentials. Each connection uses the last ones until a server refuses them, or until most of their time is over.
#[derive(Clone)]
pub(crate) struct Provider {
    provide: Arc<Provide>,
    /// Locked while the provider is asked.
    asked: Arc<tokio::sync::Mutex<Asked>>,
    /// The last user.
    user: Arc<Mutex<String>>,
}

struct Asked {
    last: Option<Arc<Credentials>>,
    /// When the provider was asked, and when it may be asked again.
    at: Option<(Instant, Instant)>,
    /// How often the provider was asked since a server accepted its credentials, and why that was in vain.
    backoff: Backoff,
    failure: String,
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
            asked: Arc::new(tokio::sync::Mutex::new(Asked {
                last: None,
                at: None,
                backoff: Backoff::new(PAUSE, LONGEST_PAUSE),
                failure: String::new(),
            })),
            user: Arc::default(),
        }
    }

    /// Credentials other than the `refused` ones. If the provider has none, the last ones, although their time is over: the server may
    /// still accept them. The text of the error says what the provider did.
    pub(crate) async fn credentials(
        &self,
        limit: Duration,
        refused: Option<&Arc<Credentials>>,
    ) -> Result<Arc<Credentials>, String> {
        let begun = Instant::now();
        let mut asked = self.asked.lock().await;
        let is_other = |last: &_| refused.is_none_or(|refused| !Arc::ptr_eq(refused, last));
        let (last, now) = (asked.last.clone().filter(is_other), Instant::now());
        if let Some(last) = &last
            && last.due().is_none_or(|due| now < due)
        {
            return Ok(Arc::clone(last));
        }
        if let Some((at, next)) = asked.at.filter(|_| asked.backoff.failures() > 0) {
            // Another caller has just asked, or the pause leaves no time for the answer.
            if at >= begun || next > now + limit / 2 {
                return last.ok_or_else(|| asked.failure.clone());
            }
            sleep_until(next).await;
        }
        let (now, pause) = (Instant::now(), asked.backoff.failed());
        asked.at = Some((now, now + pause));
        // A panic of the provider costs only this attempt.
        let provide = AssertUnwindSafe(async { (self.provide)().await });
        asked.failure = match timeout_at(begun + limit, provide.catch_unwind()).await {
            Ok(Ok(Ok(mut given))) => {
                given.at = Instant::now();
                lock(&self.user).clone_from(&given.user);
                asked.last = Some(Arc::new(given));
                "it refuses the credentials of the provider".to_owned()
            }
            Ok(Ok(Err(error))) => format!("the provider of credentials has none: {error}"),
            Ok(Err(_)) => "the provider of credentials has panicked".to_owned(),
            Err(_) => format!("the provider of credentials gave none within {limit:?}"),
        };
        let given = asked.last.clone().filter(is_other);
        given.ok_or_else(|| asked.failure.clone())
    }

    /// Notes that a server has accepted the last credentials.
    pub(crate) fn was_right(&self) {
        // While the provider is asked, another server has refused them.
        if let Ok(mut asked) = self.asked.try_lock() {
            asked.backoff.over();
        }
    }

    /// The user of the last credentials.
    pub(crate) fn user(&self) -> String {
        lock(&self.user).clone()
    }
}
