//! A URL that names sentinels: `redis+sentinel://[user:password@]s1:26379,s2:26379/name[/db]`.

use std::time::Duration;

use super::sentinels::Sentinels;
use super::settings::RedisConfig;
use super::source::Source;
use super::target::Target;
use crate::base::error::LockError;

const HOW: &str = "write `redis+sentinel://user:password@s1:26379,s2:26379/name/db`, with the user and the password of the servers";

/// Port of a sentinel, unless the URL names another one.
const PORT: u16 = 26379;

/// The source behind a URL of this kind; `None` for any other URL.
pub(super) fn source(
    url: &str,
    config: &RedisConfig,
    limit: Duration,
) -> Option<Result<Source, LockError>> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme {
        "redis+sentinel" | "redis-sentinel" | "valkey+sentinel" | "valkey-sentinel" => "redis",
        "rediss+sentinel" | "rediss-sentinel" | "valkeys+sentinel" | "valkeys-sentinel" => "rediss",
        _ => return None,
    };
    Some(parsed(scheme, rest, config, limit))
}

fn parsed(
    scheme: &str,
    rest: &str,
    config: &RedisConfig,
    limit: Duration,
) -> Result<Source, LockError> {
    let wrong = |what: &str| LockError::config(format!("{what}: {HOW}"));
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match hosts.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), hosts),
    };
    let (name, db) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err(wrong("the URL names no master"));
    }
    if path.contains('@') {
        return Err(wrong("a `/` in the password is written `%2F`"));
    }
    let hosts: Vec<String> = hosts.split(',').map(with_port).collect();
    if hosts.iter().any(|host| host.starts_with(':')) {
        return Err(wrong("the URL has a sentinel without a host"));
    }
    let own = config.sentinel.config(config);
    let to_sentinel = if config.sentinel.speaks_tls(scheme == "rediss") {
        "rediss"
    } else {
        "redis"
    };
    let sentinels = hosts.iter().map(|host| {
        let mut target = Target::parse(&format!("{to_sentinel}://{host}"), &own)?;
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
    let url = format!("{scheme}://{login}{}/{db}?{options}", hosts[0]);
    Ok(Source::sentinels(Target::parse(&url, config)?, sentinels))
}

/// The port of a sentinel is not that of a server.
fn with_port(host: &str) -> String {
    let behind_brackets = host.rsplit(']').next().unwrap_or(host);
    if behind_brackets.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:{PORT}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        match source(url, &RedisConfig::default(), Duration::ZERO) {
            None => "another kind".to_owned(),
            Some(Err(error)) => error.to_string(),
            Some(Ok(source)) => source.address().to_string(),
        }
    }

    #[test]
    fn sentinels_name_and_database_are_read() {
        let one = "orders (sentinels s:26379)";
        for (url, expected) in [
            ("redis://s:1", "another kind"),
            ("redis+sentinel://s/orders", one),
            ("redis-sentinel://s/orders/3", one),
            ("valkey+sentinel://me:p%40@s/orders?protocol=resp2", one),
            (
                "redis+sentinel://a:1,[::1],[::2]:2/orders",
                "orders (sentinels a:1, [::1]:26379, [::2]:2)",
            ),
        ] {
            assert_eq!(shown(url), expected, "{url}");
        }
        for (url, what) in [
            ("redis+sentinel://s:1,t:2", "the URL names no master"),
            ("redis+sentinel://s:1,t:2/", "the URL names no master"),
            (
                "redis+sentinel://s,,t/orders",
                "the URL has a sentinel without a host",
            ),
            (
                "redis+sentinel://me:17/secret@s",
                "a `/` in the password is written `%2F`",
            ),
            (
                "redis+sentinel:///orders",
                "the URL has a sentinel without a host",
            ),
        ] {
            assert_eq!(
                shown(url),
                format!("lock configuration: {what}: {HOW}"),
                "{url}"
            );
        }
    }
}
