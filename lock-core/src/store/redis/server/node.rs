//! What only the nodes of a quorum are asked for.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisResult, Value};

use super::Server;
use super::ask_once::ask_once;
use super::source::Source;
use crate::base::error::LockError;
use crate::base::sync::lock;
use crate::base::time::Moment;
use crate::store::redis::connection::settings::RedisConfig;
use crate::store::redis::connection::url::Url;

impl Server {
    /// A node of a quorum: the server behind a URL, which stays the same.
    pub(in crate::store) fn at(
        url: &Url<'_>,
        config: &RedisConfig,
        limit: Duration,
    ) -> Result<Arc<Self>, LockError> {
        let mut source = Source::fixed(url.target(config)?.into());
        source.is_node = true;
        Ok(Self::open(source, limit))
    }

    /// Sends a request on a connection of its own, which ends with it.
    pub(in crate::store) async fn request_anew(&self, command: &Cmd) -> RedisResult<Value> {
        let target = self.source().target().await?;
        ask_once(&target, command, self.limit()).await
    }

    /// The time before the connection of this number was made, if it is still in use.
    pub(in crate::store) fn dialled(&self, number: u64) -> Option<Moment> {
        let state = lock(&self.state);
        let current = state.current();
        let same = current.filter(|it| it.generation.number == number);
        same.map(|it| it.dialled)
    }
}

impl<'a> Url<'a> {
    /// Takes out the value of an option. A second one stays, and is refused as unknown.
    pub(in crate::store) fn take(&mut self, option: &str) -> Option<&'a str> {
        let value = |it: &&'a str| it.strip_prefix(option)?.strip_prefix('=');
        let at = self.options.iter().position(|it| value(it).is_some())?;
        value(&self.options.remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_taken_out_once() {
        let mut url = Url::read("redis://u:p@a/1?protocol=resp2&node=b:7&node=c").unwrap();
        assert_eq!(url.take("node"), Some("b:7"));
        let config = RedisConfig::default();
        assert!(url.target(&config).is_err(), "the other one is not known");
        assert_eq!(url.take("node"), Some("c"));
        assert_eq!(url.take("node"), None);
        assert_eq!(&*url.target(&config).unwrap().address, "a:6379");
    }
}
