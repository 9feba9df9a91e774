//! Stands for this folder in a build without that feature: no master is followed, and the error that says so.

pub(super) mod followed {
    use std::future::Ready;
    use std::sync::Arc;
    use std::time::Duration;

    use redis::RedisResult;

    use crate::base::error::LockError;
    use crate::store::redis::connection::settings::RedisConfig;
    use crate::store::redis::connection::target::Target;
    use crate::store::redis::connection::url::Url;

    /// Without values, so that the compiler leaves out what is done with one.
    pub(in crate::store::redis) enum Followed {}

    impl Followed {
        pub(in crate::store::redis) fn behind_sentinels(
            _url: &Url<'_>,
            _config: &RedisConfig,
            _limit: Duration,
        ) -> Result<Self, LockError> {
            Err(LockError::config(
                "this build cannot ask sentinels: enable the feature `sentinel` of lock-core for `redis+sentinel://`",
            ))
        }

        /// A plain URL leads to its server, whatever sentinels announce there.
        pub(in crate::store::redis) fn behind(_: &Arc<Target>) -> Option<Self> {
            None
        }

        pub(in crate::store::redis) fn url(&self) -> &Arc<Target> {
            match *self {}
        }

        pub(in crate::store::redis) fn watch<F>(&self, _: &Arc<F>) {
            match *self {}
        }

        pub(in crate::store::redis) fn channel(&self) -> &'static str {
            match *self {}
        }

        pub(in crate::store::redis) fn heard(&self, _: &str) -> bool {
            match *self {}
        }

        pub(in crate::store::redis) fn address(&self) -> Arc<str> {
            match *self {}
        }

        pub(in crate::store::redis) fn target(&self) -> Ready<RedisResult<Arc<Target>>> {
            match *self {}
        }

        pub(in crate::store::redis) fn is_no_master(&self) {
            match *self {}
        }

        pub(in crate::store::redis) fn failed(&self, _: &Arc<Target>) {
            match *self {}
        }
    }
}
