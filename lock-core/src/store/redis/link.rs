//! The connection of the library: made when it is needed, made again after it breaks, and used for requests and messages.

use std::borrow::Borrow;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisError, RedisResult, Value, cmd};

use super::channels::Subscriptions;
use super::dial::Dial;
use super::error::is_from_replica;
use super::floor::Floors;
use super::named::{Agreement, Named};
use super::reply::text;
use super::script::Script;
use super::sentinels::Sentinels;
use super::socket::Socket;
use super::source::{By, HELLO, News, Source};
use super::wire::{self, Arg, Name, deliver};
use tokio::time::{Instant, sleep, timeout};

use crate::base::observe::Event;
use crate::base::sync::lock;
use crate::base::time::Moment;
use crate::store::{Attached, EngineRef, Events, every};

/// Minimum silence before a connection is replaced, however short the leases are that depend on it.
const HICCUP: Duration = Duration::from_millis(50);

/// Minimum interval between attempts to subscribe again after a refusal.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(60);

/// How long a silent connection is kept beside its successor. If both lead to a master that was replaced meanwhile, the silent one
/// is told first.
const KEPT_SILENT: Duration = Duration::from_secs(3);

/// The connection is replaced as a whole. A clean-up goes out on the connection of its acquire as long as that connection
/// lives: on one connection it cannot overtake the acquire.
pub(in crate::store) struct Link {
    pub(super) source: Source,
    /// Whether a connection was made before.
    pub(super) was_connected: AtomicBool,
    /// Whether the server was found to hold locks.
    pub(super) was_looked_at: AtomicBool,
    /// The command deadline: maximum time of an attempt to connect, and of an answer.
    pub(in crate::store) limit: Duration,
    live: Mutex<Option<Live>>,
    /// The server of the last connection, and since when that has been lost.
    last: Mutex<(Arc<str>, Option<Instant>)>,
    pub(super) dial: Dial,
    pub(super) next_generation: AtomicU64,
    /// Generations below this one are discarded.
    discarded: AtomicU64,
    /// Generations below this one lead to a server that is no longer the master: its messages do not count.
    left: AtomicU64,
    /// The connection that fell silent, until its successor has been in use for a while.
    silent: Mutex<Option<Socket>>,
    /// Whether the master is elsewhere, and there was no connection to it yet.
    has_moved: AtomicBool,
    /// Whether the server is no master of the cluster any more.
    retired: AtomicBool,
    /// False if the server refused RESP3 or the subscription on the last connection.
    pub(super) pushes: AtomicBool,
    /// Time of the last refusal of the subscription.
    pub(super) refused_at: Mutex<Option<Instant>>,
    pub(super) engine: EngineRef,
    pub(super) subscriptions: Subscriptions,
    /// To the sharded channels of a master of a cluster, over a connection of their own.
    pub(super) of_slots: Option<Arc<Self>>,
}

/// A connection in use.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) generation: u64,
    /// The time before it was made, and how long that took.
    pub(super) dialled: Moment,
    pub(super) made_in: Duration,
    pub(super) socket: Socket,
    pub(super) floors: Arc<Floors>,
}

impl Link {
    pub(super) fn open(source: Source, limit: Duration) -> Arc<Self> {
        let (resp3, is_of_slots) = (source.resp3(), source.is_of_slots);
        let of_slots = source.of_slots().map(|it| Self::open(it, limit));
        Arc::new(Self {
            source,
            was_connected: AtomicBool::new(false),
            was_looked_at: AtomicBool::new(is_of_slots),
            limit,
            live: Mutex::new(None),
            last: Mutex::new((Arc::from(""), None)),
            dial: Dial::default(),
            next_generation: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            left: AtomicU64::new(0),
            silent: Mutex::default(),
            has_moved: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            pushes: AtomicBool::new(resp3),
            refused_at: Mutex::default(),
            engine: EngineRef::default(),
            subscriptions: Subscriptions::default(),
            of_slots,
        })
    }

    /// Host and port of the master, as far as they are known.
    pub(in crate::store) fn address(&self) -> Arc<str> {
        self.source.address()
    }

    pub(in crate::store) fn attach(self: &Arc<Self>, engine: &Attached) {
        if let Some(of_slots) = &self.of_slots {
            of_slots.attach(engine);
        }
        self.engine.attach(engine.clone());
        if let Some(sentinels) = &self.source.sentinels {
            sentinels.watch(self);
        }
    }

    pub(in crate::store) fn pushes(&self) -> bool {
        self.pushes.load(Ordering::Relaxed)
    }

    /// Sends a command without a time limit. If there is a connection, the first poll of the future puts the command on its way,
    /// behind all earlier ones.
    pub(in crate::store) fn request<C: Borrow<Cmd> + Send + Sync>(
        self: &Arc<Self>,
        command: C,
    ) -> impl Future<Output = RedisResult<Value>> + Send + use<C> {
        self.request_after(command, false)
    }

    /// As [`request`](Self::request); with `asks` behind an `ASKING`.
    pub(super) fn request_after<C: Borrow<Cmd> + Send + Sync>(
        self: &Arc<Self>,
        command: C,
        asks: bool,
    ) -> impl Future<Output = RedisResult<Value>> + Send + use<C> {
        let link = Arc::clone(self);
        async move {
            let live = link.live().await?;
            link.request_on(live, command, asks).await
        }
    }

    /// The connection in use, made if there is none.
    pub(super) async fn live(self: &Arc<Self>) -> RedisResult<Live> {
        match self.current() {
            Some(live) => Ok(live),
            // Boxed because it is rare and large: otherwise every request would carry room for it.
            None => Box::pin(self.connection()).await,
        }
    }

    /// As [`request_after`](Self::request_after), on this connection.
    pub(super) fn request_on<C: Borrow<Cmd> + Send + Sync>(
        self: &Arc<Self>,
        mut live: Live,
        command: C,
        asks: bool,
    ) -> impl Future<Output = RedisResult<Value>> + Send + use<C> {
        let link = Arc::clone(self);
        async move {
            let result = if asks {
                Box::pin(live.socket.request_asking(command.borrow())).await
            } else {
                live.socket.request(command.borrow()).await
            };
            if link.has_left(live.generation) {
                // Whether or not it was carried out, the new master may know nothing of it.
                return Err(io::Error::other("the server is no longer the master").into());
            }
            let result = result.and_then(Value::extract_error);
            match &result {
                Err(error) if error.is_connection_dropped() => link.discard(live.generation),
                // The address leads to another server by now, or will.
                Err(error) if is_from_replica(error) => {
                    link.source.is_no_master();
                    link.discard(live.generation);
                }
                _ => {}
            }
            result
        }
    }

    /// Runs a script by its hash, and by its text if the server has lost it.
    pub(super) async fn run(
        self: &Arc<Self>,
        script: &Script,
        keys: &[Name<'_>],
        args: &[Arg<'_>],
    ) -> RedisResult<Value> {
        script.run(keys, args, |call| self.request(call)).await
    }

    /// Whether a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        let live = lock(&self.live);
        live.as_ref().is_some_and(|live| live.socket.is_busy())
    }

    /// Handles a request without an answer within `limit`. The socket may look healthy for many minutes, so a silence of twice the
    /// limit replaces the connection.
    pub(in crate::store) fn went_silent(self: &Arc<Self>, limit: Duration) {
        self.was_silent_for(limit, |_| limit.saturating_mul(2));
    }

    /// As [`went_silent`](Self::went_silent), for a renewal: there has to be time for another renewal on a new connection. An answer
    /// since half of its limit shows that the connection lives. If a round trip takes as long as the limit, a new connection is no
    /// faster.
    pub(super) fn renewal_went_silent(self: &Arc<Self>, limit: Duration) {
        self.was_silent_for(limit, |round_trip| {
            if round_trip >= limit / 2 {
                limit.max(round_trip * 4)
            } else {
                HICCUP.max(limit / 2)
            }
        });
    }

    fn was_silent_for(
        self: &Arc<Self>,
        limit: Duration,
        maximum: impl FnOnce(Duration) -> Duration,
    ) {
        let Some(live) = self.current() else { return };
        let silence = &live.socket.silence;
        // The request may have been sent a little later than its limit began.
        if silence.lasts(limit) + limit / 8 >= maximum(silence.round_trip()) {
            if self.source.follows {
                lock(&self.silent).get_or_insert_with(|| live.socket.clone());
            }
            self.discard(live.generation);
        } else if let Some(probe) = silence.probe() {
            // The connection may receive garbage, or the answers to other requests: after garbage it can be out of step.
            let link = Arc::clone(self);
            self.engine.spawn(async move {
                let (mut socket, mut ping) = (live.socket, cmd("PING"));
                let word = fastrand::u64(..).to_string();
                ping.arg(&word);
                let limit = link.limit.saturating_mul(2);
                let answer = timeout(limit, socket.request(&ping)).await;
                let is_refused = matches!(answer, Ok(Err(_) | Ok(Value::ServerError(_))));
                if !is_refused && answer != Ok(Ok(Value::BulkString(word.into_bytes()))) {
                    link.discard(live.generation);
                }
                drop(probe);
            });
        }
    }

    /// Makes this connection the one in use, unless the master is elsewhere by now.
    pub(super) fn adopt(self: &Arc<Self>, made: Live) {
        let (generation, socket) = (made.generation, made.socket.clone());
        let server = self.address();
        let lost = {
            let mut current = lock(&self.live);
            if self.has_left(generation) {
                return;
            }
            self.adopt_channels(generation);
            self.has_moved.store(false, Ordering::Relaxed);
            *current = Some(made);
            let now = (Arc::clone(&server), None);
            std::mem::replace(&mut *lock(&self.last), now).1
        };
        if let Some(lost) = lost {
            let away = lost.elapsed();
            self.observe(&Event::Reconnected {
                server: &server,
                away,
            });
        }
        if socket.is_over() {
            // The connection may have ended before it was in use.
            self.discard(generation);
            return;
        }
        if lock(&self.silent).is_some() {
            let link = Arc::downgrade(self);
            self.engine.spawn(async move {
                sleep(KEPT_SILENT).await;
                if let Some(link) = link.upgrade() {
                    *lock(&link.silent) = None;
                }
            });
        }
        if generation > 0 && !self.source.is_of_slots {
            // The cause that broke this connection may have broken the other one, which is silent most of the time.
            self.of_slots.iter().for_each(Self::leave);
            if let Some(events) = self.engine.events() {
                events.reconnected(&every);
            }
        }
    }

    /// Whether the engine holds or waits for a lock, or has something to tell a new master.
    pub(super) fn is_in_use(&self) -> bool {
        if self.retired.load(Ordering::Relaxed) {
            return false;
        }
        if self.source.is_of_slots {
            return lock(&self.subscriptions.channels).has_listeners();
        }
        let has_moved = self.has_moved.load(Ordering::Relaxed);
        let tells = |events: &dyn Events| has_moved && events.has_released_lately();
        self.engine
            .events()
            .is_some_and(|events| events.is_in_use() || tells(&*events))
    }

    /// Notes that the server is no master of the cluster any more.
    pub(super) fn retire(self: &Arc<Self>) {
        self.retired.store(true, Ordering::Relaxed);
        self.leave();
        self.of_slots.iter().for_each(Self::retire);
    }

    /// Whether the server may be away: the connection is being made, or an answer takes longer than `late`.
    pub(super) fn is_in_doubt(&self, late: Duration) -> bool {
        match self.current() {
            None => self.dial.is_running(),
            Some(live) => live.socket.is_busy() && live.socket.silence.lasts(Duration::ZERO) > late,
        }
    }

    /// The connection in use and its generation.
    pub(super) fn in_use(&self) -> Option<(u64, MultiplexedConnection)> {
        self.current()
            .map(|live| (live.generation, live.socket.requests))
    }

    /// The generation of the connection in use, if any. It only grows.
    pub(in crate::store) fn generation(&self) -> Option<u64> {
        lock(&self.live).as_ref().map(|live| live.generation)
    }

    /// The time before the connection of this generation was made, if it is still in use.
    pub(in crate::store) fn dialled(&self, generation: u64) -> Option<Moment> {
        let live = lock(&self.live);
        let live = live.as_ref().filter(|live| live.generation == generation);
        live.map(|live| live.dialled)
    }

    /// The generation of the connection in use, and how long it took to make it.
    pub(super) fn made_in(&self) -> Option<(u64, Duration)> {
        let live = lock(&self.live);
        live.as_ref().map(|live| (live.generation, live.made_in))
    }

    pub(super) fn current(&self) -> Option<Live> {
        lock(&self.live).clone()
    }

    /// Called for a waiter without messages. Subscribes again from time to time.
    pub(super) fn subscribe_again(self: &Arc<Self>) {
        if is_due(&mut lock(&self.refused_at), Instant::now())
            && let Some(mut live) = self.current()
        {
            let link = Arc::clone(self);
            self.engine.spawn(async move {
                let Some(channel) = link.channel() else {
                    return;
                };
                let subscribed = live.socket.requests.subscribe(channel).await;
                if subscribed.is_ok() && link.generation() == Some(live.generation) {
                    link.pushes.store(true, Ordering::Relaxed);
                    tracing::info!("the server pushes messages to us again");
                    // A waiter has to name the channel, and a holder may have missed that its lock was taken away.
                    if let Some(events) = link.engine.events() {
                        events.interrupted(&every);
                        events.reconnected(&every);
                    }
                }
            });
        }
    }

    /// Handles the messages of the server. The connection calls it, so it must not block.
    pub(super) fn receiver(
        self: &Arc<Self>,
        generation: u64,
    ) -> impl Fn(PushInfo) -> Result<(), RedisError> + Send + Sync + 'static {
        let link: Weak<Self> = Arc::downgrade(self);
        move |push| {
            let Some(link) = link.upgrade() else {
                return Ok(());
            };
            match push.kind {
                PushKind::Message | PushKind::SMessage => {
                    let mut words = push.data.iter().map(|part| text(Some(part)));
                    if let (Some(events), Some(Some(channel)), Some(Some(message))) =
                        (link.engine.events(), words.next(), words.next())
                    {
                        link.heard(generation, &*events, channel, message);
                    }
                }
                PushKind::Disconnection => link.discard(generation),
                PushKind::SUnsubscribe => {
                    // If the client did not unsubscribe, another server has the slot.
                    let is_sent =
                        |channel| lock(&link.subscriptions.channels).is_sent(generation, channel);
                    if text(push.data.first()).is_some_and(is_sent) {
                        link.discard(generation);
                    }
                }
                _ => {}
            }
            Ok(())
        }
    }

    pub(super) fn sentinels(&self) -> Option<Arc<Sentinels>> {
        self.source.sentinels.clone()
    }

    /// Handles the answer of a sentinel: goes to the master that the sentinels name together, if it is another one. The attempt to
    /// connect chooses the first master.
    pub(super) fn weigh(self: &Arc<Self>, sentinels: &Sentinels) {
        if let Agreement::On(named) = sentinels.agreement()
            && self.source.is_known()
        {
            let by = if self.current().is_none() && sentinels.are_at_one() {
                By::All
            } else if self.current().is_some() && !sentinels.most_name(&named) {
                By::One
            } else {
                By::Majority
            };
            self.follow(&named, by);
        }
    }

    fn follow(self: &Arc<Self>, named: &Named, by: By) {
        if self.source.hear(named, by) == News::Moved {
            tracing::info!(
                master = named.address(),
                epoch = named.epoch,
                "the sentinels name another master: following it"
            );
            self.redial();
        }
    }

    /// Ends the connection to a server that is not the master any more. Messages that still come on it do not count.
    fn leave(self: &Arc<Self>) {
        let live = {
            let live = lock(&self.live);
            let made = self.next_generation.load(Ordering::Relaxed);
            self.left.fetch_max(made, Ordering::SeqCst);
            live.clone()
        };
        *lock(&self.silent) = None;
        if let Some(live) = live {
            live.socket.end();
            self.discard(live.generation);
        }
    }

    /// Leaves the connection, or the attempt to make one and the pause before it, because the master is elsewhere.
    fn redial(self: &Arc<Self>) {
        self.leave();
        self.has_moved.store(true, Ordering::Relaxed);
        self.dial.elsewhere();
        if self.is_in_use() {
            self.dial();
        }
    }

    /// Whether the connection leads to a server that was the master before.
    fn has_left(&self, generation: u64) -> bool {
        generation < self.left.load(Ordering::SeqCst)
    }

    /// Handles a message that came on the connection of this generation.
    fn heard(self: &Arc<Self>, generation: u64, events: &dyn Events, channel: &str, message: &str) {
        if channel == HELLO {
            let named = Named::in_hello(message).filter(|_| !self.has_left(generation));
            if let Some(named) = named {
                self.follow(&named, By::One);
            }
        } else if self.is_discarded(generation) {
            // While an old connection lives beside its successor, both receive the same messages. Late messages of the old one
            // have been handled already.
        } else if self.is_ours(channel) {
            deliver(events, message);
        } else {
            self.subscriptions.heard(events, channel, message);
        }
    }

    fn is_discarded(&self, generation: u64) -> bool {
        generation < self.discarded.load(Ordering::SeqCst)
    }

    fn observe(&self, event: &Event<'_>) {
        if let Some(events) = self.engine.events().filter(|_| !self.source.is_of_slots) {
            events.observed(event);
        }
    }

    fn is_ours(&self, channel: &str) -> bool {
        let (engine, namespace) = (self.engine.get(), self.source.namespace());
        engine.is_some_and(|it| wire::is_channel_of(channel, namespace, &it.client))
    }

    /// The channel of the client.
    pub(super) fn channel(&self) -> Option<String> {
        let engine = self.engine.get()?;
        Some(wire::channel(self.source.namespace(), &engine.client))
    }

    /// Forgets a connection, unless a newer one has replaced it, and wakes the waiters that depend on it.
    pub(in crate::store) fn discard(self: &Arc<Self>, generation: u64) {
        let server;
        {
            let mut live = lock(&self.live);
            if live.as_ref().is_none_or(|l| l.generation != generation) {
                return;
            }
            *live = None;
            let mut last = lock(&self.last);
            last.1 = Some(Instant::now());
            server = Arc::clone(&last.0);
            self.discarded.fetch_max(generation + 1, Ordering::SeqCst);
            self.subscriptions.lost(generation);
        }
        tracing::debug!(generation, "lost the connection to the lock server");
        self.observe(&Event::Disconnected { server: &server });
        self.dial.lost();
        if let Some(events) = self.engine.events() {
            // The waiters of a sharded channel ask when it is subscribed again.
            events.interrupted(&|_| !self.source.is_of_slots);
            if self.is_in_use() {
                self.dial();
            }
        }
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
