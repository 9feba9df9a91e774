//! From the command line to a manager.

use lock_core::{LockManager, LockManagerBuilder, Tls};

use crate::exit::Failure;
use crate::options::Server;

impl Server {
    /// The URL, if one is given.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        let missing = "there is no server: state `--url`, or LOCK_URL in the environment";
        self.url
            .as_deref()
            .ok_or_else(|| Failure::Usage(missing.to_owned()))
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        let mut builder = LockManager::builder()
            .prefix(&self.prefix)
            .namespace(&self.namespace)
            .command_deadline(self.deadline);
        if let Some(tls) = self.tls() {
            builder = builder.tls(tls);
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
