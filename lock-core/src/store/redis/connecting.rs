//! Connects: one task of the link makes one attempt at a time, for any number of callers. An attempt consists of the greeting, the
//! name, the subscriptions, and a look at the server of the first connection.
//!
//! The task runs while a caller waits for the connection, or while the engine holds or waits for a lock. It ends when there is
//! a connection. An attempt belongs to the link: if a caller gives up, the attempt serves the next callers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{OptionFuture, join, join5};
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, ProtocolVersion, RedisConnectionInfo, RedisResult,
    Value, cmd,
};
use tokio::time::{Instant, timeout};

use super::authenticate;
use super::dial::Caller;
use super::error::{is_reply, not_connected_within, said};
use super::format;
use super::link::{Link, Live};
use super::look::{Look, lacks_channels};
use super::script::RAISE;
use super::socket::{self, Socket};
use super::source::HELLO;
use super::target::Target;
use super::wire::{Arg, fence};
use crate::base::sync::lock;
use crate::base::time::{Clock, SystemClock};
use crate::store::Attached;

/// Sends a request on a connection of its own, which ends with it.
pub(super) async fn ask_once(
    target: &Target,
    command: &Cmd,
    limit: Duration,
) -> RedisResult<Value> {
    let config = AsyncConnectionConfig::new;
    let connect =
        |settings| async move { socket::connect(target, &settings, config(), true, || {}).await };
    let (mut socket, _) = target.logged_in(limit, None, connect).await?;
    socket.request(command).await?.extract_error()
}

/// The running task. Its drop reports the end of the runtime to the callers.
struct Running {
    link: Arc<Link>,
    /// Whether it came to its end. Another task may run by the time this one is dropped.
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.link.dial.dropped();
        }
    }
}

impl Running {
    async fn run(mut self) {
        let link = Arc::clone(&self.link);
        let dial = &link.dial;
        loop {
            if link.generation().is_none() {
                dial.pause().await;
            }
            let in_use = link.is_in_use();
            if dial.ends(|is_awaited| link.generation().is_some() || !(in_use || is_awaited)) {
                self.ended = true;
                break;
            }
            let elsewhere = dial.elsewhere.notified();
            let attempt = tokio::select! {
                biased;
                () = elsewhere => continue,
                attempt = link.connect() => attempt,
            };
            match attempt {
                Ok(live) => {
                    dial.made();
                    link.adopt(live);
                    // From now on, callers find the connection.
                    dial.over.notify_waiters();
                }
                Err(error) => {
                    let why = said(&error);
                    tracing::debug!(
                        server = &*link.address(),
                        why,
                        "no connection to the lock server"
                    );
                    dial.failed(error);
                }
            }
        }
        // A caller that came just before the end of the task starts another one.
        dial.over.notify_waiters();
    }
}

impl Link {
    /// Returns the connection, and has it made if there is none. An error comes from an attempt that ended after the call.
    pub(super) async fn connection(self: &Arc<Self>) -> RedisResult<Live> {
        let (_caller, before) = Caller::new(&self.dial);
        let look = || {
            let failed = || self.dial.failed_since(before).map(Err);
            let outcome = self.current().map(Ok).or_else(failed);
            if outcome.is_none() {
                self.dial();
            }
            outcome
        };
        self.dial.over.find(look).await
    }

    /// Starts the task that makes the connection, unless it runs.
    pub(super) fn dial(self: &Arc<Self>) {
        if self.dial.begin() {
            // Spawn without the lock: a runtime that has ended drops the task at once, and its drop takes the lock.
            let link = Arc::clone(self);
            let ended = false;
            self.engine.spawn(Running { link, ended }.run());
        }
    }

    /// Makes one attempt to connect.
    async fn connect(self: &Arc<Self>) -> RedisResult<Live> {
        let attempt = timeout(self.limit, self.connect_to_source());
        let late = |_| Err(not_connected_within(self.limit));
        attempt.await.unwrap_or_else(late)
    }

    /// Sends a request on a connection of its own, which ends with it.
    pub(in crate::store) async fn request_anew(&self, command: &Cmd) -> RedisResult<Value> {
        ask_once(&*self.source.target().await?, command, self.limit).await
    }

    async fn connect_to_source(self: &Arc<Self>) -> RedisResult<Live> {
        let (target, limit) = (self.source.target().await?, self.limit);
        let connect = |settings| self.connect_either_way(&target, settings);
        let (live, given) = target.logged_in(limit, None, connect).await?;
        if let Some(given) = given {
            let (link, target) = (Arc::downgrade(self), Arc::clone(&target));
            self.engine
                .spawn(authenticate::keep(link, live.generation, target, given));
        }
        Ok(live)
    }

    async fn connect_either_way(
        self: &Arc<Self>,
        target: &Arc<Target>,
        settings: RedisConnectionInfo,
    ) -> RedisResult<Live> {
        let mut made = self.connect_as(target, &settings, target.resp3).await;
        if let Err(error) = &made
            && error.kind() == ErrorKind::RESP3NotSupported
        {
            let with_resp2 = self.connect_as(target, &settings, false).await;
            if with_resp2.is_ok() {
                self.poll_instead(&said(error));
            }
            made = with_resp2;
        }
        if made.is_err() {
            self.source.failed(target);
        }
        made
    }

    async fn connect_as(
        self: &Arc<Self>,
        target: &Target,
        settings: &RedisConnectionInfo,
        pushes: bool,
    ) -> RedisResult<Live> {
        let generation = self.next_generation.fetch_add(1, Ordering::Relaxed);
        let (dialled, begun) = (SystemClock.now(), Instant::now());
        let mut config = AsyncConnectionConfig::new();
        let protocol = if pushes {
            config = config.set_push_sender(self.receiver(generation));
            ProtocolVersion::RESP3
        } else {
            ProtocolVersion::RESP2
        };
        let settings = settings.clone().set_protocol(protocol);
        let first = !self.was_connected.load(Ordering::Relaxed);
        let link = Arc::downgrade(self);
        let ended = move || {
            if let Some(link) = link.upgrade() {
                link.discard(generation);
            }
        };
        let socket = socket::connect(target, &settings, config, first, ended).await?;
        self.was_connected.store(true, Ordering::Relaxed);
        self.set_up(target, &socket, pushes).await?;
        Ok(Live {
            generation,
            dialled,
            made_in: begun.elapsed(),
            socket,
            floors: Arc::default(),
        })
    }

    /// Sends the name, subscribes, raises the counter of the fencing tokens, compares the format, and looks at the server.
    async fn set_up(&self, target: &Target, socket: &Socket, pushes: bool) -> RedisResult<()> {
        let (mut named, mut requests) = (socket.clone(), socket.requests.clone());
        let name = async {
            if let Some(Attached { client, .. }) = self.engine.get() {
                let mut name = cmd("CLIENT");
                // A refused name costs nothing but the name in `CLIENT LIST`.
                let _ = named.request(name.arg("SETNAME").arg(client.name())).await;
            }
        };
        let channel = self
            .channel()
            .filter(|_| pushes && !self.source.is_of_slots);
        let subscribe = OptionFuture::from(channel.map(|it| requests.subscribe(it)));
        let follow = async {
            if pushes && self.source.follows {
                // A user without the right learns of a failover only from the sentinels, or by the end of the connection.
                let _ = socket.requests.clone().subscribe(HELLO).await;
            }
        };
        let raise = async {
            let events = self.engine.events();
            let largest = events.map_or(0, |events| events.largest_token());
            // In a cluster each slot has a counter.
            if largest > 0 && self.source.in_cluster.is_none() {
                let raise = RAISE.by_text(&[fence(&target.namespace)], &[Arg::Number(largest)]);
                // A server that refuses it mints nothing either, or its clock is the floor.
                let _ = socket.clone().request(&raise).await;
            }
        };
        // One round trip for all.
        let look = self.look(target, socket);
        let compare = self.compare(target, socket);
        let (looked, compared, subscribed, _, ()) =
            join5(look, compare, subscribe, join(name, follow), raise).await;
        looked?;
        compared?;
        self.was_looked_at.store(true, Ordering::Relaxed);
        match subscribed {
            None => {}
            Some(Ok(())) => self.pushes.store(true, Ordering::Relaxed),
            // A connection without messages is better than no connection.
            Some(Err(error)) if is_reply(&error) => {
                *lock(&self.refused_at) = Some(Instant::now());
                let why = lacks_channels(target, &error).unwrap_or_else(|| said(&error));
                self.poll_instead(&why);
            }
            Some(Err(error)) => return Err(error),
        }
        Ok(())
    }

    /// Compares the format.
    async fn compare(&self, target: &Target, socket: &Socket) -> RedisResult<()> {
        if self.source.is_node || self.source.is_of_slots {
            return Ok(());
        }
        let is_first = !self.was_looked_at.load(Ordering::Relaxed);
        format::compare(target, socket, is_first).await
    }

    /// Looks at the server, unless it has passed before.
    async fn look(&self, target: &Target, socket: &Socket) -> RedisResult<()> {
        if self.was_looked_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        let look = Look {
            target,
            socket: socket.clone(),
            in_cluster: self.source.in_cluster,
        };
        Box::pin(look.look()).await
    }

    fn poll_instead(&self, why: &str) {
        // One warning, not one for each connection.
        if self.pushes.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                server = &*self.address(),
                why,
                "the server does not push messages to us: waiting for locks will poll"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::redis::settings::RedisConfig;
    use crate::store::redis::source::Source;
    use crate::store::redis::url::Url;

    #[test]
    fn a_task_that_has_ended_leaves_the_next_one_alone() {
        let url = Url::read("redis://127.0.0.1").unwrap();
        let source = Source::fixed(url.target(&RedisConfig::default()).unwrap());
        let link = Link::open(source, Duration::from_secs(1));
        let running = |ended| Running {
            link: Arc::clone(&link),
            ended,
        };
        assert!(link.dial.begin());
        drop(running(true));
        assert!(link.dial.is_running(), "the next task has begun meanwhile");
        drop(running(false));
        assert!(!link.dial.is_running());
    }
}
