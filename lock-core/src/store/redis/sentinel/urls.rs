//! The URL of the sentinels of a master.

use std::time::Duration;

use super::board::Sentinels;
use super::followed::Followed;
use crate::base::error::LockError;
use crate::store::redis::connection::hosts::SLASH;
use crate::store::redis::connection::settings::RedisConfig;
use crate::store::redis::connection::target::Target;
use crate::store::redis::connection::url::Url;

const SENTINELS: &str = "write `redis+sentinel://user:password@s1:26379,s2:26379/name/db`, with the user and the password of the servers";

impl Followed {
    /// The master in `redis+sentinel://[user:password@]s1:26379,s2:26379/name[/db]`.
    pub(in crate::store::redis) fn behind_sentinels(
        url: &Url<'_>,
        config: &RedisConfig,
        limit: Duration,
    ) -> Result<Self, LockError> {
        let wrong = |what: &str| Err(LockError::config(format!("{what}: {SENTINELS}")));
        let place = url.hosts(26379);
        let (name, db) = place.path.split_once('/').unwrap_or((place.path, ""));
        if name.is_empty() {
            return wrong("the URL names no master");
        }
        if place.path.contains('@') {
            return wrong(SLASH);
        }
        if place.lacks_a_host() {
            return wrong("the URL has a sentinel without a host");
        }
        let own = config.sentinel.config(config);
        let is_tls = config.sentinel.speaks_tls(url.is_tls);
        let sentinels = place.hosts.iter().map(|host| {
            let mut target = Target::read("redis", host, &[], is_tls, &own)?;
            let mut settings = target.info.redis_settings().clone();
            if let Some(user) = &config.sentinel.user {
                settings = settings.set_username(user);
            }
            if let Some(password) = &config.sentinel.password {
                settings = settings.set_password(password);
            }
            target.info = target.info.set_redis_settings(settings);
            Ok(target)
        });
        let sentinels = sentinels.collect::<Result<Vec<_>, LockError>>()?;
        let sentinels = Sentinels::new(name, sentinels, limit);
        let first = url.server(place.login, &place.hosts[0], db, config)?;
        Ok(Self::new(first.into(), Some(sentinels)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<String, LockError> {
        let url = Url::read(url)?;
        let master = Followed::behind_sentinels(&url, &RedisConfig::default(), Duration::ZERO)?;
        Ok(master.address().to_string())
    }

    #[test]
    fn the_sentinels_of_a_url_are_read() {
        let one = "orders (sentinels s:26379)";
        let three = "orders (sentinels a:1, [::1]:26379, [::2]:2)";
        for (url, expected) in [
            ("redis+sentinel://s/orders", one),
            ("redis-sentinel://s/orders/3", one),
            ("valkey+sentinel://me:p%40@s/orders?protocol=resp2", one),
            ("redis+sentinel://a:1,[::1],[::2]:2/orders", three),
        ] {
            assert_eq!(read(url).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn each_mistake_in_a_url_of_sentinels_has_its_sentence() {
        let no_master = "the URL names no master";
        let no_sentinel = "the URL has a sentinel without a host";
        for (url, what) in [
            ("redis+sentinel://s:1,t:2", no_master),
            ("redis+sentinel://s:1,t:2/", no_master),
            ("redis+sentinel://s,,t/orders", no_sentinel),
            ("redis+sentinel:///orders", no_sentinel),
            ("redis+sentinel://me:17/secret@s", SLASH),
        ] {
            let expected = format!("lock configuration: {what}: {SENTINELS}");
            assert_eq!(read(url).unwrap_err().to_string(), expected, "{url}");
        }
    }
}
