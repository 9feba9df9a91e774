//! What an examination of the servers has found.

/// How much a [`Finding`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// It is as it should be.
    Fine,
    /// It may cost locks on a bad day.
    Advice,
    /// Locks are in danger, or do not work.
    Problem,
}

/// One thing that [`LockManager::examine`](crate::LockManager::examine) has looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    server: String,
    severity: Severity,
    what: String,
    advice: Option<String>,
}

impl Finding {
    pub(crate) fn fine(server: &str, what: impl Into<String>) -> Self {
        Self {
            server: server.to_owned(),
            severity: Severity::Fine,
            what: what.into(),
            advice: None,
        }
    }

    pub(crate) fn of(
        server: &str,
        severity: Severity,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            advice: Some(advice.into()),
            ..Self::fine(server, what)
        }
    }

    /// Host and port; empty if it is about all servers.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// How much it matters.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// What was found, for people.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }
}
