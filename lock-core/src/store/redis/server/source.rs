//! Where a server is, and what it is: the only one, a master of a cluster, or a node of a quorum.

use std::sync::Arc;

use redis::RedisResult;

use crate::store::redis::connection::target::Target;
use crate::store::redis::sentinel::followed::Followed;

/// A master of a cluster.
#[derive(Clone)]
pub(in crate::store::redis) struct InCluster {
    #[cfg(feature = "cluster")]
    pub(in crate::store::redis) address: crate::store::redis::connection::cluster_settings::Address,
    /// A tag in one of its slots.
    pub(in crate::store::redis) tag: &'static str,
}

/// Where a server is.
pub(in crate::store::redis) struct Source {
    /// As in the URL.
    url: Arc<Target>,
    /// Whether a message of a sentinel is followed. Not by a node of a quorum: it is one server.
    pub(in crate::store::redis) followed: Option<Followed>,
    /// Whether it is a node of a quorum. Its note has the number of the format.
    pub(in crate::store::redis) is_node: bool,
    pub(in crate::store::redis) in_cluster: Option<InCluster>,
    /// Whether it is the second connection to a master of a cluster, for sharded channels alone.
    pub(in crate::store::redis) is_of_slots: bool,
}

impl Source {
    pub(super) fn fixed(url: Arc<Target>) -> Self {
        Self {
            url,
            followed: None,
            is_node: false,
            in_cluster: None,
            is_of_slots: false,
        }
    }

    /// The same master of a cluster, for its sharded channels.
    pub(in crate::store::redis) fn of_slots(&self) -> Option<Self> {
        let mut source = Self::fixed(Arc::clone(&self.url));
        (source.in_cluster, source.is_of_slots) = (self.in_cluster.clone(), true);
        (self.in_cluster.is_some() && !self.is_of_slots).then_some(source)
    }

    /// The server of a plain URL, until a message of a sentinel names another one.
    pub(in crate::store::redis) fn of_url(url: Target) -> Self {
        let mut source = Self::fixed(url.into());
        source.followed = Followed::behind(&source.url);
        source
    }

    /// The master behind the sentinels of a URL.
    pub(in crate::store::redis) fn behind_sentinels(followed: Followed) -> Self {
        let mut source = Self::fixed(Arc::clone(followed.url()));
        source.followed = Some(followed);
        source
    }

    /// Host and port of the master, as far as they are known.
    pub(in crate::store::redis) fn address(&self) -> Arc<str> {
        match &self.followed {
            Some(followed) => followed.address(),
            None => Arc::clone(&self.url.address),
        }
    }

    pub(in crate::store::redis) fn namespace(&self) -> &str {
        &self.url.namespace
    }

    pub(in crate::store::redis) fn is_tls(&self) -> bool {
        self.url.is_tls()
    }

    pub(in crate::store::redis) fn resp3(&self) -> bool {
        self.url.resp3
    }

    /// The target of the next connection.
    pub(in crate::store::redis) async fn target(&self) -> RedisResult<Arc<Target>> {
        match &self.followed {
            Some(followed) => followed.target().await,
            None => Ok(Arc::clone(&self.url)),
        }
    }

    /// The server in use says that it is a replica.
    pub(in crate::store::redis) fn is_no_master(&self) {
        if let Some(followed) = &self.followed {
            followed.is_no_master();
        }
    }

    /// This target has no master for us.
    pub(in crate::store::redis) fn failed(&self, target: &Arc<Target>) {
        if let Some(followed) = &self.followed {
            followed.failed(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::connection::settings::RedisConfig;
    use crate::store::redis::connection::url::Url;

    #[test]
    fn sentinels_are_followed_behind_a_plain_url_with_their_feature_only() {
        let url = Url::read("redis://h").unwrap();
        let source = Source::of_url(url.target(&RedisConfig::default()).unwrap());
        assert_eq!(source.followed.is_some(), cfg!(feature = "sentinel"));
        assert_eq!(&*source.address(), "h:6379");
    }
}
