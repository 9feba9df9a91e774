//! What only the masters of a cluster are asked for.

use std::sync::Arc;
use std::time::Duration;

use super::Server;
use super::call::CallFailure;
use super::source::{InCluster, Source};
use super::state::ServerState;
use crate::base::sync::lock;
use crate::store::redis::connection::cluster_settings::Address;
use crate::store::redis::connection::target::Target;
use crate::store::redis::error::is_made_up;
use crate::store::redis::script::{OF_USER, Script};

impl Source {
    /// A master of a cluster.
    pub(in crate::store::redis) fn of_cluster(url: Target, in_cluster: InCluster) -> Self {
        let mut source = Self::fixed(url.into());
        source.in_cluster = Some(in_cluster);
        source
    }
}

impl Server {
    /// Its name in its cluster.
    pub(in crate::store::redis) fn named(&self) -> Option<&Address> {
        let in_cluster = self.source().in_cluster.as_ref()?;
        Some(&in_cluster.address)
    }

    /// Notes that the server is no master of the cluster any more.
    pub(in crate::store::redis) fn retire(self: &Arc<Self>) {
        self.leaves(ServerState::retired);
        self.changed.notify_waiters();
        self.attempted.notify_waiters();
        self.of_slots.iter().for_each(Self::retire);
    }

    /// Whether a request is under way, or waits for a connection.
    pub(in crate::store::redis) fn is_asked(&self) -> bool {
        self.is_busy() || lock(&self.state).has_callers()
    }

    /// Whether the server may be away: the connection is being made, or an answer takes longer than `late`.
    pub(in crate::store::redis) fn is_in_doubt(&self, late: Duration) -> bool {
        let state = lock(&self.state);
        match state.current() {
            None => state.is_being_made(),
            Some(it) => it.is_busy() && it.silence.lasts(Duration::ZERO) > late,
        }
    }
}

impl CallFailure {
    /// Whether the connection broke, or is silent.
    pub(in crate::store::redis) fn is_broken(&self) -> bool {
        match self {
            Self::Error(error) => error.is_io_error(),
            Self::Silence => true,
        }
    }

    /// Whether there was no connection on which to send it.
    pub(in crate::store::redis) fn was_not_sent(&self) -> bool {
        matches!(self, Self::Error(error) if error.is_connection_refusal())
    }

    /// Whether some keys of the request are on another node of the cluster.
    pub(in crate::store::redis) fn is_half_moved(&self) -> bool {
        matches!(self, Self::Error(error) if error.code() == Some("TRYAGAIN") && !is_made_up(error))
    }
}

impl Script {
    /// Whether it is one of the library: then it may be repeated.
    pub(in crate::store::redis) fn is_ours(&self) -> bool {
        self.name != OF_USER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::connection::settings::RedisConfig;
    use crate::store::redis::connection::url::Url;

    #[tokio::test]
    async fn a_caller_of_a_retired_server_is_told_at_once_that_nothing_was_sent() {
        let url = Url::read("redis://127.0.0.1:1").unwrap();
        let source = Source::of_url(url.target(&RedisConfig::default()).unwrap());
        let server = Server::open(source, Duration::from_secs(60));
        server.retire();
        let error = server.connection().await.err().unwrap();
        assert!(error.is_connection_refusal(), "{error}");
    }
}
