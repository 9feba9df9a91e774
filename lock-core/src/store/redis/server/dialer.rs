//! Makes the connections of a server. An attempt consists of the greeting, the name, the subscriptions, and a look at the server of the
//! first connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::{OptionFuture, join, join5};
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError,
    RedisResult, cmd,
};
use tokio::time::{Instant, timeout};

use super::authenticate;
use super::format;
use super::look::{Look, lacks_channels};
use super::source::Source;
use crate::base::sync::lock;
use crate::store::redis::connection::generation::Generation;
use crate::store::redis::connection::target::Target;
use crate::store::redis::connection::{self, Connection};
use crate::store::redis::error::{advised, is_reply, not_connected_within, said};
use crate::store::redis::script::RAISE;
use crate::store::redis::wire::{self, Arg, fence};
use crate::store::{Attached, EngineRef};

/// Minimum interval between attempts to subscribe again after a refusal.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(60);

/// A port without TLS waits for the rest of a command, and never answers.
const NO_HANDSHAKE: &str =
    "if this port does not speak TLS, write `redis://`, or name its TLS port";

/// What a connection is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Dial {
    First,
    Next,
    /// To take the place of the one in use, which goes on meanwhile.
    #[cfg(feature = "quorum")]
    Beside,
}

/// The server for which connections are made.
pub(in crate::store::redis) trait Recipient: Send + Sync {
    /// The generation of a connection that is about to be made.
    fn dials(&self, dial: Dial) -> Arc<Generation>;
    /// Handles what the server sent unasked. The connection calls it, so it must not block.
    fn pushed(self: Arc<Self>, on: &Generation, push: PushInfo);
    /// A connection has ended by itself.
    fn ended(self: Arc<Self>, number: u64);
}

/// Makes the connections of one server.
pub(in crate::store::redis) struct Dialer {
    pub(in crate::store::redis) source: Source,
    /// The command deadline: maximum time of an attempt to connect, and of an answer.
    pub(in crate::store::redis) limit: Duration,
    pub(in crate::store::redis) engine: EngineRef,
    /// False if the server refused RESP3 or the subscription on the last connection.
    pushes: AtomicBool,
    /// Time of the last refusal of the subscription.
    refused_at: Mutex<Option<Instant>>,
}

impl Dialer {
    pub(in crate::store::redis) fn new(source: Source, limit: Duration) -> Self {
        Self {
            pushes: AtomicBool::new(source.resp3()),
            source,
            limit,
            engine: EngineRef::default(),
            refused_at: Mutex::default(),
        }
    }

    /// Whether the server pushes messages to us, as far as is known.
    pub(in crate::store::redis) fn pushes(&self) -> bool {
        self.pushes.load(Ordering::Relaxed)
    }

    /// The channel of the client.
    pub(in crate::store::redis) fn channel(&self) -> Option<String> {
        let engine = self.engine.get()?;
        Some(wire::channel(self.source.namespace(), &engine.client))
    }

    /// Makes one attempt to connect. Before the first connection the server is looked at, and a failure is looked into.
    pub(in crate::store::redis) async fn dial(
        &self,
        recipient: Weak<dyn Recipient>,
        dial: Dial,
    ) -> RedisResult<Arc<Connection>> {
        let attempt = self.dial_source(&recipient, dial);
        if dial == Dial::First && self.source.is_tls() {
            // The caller, which waits as long as for a connection, is to hear of it.
            let attempt = timeout(self.limit.mul_f64(0.9), attempt);
            let late = |_| {
                Err(advised(
                    said(&not_connected_within(self.limit)),
                    NO_HANDSHAKE,
                ))
            };
            return attempt.await.unwrap_or_else(late);
        }
        let late = |_| Err(not_connected_within(self.limit));
        timeout(self.limit, attempt).await.unwrap_or_else(late)
    }

    async fn dial_source(
        &self,
        recipient: &Weak<dyn Recipient>,
        dial: Dial,
    ) -> RedisResult<Arc<Connection>> {
        let target = self.source.target().await?;
        let connect = |settings| self.dial_either_way(recipient, dial, &target, settings);
        let (connection, given) = target.logged_in(self.limit, None, connect).await?;
        let connection = Arc::new(connection);
        if let Some(given) = given {
            let (kept, target) = (Arc::downgrade(&connection), Arc::clone(&target));
            self.engine
                .spawn(authenticate::keep(kept, target, given, self.limit));
        }
        Ok(connection)
    }

    async fn dial_either_way(
        &self,
        recipient: &Weak<dyn Recipient>,
        dial: Dial,
        target: &Arc<Target>,
        settings: RedisConnectionInfo,
    ) -> RedisResult<Connection> {
        let resp3 = target.resp3;
        let mut made = self
            .dial_as(recipient, dial, target, &settings, resp3)
            .await;
        if let Err(error) = &made
            && error.kind() == ErrorKind::RESP3NotSupported
        {
            let with_resp2 = self
                .dial_as(recipient, dial, target, &settings, false)
                .await;
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

    async fn dial_as(
        &self,
        recipient: &Weak<dyn Recipient>,
        dial: Dial,
        target: &Target,
        settings: &RedisConnectionInfo,
        pushes: bool,
    ) -> RedisResult<Connection> {
        let (begun, first) = (Instant::now(), dial == Dial::First);
        let generation = recipient.upgrade().map(|recipient| recipient.dials(dial));
        let generation = generation.unwrap_or_default();
        let mut config = AsyncConnectionConfig::new();
        let protocol = if pushes {
            let (recipient, on) = (Weak::clone(recipient), Arc::clone(&generation));
            config = config.set_push_sender(move |push| {
                if let Some(recipient) = recipient.upgrade() {
                    recipient.pushed(&on, push);
                }
                Ok::<_, RedisError>(())
            });
            ProtocolVersion::RESP3
        } else {
            ProtocolVersion::RESP2
        };
        let settings = settings.clone().set_protocol(protocol);
        let (recipient, number) = (Weak::clone(recipient), generation.number);
        let ended = move || {
            if let Some(recipient) = recipient.upgrade() {
                recipient.ended(number);
            }
        };
        let mut connection = connection::connect(target, &settings, config, first, ended).await?;
        self.set_up(target, &connection, pushes, first).await?;
        (connection.generation, connection.made_in) = (generation, begun.elapsed());
        Ok(connection)
    }

    /// Sends the name, subscribes, raises the counter of the fencing tokens, compares the format, and looks at the server.
    async fn set_up(
        &self,
        target: &Target,
        connection: &Connection,
        pushes: bool,
        first: bool,
    ) -> RedisResult<()> {
        let name = async {
            if let Some(Attached { client, .. }) = self.engine.get() {
                let mut name = cmd("CLIENT");
                // A refused name costs nothing but the name in `CLIENT LIST`.
                let _ = connection
                    .request(name.arg("SETNAME").arg(client.name()))
                    .await;
            }
        };
        let channel = self.channel();
        let channel = channel.filter(|_| pushes && !self.source.is_of_slots);
        let mut subscriptions = connection.requests();
        let subscribe = OptionFuture::from(channel.map(|it| subscriptions.subscribe(it)));
        let follow = async {
            if pushes && let Some(followed) = &self.source.followed {
                // A user without the right learns of a failover only from the sentinels, or by the end of the connection.
                let _ = connection.requests().subscribe(followed.channel()).await;
            }
        };
        let raise = async {
            let events = self.engine.events();
            let largest = events.map_or(0, |events| events.largest_token());
            // In a cluster each slot has a counter.
            if largest > 0 && self.source.in_cluster.is_none() {
                let raise = RAISE.by_text(&[fence(&target.namespace)], &[Arg::Number(largest)]);
                // A server that refuses it mints nothing either, or its clock is the floor.
                let _ = connection.request(&raise).await;
            }
        };
        // One round trip for all.
        let look = self.look(target, connection, first);
        let compare = self.compare(target, connection, first);
        let (looked, compared, subscribed, _, ()) =
            join5(look, compare, subscribe, join(name, follow), raise).await;
        looked?;
        compared?;
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

    async fn compare(
        &self,
        target: &Target,
        connection: &Connection,
        first: bool,
    ) -> RedisResult<()> {
        if self.source.is_node || self.source.is_of_slots {
            return Ok(());
        }
        format::compare(target, connection, first).await
    }

    async fn look(&self, target: &Target, connection: &Connection, first: bool) -> RedisResult<()> {
        if !first || self.source.is_of_slots {
            return Ok(());
        }
        let look = Look {
            target,
            connection,
            in_cluster: self.source.in_cluster.as_ref().map(|it| it.tag),
        };
        Box::pin(look.look()).await
    }

    fn poll_instead(&self, why: &str) {
        // One warning, not one for each connection.
        if self.pushes.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                server = &*self.source.address(),
                why,
                "the server does not push messages to us: waiting for locks will poll"
            );
        }
    }

    /// Whether a refused subscription is due again.
    pub(in crate::store::redis) fn subscribes_again(&self) -> bool {
        is_due(&mut lock(&self.refused_at), Instant::now())
    }

    /// A subscription that was refused has succeeded.
    pub(in crate::store::redis) fn is_subscribed(&self) {
        self.pushes.store(true, Ordering::Relaxed);
        tracing::info!("the server pushes messages to us again");
    }
}

/// Whether to subscribe again after a refusal. If so, the next time is one interval after `now`.
fn is_due(refused_at: &mut Option<Instant>, now: Instant) -> bool {
    match refused_at {
        Some(at) if now.saturating_duration_since(*at) >= SUBSCRIBE_AGAIN => {
            *at = now;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_subscription_is_tried_again_every_minute() {
        let now = Instant::now();
        assert!(!is_due(&mut None, now), "it was never refused");
        let mut refused_at = Some(now);
        let just_before = SUBSCRIBE_AGAIN.mul_f64(0.999);
        assert!(!is_due(&mut refused_at, now + just_before));
        let later = now + SUBSCRIBE_AGAIN;
        assert!(is_due(&mut refused_at, later));
        assert!(!is_due(&mut refused_at, later + just_before));
        assert!(is_due(&mut refused_at, later + SUBSCRIBE_AGAIN));
    }
}
