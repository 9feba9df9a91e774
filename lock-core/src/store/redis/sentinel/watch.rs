//! The tasks that watch the sentinels of a master: each asks its sentinel for the master and hears of each failover.
//!
//! The address is that of `GET-MASTER-ADDR-BY-NAME`. Its epoch is that of `SENTINEL MASTER`, whose address lags behind for a
//! second. Both go out in one buffer, so that they belong together.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join;
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo,
    RedisError, RedisResult, Value, from_redis_value, pipe,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::board::Sentinels;
use super::followed::{Followed, Follower};
use super::named::Named;
use crate::base::backoff::Backoff;
use crate::base::signal::Signal;
use crate::store::redis::connection::target::Target;
use crate::store::redis::connection::{self, Connection};
use crate::store::redis::error::{is_misconfigured, misconfigured, not_connected_within, said};

/// Interval of the questions to a sentinel that announces failovers to us, and to a sentinel that does not.
const ASK_AGAIN: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(1)];

/// Maximum pauses after a failure: after the first, and after any number.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Sentinels {
    /// Begins to watch all sentinels that are not watched yet.
    pub(in crate::store::redis) fn watch(&self, follower: &Arc<dyn Follower>) {
        self.begin_tasks(|target| {
            let watch = Watch {
                follower: Arc::downgrade(follower),
                target: Arc::clone(target),
                ask: Arc::clone(&self.ask),
                limit: self.limit,
            };
            follower.engine().spawn(watch.run()).abort_handle()
        });
    }
}

/// The task that watches one sentinel.
struct Watch {
    follower: Weak<dyn Follower>,
    target: Arc<Target>,
    ask: Arc<Signal>,
    limit: Duration,
}

impl Watch {
    async fn run(self) {
        let mut backoff = Backoff::new(PAUSE, LONGEST_PAUSE);
        loop {
            let begun = Instant::now();
            let Err(error) = self.follow().await;
            if begun.elapsed() > LONGEST_PAUSE {
                backoff.over();
            }
            let ask = self.ask.notified();
            let told = self.tell(|_, followed, sentinels| {
                let master = followed.is_known().then(|| followed.address());
                sentinels.failed(&self.target, error, master.as_deref());
            });
            if told.is_none() {
                return;
            }
            // An attempt to reach the master may be right about the sentinel as well.
            let _ = timeout(backoff.failed(), ask).await;
        }
    }

    fn tell<T>(
        &self,
        what: impl FnOnce(&Arc<dyn Follower>, &Followed, &Sentinels) -> T,
    ) -> Option<T> {
        let follower = self.follower.upgrade()?;
        let master = follower.followed()?;
        let sentinels = master.sentinels.as_ref()?;
        Some(what(&follower, master, sentinels))
    }

    /// Asks the sentinel at once, at each message, and from time to time.
    async fn follow(&self) -> RedisResult<Infallible> {
        let changed = Arc::new(Notify::new());
        let (connection, mut pushes) = self.connect(&changed).await?;
        let mut requests = connection.requests();
        let mut subscribe = Some(requests.subscribe("+switch-master")).filter(|_| pushes);
        loop {
            // The first question goes out with the subscription.
            let question = self.question(&connection);
            let asked = match subscribe.take() {
                None => self.within(question).await,
                Some(subscribe) => {
                    let (asked, subscribed) =
                        join(self.within(question), self.within(subscribe)).await;
                    pushes = subscribed.is_ok();
                    asked
                }
            };
            let (named, others) = asked?;
            // Before the answer is counted: an attempt to connect that has just missed it waits for the next one.
            let ask = self.ask.notified();
            self.tell(|follower, master, sentinels| {
                let lags = master.is_replaced(&named);
                sentinels.answered(&self.target, &named, lags);
                if master.weigh(sentinels, follower.is_connected()) {
                    Arc::clone(follower).follows();
                }
                // After that, so that an attempt to connect finds the agreement heeded.
                sentinels.heard.notify_waiters();
                if sentinels.discovered(&self.target, &others) {
                    sentinels.watch(follower);
                }
            });
            tokio::select! {
                () = changed.notified() => {}
                () = ask => {}
                () = sleep(ASK_AGAIN[usize::from(!pushes)]) => {}
            }
        }
    }

    /// Also returns whether the sentinel can tell us of failovers.
    async fn connect(&self, changed: &Arc<Notify>) -> RedisResult<(Connection, bool)> {
        let connect = |settings: RedisConnectionInfo| async move {
            let ended = || {
                let changed = Arc::clone(changed);
                move || changed.notify_one()
            };
            let told = Arc::clone(changed);
            let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
                if matches!(push.kind, PushKind::Message) {
                    told.notify_one();
                }
                Ok::<(), RedisError>(())
            });
            let resp3 = settings.clone().set_protocol(ProtocolVersion::RESP3);
            match connection::connect(&self.target, &resp3, config, true, ended()).await {
                Ok(connection) => Ok((connection, true)),
                Err(error) if error.kind() == ErrorKind::RESP3NotSupported => {
                    let config = AsyncConnectionConfig::new();
                    let made = connection::connect(&self.target, &settings, config, true, ended());
                    Ok((made.await?, false))
                }
                Err(error) => Err(error),
            }
        };
        let connected = self.within(self.target.logged_in(self.limit, None, connect));
        Ok(connected.await?.0)
    }

    /// The master that the sentinel names, and the other sentinels that it knows.
    async fn question(&self, connection: &Connection) -> RedisResult<(Named, Vec<(String, u16)>)> {
        let name = self.tell(|_, _, sentinels| sentinels.name.clone());
        let name = name.unwrap_or_default();
        let mut question = pipe();
        for what in ["GET-MASTER-ADDR-BY-NAME", "MASTER", "SENTINELS"] {
            question.cmd("SENTINEL").arg(what).arg(&*name);
        }
        let answers = connection
            .requests()
            .send_packed_commands(&question, 0, 3)
            .await?;
        let [address, master, others] = <[Value; 3]>::try_from(answers).map_err(|_| {
            RedisError::from(io::Error::other("the sentinel's answer is incomplete"))
        })?;
        if address == Value::Nil {
            return Err(self.is_unknown(&name, connection).await);
        }
        let (host, port): (String, u16) = from_redis_value(address.extract_error()?)?;
        if host.is_empty() || port == 0 {
            return Err(io::Error::other("it names no address of the master").into());
        }
        let master: HashMap<String, String> = from_redis_value(master.extract_error()?)?;
        let epoch = master
            .get("config-epoch")
            .and_then(|epoch| epoch.parse().ok());
        let others: Vec<HashMap<String, String>> = others
            .extract_error()
            .and_then(|others| Ok(from_redis_value(others)?))
            .unwrap_or_default();
        let others = others
            .iter()
            .filter_map(|other| Some((other.get("ip")?.clone(), other.get("port")?.parse().ok()?)));
        let named = Named {
            name,
            epoch: epoch.unwrap_or_default(),
            host: host.into(),
            port,
        };
        Ok((named, others.collect()))
    }

    async fn is_unknown(&self, name: &str, connection: &Connection) -> RedisError {
        let mut masters = redis::cmd("SENTINEL");
        let masters = connection.request(masters.arg("MASTERS")).await;
        let masters: Vec<HashMap<String, String>> = masters
            .and_then(|masters| Ok(from_redis_value(masters.extract_error()?)?))
            .unwrap_or_default();
        let names = masters.iter().filter_map(|master| master.get("name"));
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        let knows = match &names[..] {
            [] => "no master".to_owned(),
            names => names.join(", "),
        };
        misconfigured(format!(
            "the sentinel at {} knows no master of the name `{name}`: it knows {knows}, so write that name behind the sentinels in the URL",
            self.target.address
        ))
    }

    async fn within<T>(&self, what: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        match timeout(self.limit, what).await {
            Ok(done) => done.map_err(|error| self.explained(error)),
            Err(_) => Err(not_connected_within(self.limit)),
        }
    }

    /// A sentence for what trying again does not help.
    fn explained(&self, error: RedisError) -> RedisError {
        let at = &self.target.address;
        let said = said(&error);
        if error.kind() == ErrorKind::RESP3NotSupported {
            return error;
        }
        if said.starts_with("NOAUTH") {
            return misconfigured(format!(
                "the sentinel at {at} asks for a password: give it with `.sentinel_password(..)`"
            ));
        }
        if error.kind() == ErrorKind::AuthenticationFailed || said.starts_with("WRONGPASS") {
            return misconfigured(format!(
                "the sentinel at {at} refused the password: check `.sentinel_password(..)`, and `.sentinel_user(..)` where it has users"
            ));
        }
        let of_tls = error.detail().filter(|_| is_misconfigured(&error));
        if let Some(why) = of_tls.filter(|why| why.contains("TLS")) {
            return misconfigured(format!(
                "{why} (this server is a sentinel: set its TLS with `.sentinel_tls(..)`)"
            ));
        }
        if said.contains("unknown command") {
            return misconfigured(format!(
                "the server at {at} is no sentinel: name the sentinels with their port, which is mostly 26379"
            ));
        }
        error
    }
}
