//! The channels with local subscribers, and their state on the server. Bookkeeping only, no I/O.
//!
//! One worker brings the server in line with the subscribers, batch after batch, so that a subscribe cannot overtake an
//! earlier unsubscribe.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::RedisError;
use tokio::sync::{Notify, oneshot};

use crate::base::rt::HashMap;
use crate::base::single_flight::{Flight, SingleFlight};
use crate::base::sync::{lock, when_unlocked};
use crate::store::redis::error::said;
use crate::store::{Events, StoreError};

/// Maximum subscriptions of one batch, so that other requests of the connection come in between.
const BATCH: usize = 256;

/// The message that Redisson publishes when a lock is free, and our scripts for whatever they announce.
const UNLOCKED: &str = "0";

/// The outcome of a subscription: true if messages arrive, false if the server does not allow it.
pub(in crate::store::redis) type Outcome = Result<bool, StoreError>;

/// The subscriptions of the server.
#[derive(Default)]
pub(in crate::store::redis) struct Subscriptions {
    pub(in crate::store::redis) channels: Mutex<Channels>,
    /// Notified when the worker has to look at the channels again.
    pub(in crate::store::redis) changed: Notify,
    /// One warning for each connection that refuses a subscription: the largest generation warned of, plus 1.
    warned_of: AtomicU64,
    /// The same, of subscriptions that it does not end.
    warned_of_staying: AtomicU64,
}

impl Subscriptions {
    /// The connection is in use from now on.
    pub(in crate::store::redis) fn adopt(&self, generation: u64) {
        lock(&self.channels).adopt(generation);
        self.changed.notify_one();
    }

    /// The connection has ended.
    pub(in crate::store::redis) fn lost(&self, generation: u64) {
        lock(&self.channels).lost(generation);
        self.changed.notify_one();
    }

    /// A waiter subscribes again with each attempt, so a refusal is frequent. One warning is enough.
    pub(in crate::store::redis) fn denied(&self, generation: u64, error: &RedisError) {
        let why = said(error);
        // Generations count from 0. In `warned_of`, 0 means that there was no warning.
        let warned = self.warned_of.fetch_max(generation + 1, Ordering::Relaxed) > generation;
        if warned || error.redirect_node().is_some() {
            tracing::debug!(why, "the server refuses the subscription to a channel");
        } else {
            tracing::warn!(
                why,
                "the server refuses the subscription to a channel: who waits for its messages will poll"
            );
        }
    }

    /// The server does not let a subscription end. One warning for each connection.
    pub(in crate::store::redis) fn stays(&self, generation: u64, error: &RedisError) {
        let why = said(error);
        let warned = self
            .warned_of_staying
            .fetch_max(generation + 1, Ordering::Relaxed)
            > generation;
        if !warned && error.redirect_node().is_none() {
            tracing::warn!(
                why,
                "the server refuses to end a subscription: it stays until the connection ends"
            );
        }
    }

    /// Handles a message on a channel of announcements.
    pub(in crate::store::redis) fn heard(&self, events: &dyn Events, channel: &str, message: &str) {
        if message == UNLOCKED {
            self.ask_again(events, channel);
        }
    }

    /// Has all waiters of the channel ask.
    pub(in crate::store::redis) fn ask_again(&self, events: &dyn Events, channel: &str) {
        let locks = lock(&self.channels).locks(channel);
        for name in locks {
            events.unlocked(&name);
        }
    }
}

#[derive(Default)]
pub(in crate::store::redis) struct Channels {
    /// The connection that this state belongs to; `None` while there is none.
    generation: Option<u64>,
    known: HashMap<Box<str>, Channel>,
    /// The channels that may need a change on the server.
    changed: VecDeque<Box<str>>,
    worker: SingleFlight,
}

#[derive(Default)]
struct Channel {
    /// The number of subscribers for each lock. The locks `a` and `{a}` share a channel.
    listeners: Vec<(Box<str>, usize)>,
    server: OnServer,
    /// The subscription ended with its connection, and the subscribers rely on it.
    interrupted: bool,
    is_in_changed: bool,
    /// Subscribers that wait for the answer of the server.
    waiting: Vec<oneshot::Sender<Outcome>>,
}

/// Whether the server sends the messages of a channel.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum OnServer {
    #[default]
    No,
    /// A request is under way, or its answer never came.
    Perhaps,
    Yes,
}

/// The steps that a new subscriber has to take.
pub(in crate::store::redis) struct Listening {
    /// The answer to wait for; `None` if messages arrive already.
    pub(in crate::store::redis) answer: Option<oneshot::Receiver<Outcome>>,
    /// For the worker that has to begin, if there is none.
    pub(in crate::store::redis) worker: Option<Flight>,
}

/// The next step of the worker.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum ChannelStep {
    /// Changes have to be sent. Only a subscription justifies a new connection.
    Work { connect: bool },
    /// Nothing to do until something changes.
    Rest,
    /// No subscriber is left, and the server knows it: the worker ends.
    End,
}

/// A batch of changes for one connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) struct Changes {
    pub(in crate::store::redis) subscribe: Vec<Box<str>>,
    pub(in crate::store::redis) unsubscribe: Vec<Box<str>>,
}

impl Channels {
    /// Adds a subscriber.
    pub(in crate::store::redis) fn listen(&mut self, name: &str, lock: &str) -> Listening {
        let channel = self.known.entry(name.into()).or_default();
        match channel.listeners.iter_mut().find(|(l, _)| **l == *lock) {
            Some((_, count)) => *count += 1,
            None => channel.listeners.push((lock.into(), 1)),
        }
        let answer = (channel.server != OnServer::Yes).then(|| {
            let (sender, receiver) = oneshot::channel();
            // Entries of subscribers that have gone make room for new ones.
            channel.waiting.retain(|waiting| !waiting.is_closed());
            channel.waiting.push(sender);
            receiver
        });
        self.look_at(name);
        Listening {
            answer,
            worker: self.worker.begin(),
        }
    }

    /// Removes a subscriber.
    pub(in crate::store::redis) fn left(&mut self, name: &str, lock: &str) {
        let Some(channel) = self.known.get_mut(name) else {
            return;
        };
        if let Some(at) = channel.listeners.iter().position(|(l, _)| **l == *lock) {
            channel.listeners[at].1 -= 1;
            if channel.listeners[at].1 == 0 {
                channel.listeners.swap_remove(at);
            }
        }
        self.tidy(name);
    }

    pub(in crate::store::redis) fn has_listeners(&self) -> bool {
        self.known.values().any(|c| !c.listeners.is_empty())
    }

    /// Whether the server sends this channel, as far as is known, and was not told to end that.
    pub(in crate::store::redis) fn is_sent(&self, generation: u64, name: &str) -> bool {
        let channel = self.known.get(name);
        self.generation == Some(generation) && channel.is_some_and(|c| c.server == OnServer::Yes)
    }

    /// The locks that a message on this channel concerns.
    pub(in crate::store::redis) fn locks(&self, name: &str) -> Vec<Box<str>> {
        let listeners = self.known.get(name).map(|channel| &channel.listeners);
        let locks = listeners.into_iter().flatten();
        locks.map(|(lock, _)| lock.clone()).collect()
    }

    pub(in crate::store::redis) fn next(&mut self) -> ChannelStep {
        while let Some(name) = self.changed.front() {
            if let Some(channel) = self.known.get_mut(name) {
                let connect = channel.wants_in();
                if connect || channel.wants_out() {
                    return ChannelStep::Work { connect };
                }
                channel.is_in_changed = false;
            }
            self.changed.pop_front();
        }
        if self.known.is_empty() {
            ChannelStep::End
        } else {
            ChannelStep::Rest
        }
    }

    /// The changes to send now on the connection of this generation; none if another connection is in use.
    pub(in crate::store::redis) fn batch(&mut self, generation: u64) -> Changes {
        let mut batch = Changes::default();
        if self.generation != Some(generation) {
            return batch;
        }
        for name in self.changed.drain(..self.changed.len().min(BATCH)) {
            let Some(channel) = self.known.get_mut(&name) else {
                continue;
            };
            channel.is_in_changed = false;
            if channel.wants_in() {
                batch.subscribe.push(name);
            } else if channel.wants_out() {
                batch.unsubscribe.push(name);
            } else {
                continue;
            }
            channel.server = OnServer::Perhaps;
        }
        batch
    }

    /// The server sends this channel from now on. Returns whether the subscribers may have missed a message before.
    pub(in crate::store::redis) fn subscribed(&mut self, generation: u64, name: &str) -> bool {
        let Some(channel) = self.known.get_mut(name) else {
            return false;
        };
        if self.generation != Some(generation) {
            return false;
        }
        channel.server = OnServer::Yes;
        channel.answer(&Ok(true));
        let interrupted = std::mem::take(&mut channel.interrupted);
        self.tidy(name);
        interrupted
    }

    /// The server has refused the channel, for good as far as is known.
    pub(in crate::store::redis) fn denied(&mut self, generation: u64, name: &str) {
        if self.generation == Some(generation)
            && let Some(channel) = self.known.get_mut(name)
        {
            channel.server = OnServer::No;
            channel.interrupted = false;
            channel.answer(&Ok(false));
            self.tidy(name);
        }
    }

    /// A subscription has failed, as far as is known: its waiting subscribers get the error, and may try again. Returns whether
    /// others rely on it.
    pub(in crate::store::redis) fn failed(&mut self, name: &str, error: StoreError) -> bool {
        let Some(channel) = self.known.get_mut(name) else {
            return false;
        };
        channel.answer(&Err(error));
        let interrupted = channel.interrupted;
        self.tidy(name);
        interrupted
    }

    /// Gives one outcome to all waiting subscribers of all channels.
    pub(in crate::store::redis) fn all_answered(&mut self, outcome: &Outcome) {
        for channel in self.known.values_mut() {
            channel.interrupted = false;
            channel.answer(outcome);
        }
    }

    /// The server no longer sends this channel.
    pub(in crate::store::redis) fn unsubscribed(&mut self, generation: u64, name: &str) {
        if self.generation == Some(generation)
            && let Some(channel) = self.known.get_mut(name)
        {
            channel.server = OnServer::No;
            self.tidy(name);
        }
    }

    /// No answer says that the server no longer sends this channel: it is told again.
    pub(in crate::store::redis) fn still_subscribed(&mut self, name: &str) {
        self.look_at(name);
    }

    /// The connection is in use from now on, without a subscription.
    fn adopt(&mut self, generation: u64) {
        self.forget_server();
        self.generation = Some(generation);
        self.changed.clear();
        for (name, channel) in &mut self.known {
            channel.interrupted = true;
            channel.is_in_changed = true;
            self.changed.push_back(name.clone());
        }
    }

    /// The connection has ended, and with it all subscriptions on the server.
    pub(in crate::store::redis) fn lost(&mut self, generation: u64) {
        if self.generation == Some(generation) {
            self.generation = None;
            self.forget_server();
        }
    }

    fn forget_server(&mut self) {
        self.known.retain(|_, channel| {
            channel.server = OnServer::No;
            channel.interrupted = false;
            !channel.listeners.is_empty()
        });
    }

    /// Forgets a channel that has no subscribers and that the server does not send.
    fn tidy(&mut self, name: &str) {
        let unused = |c: &Channel| c.listeners.is_empty() && c.server == OnServer::No;
        if self.known.get(name).is_some_and(unused) {
            self.known.remove(name);
        } else {
            self.look_at(name);
        }
    }

    /// Has the worker look at a channel that may need a change.
    fn look_at(&mut self, name: &str) {
        if let Some(channel) = self.known.get_mut(name)
            && (channel.wants_in() || channel.wants_out())
            && !std::mem::replace(&mut channel.is_in_changed, true)
        {
            self.changed.push_back(name.into());
        }
    }
}

impl Channel {
    fn wants_in(&self) -> bool {
        !self.listeners.is_empty()
            && self.server != OnServer::Yes
            && (self.interrupted || !self.waiting.is_empty())
    }

    fn wants_out(&self) -> bool {
        self.listeners.is_empty() && self.server != OnServer::No
    }

    fn answer(&mut self, outcome: &Outcome) {
        for waiting in self.waiting.drain(..) {
            let outcome = outcome.clone();
            // The subscriber may have gone.
            when_unlocked(|| drop(waiting.send(outcome)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: u64 = 1;

    fn connected() -> Channels {
        let mut channels = Channels::default();
        channels.adopt(ON);
        channels
    }

    /// The only listener has left a channel, and the server was told.
    fn leaving() -> Channels {
        let mut channels = connected();
        channels.listen("c", "a");
        sent(&mut channels, ON);
        channels.subscribed(ON, "c");
        channels.left("c", "a");
        assert_eq!(sent(&mut channels, ON), ["-c"]);
        channels
    }

    /// The commands that the worker would send, as `+channel` and `-channel`.
    fn sent(channels: &mut Channels, generation: u64) -> Vec<String> {
        let batch = channels.batch(generation);
        let subscribe = batch.subscribe.iter().map(|c| format!("+{c}"));
        let unsubscribe = batch.unsubscribe.iter().map(|c| format!("-{c}"));
        let mut sent: Vec<_> = subscribe.chain(unsubscribe).collect();
        sent.sort();
        sent
    }

    fn outcome(listening: &mut Listening) -> Option<bool> {
        let answer = listening.answer.as_mut().expect("it had to wait");
        answer.try_recv().ok().map(|outcome| outcome.unwrap())
    }

    #[test]
    fn many_listeners_share_one_subscription_that_ends_with_the_last() {
        let mut channels = connected();
        let mut first = channels.listen("c", "a");
        let mut second = channels.listen("c", "a");
        assert!(first.worker.take().is_some() && second.worker.is_none());
        assert_eq!(channels.next(), ChannelStep::Work { connect: true });
        assert_eq!(sent(&mut channels, ON), ["+c"]);
        assert_eq!(outcome(&mut first), None, "not before the acknowledgement");
        channels.subscribed(ON, "c");
        assert_eq!(outcome(&mut first), Some(true));
        assert_eq!(outcome(&mut second), Some(true));
        assert!(channels.listen("c", "a").answer.is_none());
        for _ in 0..2 {
            channels.left("c", "a");
            assert_eq!(channels.next(), ChannelStep::Rest);
        }
        channels.left("c", "a");
        assert_eq!(channels.next(), ChannelStep::Work { connect: false });
        assert_eq!(sent(&mut channels, ON), ["-c"]);
        channels.unsubscribed(ON, "c");
        assert_eq!(channels.next(), ChannelStep::End);
        assert!(channels.listen("c", "a").worker.is_some());
    }

    #[test]
    fn a_listener_that_comes_while_the_channel_is_left_ends_subscribed() {
        let mut channels = leaving();
        let mut late = channels.listen("c", "a");
        channels.unsubscribed(ON, "c");
        assert_eq!(outcome(&mut late), None);
        assert_eq!(sent(&mut channels, ON), ["+c"]);
        channels.subscribed(ON, "c");
        assert_eq!(outcome(&mut late), Some(true));
        assert_eq!(channels.next(), ChannelStep::Rest);
    }

    #[test]
    fn a_channel_is_left_once_more_if_no_answer_says_that_it_is() {
        let mut channels = leaving();
        channels.still_subscribed("c");
        assert_eq!(channels.next(), ChannelStep::Work { connect: false });
        assert_eq!(sent(&mut channels, ON), ["-c"]);
        channels.unsubscribed(ON, "c");
        assert_eq!(channels.next(), ChannelStep::End);
    }

    #[test]
    fn a_listener_that_leaves_during_the_subscription_leaves_nothing() {
        let mut channels = connected();
        channels.listen("c", "a");
        sent(&mut channels, ON);
        channels.left("c", "a");
        channels.subscribed(ON, "c");
        assert_eq!(sent(&mut channels, ON), ["-c"]);
        channels.unsubscribed(ON, "c");
        assert_eq!(channels.next(), ChannelStep::End);
    }

    #[test]
    fn a_subscription_without_an_answer_is_ended_as_well() {
        let mut channels = connected();
        let mut listening = channels.listen("c", "a");
        sent(&mut channels, ON);
        channels.failed("c", StoreError::Misconfigured("".into()));
        let answer = listening.answer.as_mut().unwrap().try_recv();
        assert!(matches!(answer, Ok(Err(_))));
        assert_eq!(channels.next(), ChannelStep::Rest, "it has no waiter now");
        channels.left("c", "a");
        assert_eq!(sent(&mut channels, ON), ["-c"]);
    }

    #[test]
    fn a_new_connection_subscribes_to_all_and_tells_who_may_have_missed_news() {
        let mut channels = connected();
        for name in ["b", "c"] {
            channels.listen(name, name);
        }
        sent(&mut channels, ON);
        assert!(
            !channels.subscribed(ON, "b"),
            "its first subscription interrupts no subscriber"
        );
        channels.subscribed(ON, "c");
        channels.lost(ON);
        assert_eq!(
            channels.next(),
            ChannelStep::Rest,
            "who asks for a lock connects"
        );
        // One subscriber leaves and one comes while the connection is being made.
        channels.left("c", "c");
        let mut late = channels.listen("d", "d");
        channels.adopt(2);
        assert_eq!(sent(&mut channels, 2), ["+b", "+d"]);
        assert!(channels.failed("b", StoreError::Misconfigured("".into())));
        assert_eq!(sent(&mut channels, 2), ["+b"], "it is tried again");
        assert!(channels.subscribed(2, "b"));
        channels.subscribed(2, "d");
        assert_eq!(outcome(&mut late), Some(true));
        assert_eq!(channels.next(), ChannelStep::Rest);
    }

    #[test]
    fn thousands_of_channels_are_subscribed_in_pieces() {
        let mut channels = Channels::default();
        for n in 0..1000 {
            channels.listen(&format!("c{n}"), "a");
        }
        channels.adopt(ON);
        let mut pieces = Vec::new();
        while channels.next() == (ChannelStep::Work { connect: true }) {
            let names = channels.batch(ON).subscribe;
            pieces.push(names.len());
            for name in names {
                channels.subscribed(ON, &name);
            }
        }
        assert_eq!(pieces, [BATCH, BATCH, BATCH, 1000 - 3 * BATCH]);
    }

    #[test]
    fn answers_from_a_connection_of_the_past_are_ignored() {
        let mut channels = connected();
        let mut listening = channels.listen("c", "a");
        sent(&mut channels, ON);
        channels.lost(ON);
        channels.adopt(2);
        channels.subscribed(ON, "c");
        assert_eq!(outcome(&mut listening), None);
        assert_eq!(sent(&mut channels, ON), [""; 0]);
        assert_eq!(sent(&mut channels, 2), ["+c"]);
        channels.subscribed(2, "c");
        channels.lost(ON);
        assert_eq!(outcome(&mut listening), Some(true));
        assert_eq!(channels.next(), ChannelStep::Rest);
    }

    #[test]
    fn a_refused_channel_is_told_and_forgotten() {
        let mut channels = connected();
        let mut listening = channels.listen("c", "a");
        sent(&mut channels, ON);
        channels.denied(ON, "c");
        assert_eq!(outcome(&mut listening), Some(false));
        channels.left("c", "a");
        assert_eq!(channels.next(), ChannelStep::End);
    }

    #[test]
    fn a_message_concerns_every_lock_of_its_channel() {
        let mut channels = connected();
        channels.listen("c", "a");
        channels.listen("c", "{a}");
        channels.listen("c", "a");
        channels.left("c", "{a}");
        assert_eq!(channels.locks("c"), [Box::from("a")]);
        channels.listen("c", "{a}");
        assert_eq!(channels.locks("c").len(), 2);
        assert!(channels.locks("other").is_empty());
    }

    #[test]
    fn without_a_connection_an_unused_channel_is_forgotten() {
        let mut channels = connected();
        channels.listen("c", "a");
        sent(&mut channels, ON);
        channels.subscribed(ON, "c");
        channels.left("c", "a");
        channels.lost(ON);
        assert_eq!(channels.next(), ChannelStep::End);
    }
}
