//! Subscribes to the channels of reentrant locks, on the server's connection.
//!
//! The sharded channels of a cluster have a connection of their own. When a slot moves, its server ends the subscriptions there, and the
//! `redis` crate takes the message about that for the answer to the oldest request of the connection: all later answers would go to
//! the wrong requests. So this connection carries nothing but subscriptions, each answer is compared, and such a message ends it.

use std::io;
use std::sync::Arc;

use futures_util::future::{OptionFuture, join, join_all};
use redis::{ErrorKind, PushKind, RedisError, RedisResult, Value, cmd};
use tokio::time::timeout;

use super::Server;
use super::channels::{ChannelStep, Outcome};
use super::look::has_sharded_channels;
use crate::base::single_flight::Flight;
use crate::base::slot::slot_of;
use crate::base::sync::lock;
use crate::store::redis::connection::Connection;
use crate::store::redis::error::{classify, no_reply};
use crate::store::redis::reply::text;
use crate::store::{Announcer, StoreError, Subscription};

impl Server {
    /// Subscribes, or joins an existing subscription; with `in_slot` also to the sharded channel, where there is one. `None` if the
    /// server does not allow it.
    pub(in crate::store::redis) async fn listen(
        self: &Arc<Self>,
        channel: &str,
        name: &str,
        in_slot: bool,
    ) -> Result<Option<Subscription>, StoreError> {
        let current = self.current().filter(|_| in_slot);
        let is_sharded = current.is_some_and(|it| has_sharded_channels(&it));
        let of_slots = self.of_slots.as_ref().filter(|_| is_sharded);
        // From here on the subscriber counts, however this future ends.
        let heard = self.listening(channel, name);
        let in_slot = OptionFuture::from(of_slots.map(|server| server.listening(channel, name)));
        let servers = [self].into_iter().chain(of_slots);
        let servers = servers.map(|server| Arc::clone(server) as _).collect();
        let subscription = Subscription::counted(servers, channel, name);
        // A sharded channel that fails is subscribed with the next connection, and then its waiters ask.
        let (heard, _) = join(heard, in_slot).await;
        let heard = heard.map_err(|error| error.at(&self.address()))?;
        Ok(heard.then_some(subscription))
    }

    /// Counts a subscriber, then waits until the server has answered.
    fn listening(self: &Arc<Self>, channel: &str, name: &str) -> impl Future<Output = Outcome> {
        let listening = lock(&self.subscriptions.channels).listen(channel, name);
        if let Some(flight) = listening.worker {
            self.engine().spawn(Arc::clone(self).tend_channels(flight));
        }
        self.subscriptions.changed.notify_one();
        let (limit, timers) = (self.limit(), self.engine().timers().clone());
        async move {
            let Some(answer) = listening.answer else {
                return Ok(true);
            };
            match timers.timeout(limit, answer).await {
                Ok(Ok(outcome)) => outcome,
                // No answer came, or there is no worker because its runtime has ended.
                _ => Err(StoreError::NotNow(no_reply(limit))),
            }
        }
    }

    /// The worker: brings the server in line with the subscribers, and ends when no channel is left.
    async fn tend_channels(self: Arc<Self>, flight: Flight) {
        loop {
            let step = {
                let mut channels = lock(&self.subscriptions.channels);
                let step = channels.next();
                if step == ChannelStep::End {
                    // With the lock: a subscriber that comes now needs another worker.
                    drop(flight);
                    return;
                }
                step
            };
            match step {
                ChannelStep::Work { connect: true } => {
                    match timeout(self.limit(), self.connection()).await {
                        Ok(Ok(_)) if self.pushes() => self.send_batch().await,
                        Ok(Ok(_)) => lock(&self.subscriptions.channels).all_answered(&Ok(false)),
                        Ok(Err(error)) => self.fail_all(classify(error)),
                        Err(_) => self.fail_all(StoreError::NotNow(no_reply(self.limit()))),
                    }
                }
                ChannelStep::Work { connect: false } => self.send_batch().await,
                ChannelStep::Rest => self.subscriptions.changed.notified().await,
                ChannelStep::End => return,
            }
        }
    }

    fn fail_all(&self, error: StoreError) {
        lock(&self.subscriptions.channels).all_answered(&Err(error));
    }

    /// Sends a batch of changes at once: their answers take one round trip.
    async fn send_batch(self: &Arc<Self>) {
        let Some(connection) = self.current() else {
            return;
        };
        let generation = connection.generation.number;
        let batch = lock(&self.subscriptions.channels).batch(generation);
        let limit = self.limit();
        let subscribe = join_all(batch.subscribe.iter().map(async |name| {
            let answer = timeout(limit, self.change(&connection, PushKind::Subscribe, name)).await;
            let mut channels = lock(&self.subscriptions.channels);
            match answer {
                Ok(Ok(())) => {
                    let missed = channels.subscribed(generation, name);
                    drop(channels);
                    if let Some(events) = self.engine().events().filter(|_| missed) {
                        self.subscriptions.ask_again(&*events, name);
                    }
                }
                Ok(Err(error)) if is_denied(&error, name) => {
                    self.subscriptions.denied(generation, &error);
                    channels.denied(generation, name);
                }
                Ok(Err(error)) => {
                    let dropped = error.is_connection_dropped();
                    // A new connection, after a pause, tries again for those who rely on it.
                    return channels.failed(name, classify(error)) || dropped;
                }
                Err(_) => {
                    channels.failed(name, StoreError::Ambiguous(no_reply(limit)));
                    drop(channels);
                    self.went_silent(limit);
                }
            }
            false
        }));
        let unsubscribe = join_all(batch.unsubscribe.iter().map(async |name| {
            let ended = self.change(&connection, PushKind::Unsubscribe, name);
            match timeout(limit, ended).await {
                Ok(Err(error)) if error.is_connection_dropped() => return true,
                // A server that refuses once would refuse again.
                Ok(ended) => {
                    if let Err(error) = ended {
                        self.subscriptions.stays(generation, &error);
                    }
                    lock(&self.subscriptions.channels).unsubscribed(generation, name);
                }
                Err(_) => {
                    lock(&self.subscriptions.channels).still_subscribed(name);
                    self.went_silent(limit);
                }
            }
            false
        }));
        let (one, other) = tokio::join!(subscribe, unsubscribe);
        if one.into_iter().chain(other).any(|dropped| dropped) {
            self.discard(generation);
        }
    }

    /// One command for each channel: the server acknowledges each channel separately, and refuses one for several slots.
    async fn change(
        &self,
        connection: &Connection,
        change: PushKind,
        name: &str,
    ) -> RedisResult<()> {
        let mut connection = connection.requests();
        let (word, answer) = match (self.source().is_of_slots, change) {
            (false, PushKind::Subscribe) => return connection.subscribe(name).await,
            (false, _) => return connection.unsubscribe(name).await,
            (true, PushKind::Subscribe) => ("SSUBSCRIBE", PushKind::SSubscribe),
            (true, _) => ("SUNSUBSCRIBE", PushKind::SUnsubscribe),
        };
        let answered = connection.send_packed_command(cmd(word).arg(name)).await?;
        match answered.extract_error() {
            Ok(Value::Push { kind, data })
                if kind == answer && text(data.first()) == Some(name) =>
            {
                Ok(())
            }
            Err(error) if is_denied(&error, name) => Err(error),
            // The answer to another command: the connection is of no use any more.
            _ => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }
}

/// Whether the server has refused for good, as far as is known: a permission or the command is missing, or another server has the slot.
/// When that server is known, the waiters subscribe there.
fn is_denied(error: &RedisError, channel: &str) -> bool {
    if let Some((_, slot)) = error.redirect_node() {
        return usize::from(slot) == slot_of(channel);
    }
    let answered = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
    answered && matches!(classify(error.clone()), StoreError::Misconfigured(_))
}

impl Announcer for Server {
    fn left(&self, channel: &str, name: &str) {
        lock(&self.subscriptions.channels).left(channel, name);
        self.subscriptions.changed.notify_one();
    }
}
