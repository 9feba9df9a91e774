//! From the command line to a manager.

use std::time::Duration;

use lock_core::{LockError, LockManager, LockManagerBuilder, Tls};
use tokio::time::{Instant, sleep};

use crate::exit::Failure;
use crate::options::Server;

/// Interval between two attempts to reach a server that is away.
const RETRY: Duration = Duration::from_millis(100);

impl Server {
    /// The URL, if one is given.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        let missing = "there is no server: state `--url`, or LOCK_URL in the environment";
        let url = self.url.as_deref();
        let url = url.ok_or_else(|| Failure::Usage(missing.to_owned()))?;
        if url.starts_with("memory://") {
            let alone = "locks of `memory://` are inside one process, so that lockctl would exclude no other process and find no lock: state the URL of the server that the programs use";
            return Err(Failure::Refused(alone.to_owned()));
        }
        Ok(url)
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        let mut builder = LockManager::builder()
            .prefix(&self.prefix)
            .namespace(&self.namespace)
            .command_deadline(self.deadline);
        if let Some(tls) = self.tls() {
            builder = builder.tls(tls);
        }
        if self.any_version {
            builder = builder.any_version();
        }
        if self.plain_sentinels {
            builder = builder.sentinel_tls(None);
        }
        if let Some(wait) = self.quorum_wait {
            builder = builder.quorum_wait(wait);
        }
        if let Some(user) = &self.sentinel_user {
            builder = builder.sentinel_user(user);
        }
        if let Some(password) = &self.sentinel_password {
            builder = builder.sentinel_password(password);
        }
        builder
    }

    pub(crate) async fn connect(&self) -> Result<LockManager, Failure> {
        Ok(self.builder().connect(self.url()?).await?)
    }

    /// As [`connect`](Self::connect). A server that is away has this time to come.
    pub(crate) async fn connect_within(
        &self,
        wait: Option<Duration>,
    ) -> Result<LockManager, Failure> {
        let began = Instant::now();
        loop {
            let connected = self.connect().await;
            let left = wait.unwrap_or_default().saturating_sub(began.elapsed());
            let is_away = matches!(connected, Err(Failure::Lock(LockError::Unavailable { .. })));
            if !is_away || left.is_zero() {
                return connected;
            }
            sleep(left.min(RETRY)).await;
        }
    }

    fn tls(&self) -> Option<Tls> {
        let mut tls = Tls::new();
        let mut is_set = self.insecure;
        if self.insecure {
            tls = tls.insecure();
        }
        if let Some(file) = &self.ca {
            (tls, is_set) = (tls.ca_file(file), true);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.cert_key) {
            (tls, is_set) = (tls.identity_files(cert, key), true);
        }
        if let Some(name) = &self.tls_name {
            (tls, is_set) = (tls.server_name(name), true);
        }
        is_set.then_some(tls)
    }
}
