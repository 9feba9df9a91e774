//! Subscribing to the channels of reentrant locks, on the link's connection.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError};
use tokio::time::timeout;

use super::channels::ChannelStep;
use super::error::{classify, no_reply};
use super::link::Link;
use crate::base::sync::lock;
use crate::store::{Announcer, StoreError, Subscription};

impl Link {
    /// Subscribes, or joins an existing subscription. `None` if the server does not allow it.
    pub(super) async fn listen(
        self: &Arc<Self>,
        channel: &str,
        name: &str,
    ) -> Result<Option<Subscription>, StoreError> {
        let listening = lock(&self.subscriptions.channels).listen(channel, name);
        // The subscriber is counted from here on, however this future ends.
        let subscription = Subscription::counted(Arc::clone(self) as _, channel, name);
        if listening.start_worker {
            self.spawn(Arc::clone(self).tend_channels());
        }
        let Some(answer) = listening.answer else {
            return Ok(Some(subscription));
        };
        self.subscriptions.changed.notify_one();
        match timeout(self.connect_limit, answer).await {
            Ok(Ok(outcome)) => Ok(outcome?.then_some(subscription)),
            // No answer came, or there is no worker because its runtime has ended.
            _ => Err(StoreError::NotNow(no_reply(self.connect_limit))),
        }
    }

    /// The connection of this generation is in use from now on.
    pub(super) fn adopt_channels(self: &Arc<Self>, generation: u64) {
        if lock(&self.subscriptions.channels).adopt(generation) {
            self.spawn(Arc::clone(self).tend_channels());
        }
        self.subscriptions.changed.notify_one();
    }

    /// The worker: brings the server in line with the subscribers, and ends when no channel is left.
    async fn tend_channels(self: Arc<Self>) {
        loop {
            let step = lock(&self.subscriptions.channels).next();
            match step {
                ChannelStep::Work { connect: true } => {
                    match timeout(self.connect_limit, self.connection()).await {
                        Ok(Ok(_)) if self.pushes() => self.send_batch().await,
                        Ok(Ok(_)) => lock(&self.subscriptions.channels).all_answered(&Ok(false)),
                        Ok(Err(error)) => self.fail_all(classify(error)),
                        Err(_) => self.fail_all(StoreError::NotNow(no_reply(self.connect_limit))),
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
        let Some((generation, connection)) = self.in_use() else {
            return;
        };
        let batch = lock(&self.subscriptions.channels).batch(generation);
        let limit = self.connect_limit;
        let subscribe = join_all(batch.subscribe.iter().map(async |name| {
            let answer = timeout(limit, subscribe(&connection, name)).await;
            let mut channels = lock(&self.subscriptions.channels);
            match answer {
                Ok(Ok(())) => {
                    let missed = channels.subscribed(generation, name);
                    drop(channels);
                    if let Some(events) = self.events().filter(|_| missed) {
                        self.subscriptions.ask_again(&*events, name);
                    }
                }
                Ok(Err(error)) if is_denied(&error) => {
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
            let mut connection = connection.clone();
            match timeout(limit, connection.unsubscribe(&**name)).await {
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
}

/// One command for each channel: the server acknowledges each channel separately.
async fn subscribe(connection: &MultiplexedConnection, name: &str) -> Result<(), RedisError> {
    connection.clone().subscribe(name).await
}

/// Whether the server has refused for good, as far as is known: a permission or the command is missing.
fn is_denied(error: &RedisError) -> bool {
    let answered = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
    answered && matches!(classify(error.clone()), StoreError::Misconfigured(_))
}

impl Announcer for Link {
    fn left(&self, channel: &str, name: &str) {
        lock(&self.subscriptions.channels).left(channel, name);
        self.subscriptions.changed.notify_one();
    }
}
