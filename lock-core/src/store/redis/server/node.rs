//! What only the nodes of a quorum are asked for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Server;
use super::dialer::{Dial, Recipient};
use super::source::Source;
use crate::base::error::LockError;
use crate::base::sync::lock;
use crate::store::StoreError;
use crate::store::redis::connection::Connection;
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

    /// Whether there is a connection. If the engine is in use, one is being made with backoff, and a caller does not hurry it.
    pub(in crate::store) async fn is_reached(self: &Arc<Self>) -> bool {
        if self.current().is_none() && self.is_in_use() {
            self.dial();
            return false;
        }
        self.connected().await.is_ok()
    }

    /// Makes a connection beside the one in use.
    pub(in crate::store) async fn dial_beside(
        self: &Arc<Self>,
    ) -> Result<Arc<Connection>, StoreError> {
        let recipient = Arc::downgrade(self) as Weak<dyn Recipient>;
        let made = self.dialer.dial(recipient, Dial::Beside).await;
        made.map_err(|error| self.classify(error))
    }

    /// A connection that was made beside the one in use takes its place. What is under way there is still answered. False if the
    /// one in use has ended.
    pub(in crate::store) fn is_succeeded_by(self: &Arc<Self>, next: &Arc<Connection>) -> bool {
        let number = next.generation.number;
        {
            let mut state = lock(&self.state);
            if !state.succeeded(&next.generation, Arc::clone(next)) {
                return false;
            }
            self.subscriptions.adopt(number);
        }
        if next.is_over() {
            // It may have ended before it was in use.
            self.discard(number);
        }
        true
    }
}

impl Connection {
    /// Whether it was replaced, or has ended.
    pub(in crate::store) fn has_ended(&self) -> bool {
        !self.generation.messages_count()
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
