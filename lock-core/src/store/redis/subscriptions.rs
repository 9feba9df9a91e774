//! Listening to the channels of reentrant locks on the link's connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::channels::{ChannelStep, Channels};
use super::error::{classify, no_reply};
use super::link::Link;
use crate::store::{Announcer, Events, StoreError, Subscription};
use crate::sync::lock;

/// What Redisson says when a lock is free.
const UNLOCKED: &str = "0";

/// What the link keeps for listening.
#[derive(Default)]
pub(super) struct Subscriptions {
    pub(super) channels: std::sync::Mutex<Channels>,
    /// Something has changed that the worker should look at.
    pub(super) changed: Notify,
    /// Once for each connection it is said that the server does not let us listen.
    warned_of: AtomicU64,
}

impl Subscriptions {
    /// The connection is gone.
    pub(super) fn lost(&self, generation: u64) {
        lock(&self.channels).lost(generation);
        self.changed.notify_one();
    }

    /// Who waits asks for the channel again with every try, so this comes often, and is said once.
    fn denied(&self, generation: u64, why: &RedisError) {
        // Generations count from 0, which is also what nobody was warned of.
        let warned = self.warned_of.fetch_max(generation + 1, Ordering::Relaxed) > generation;
        if warned {
            tracing::debug!(%why, "the server does not let us listen to the channel of a reentrant lock");
        } else {
            tracing::warn!(
                %why,
                "the server does not let us listen to the channel of a reentrant lock: waiting for such locks will poll"
            );
        }
    }

    /// A message on the channel of a reentrant lock.
    pub(super) fn heard(&self, events: &dyn Events, channel: &str, message: &str) {
        if message == UNLOCKED {
            let locks = lock(&self.channels).locks(channel);
            for name in locks {
                events.unlocked(&name);
            }
        }
    }
}

impl Link {
    /// Subscribes, or joins the subscription that is there already. `None` where the server does not allow it.
    pub(super) async fn listen(
        self: &Arc<Self>,
        channel: &str,
        name: &str,
    ) -> Result<Option<Subscription>, StoreError> {
        let listening = lock(&self.subscriptions.channels).listen(channel, name);
        // It is counted from here on, however this future ends.
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
            // No answer; or no worker, because its runtime has ended.
            _ => Err(StoreError::NotNow(no_reply(self.connect_limit))),
        }
    }

    /// Subscribes a new connection, which nobody uses yet, to all that is listened to.
    pub(super) async fn prepare_channels(
        &self,
        generation: u64,
        connection: &MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let wanted = lock(&self.subscriptions.channels).wanted();
        let answers = join_all(wanted.iter().map(|name| subscribe(connection, name))).await;
        let mut subscribed = Vec::with_capacity(wanted.len());
        for (name, answer) in wanted.into_iter().zip(answers) {
            match answer {
                Ok(()) => subscribed.push(name),
                Err(error) if is_denied(&error) => self.subscriptions.denied(generation, &error),
                Err(error) => return Err(error),
            }
        }
        lock(&self.subscriptions.channels).prepare(generation, subscribed);
        Ok(())
    }

    /// The connection is the one in use from now on.
    pub(super) fn adopt_channels(self: &Arc<Self>, generation: u64) {
        if lock(&self.subscriptions.channels).adopt(generation) {
            self.spawn(Arc::clone(self).tend_channels());
        }
        self.subscriptions.changed.notify_one();
    }

    /// The worker: tells the server what is wanted for as long as anything is.
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

    /// All at once: the answers take one round trip.
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
                Ok(Ok(())) => channels.subscribed(generation, name),
                Ok(Err(error)) if is_denied(&error) => {
                    self.subscriptions.denied(generation, &error);
                    channels.denied(generation, name);
                }
                Ok(Err(error)) => {
                    let dropped = error.is_connection_dropped();
                    channels.failed(name, classify(error));
                    return dropped;
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
                // A server that refuses would refuse again.
                Ok(_) => lock(&self.subscriptions.channels).unsubscribed(generation, name),
                Err(_) => self.went_silent(limit),
            }
            false
        }));
        let (one, other) = tokio::join!(subscribe, unsubscribe);
        if one.into_iter().chain(other).any(|dropped| dropped) {
            self.discard(generation);
        }
    }
}

/// One command for each channel: the server acknowledges each channel by itself.
async fn subscribe(connection: &MultiplexedConnection, name: &str) -> Result<(), RedisError> {
    connection.clone().subscribe(name).await
}

/// Whether the server has refused, for good as far as we know: for want of a permission, or of the command.
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
