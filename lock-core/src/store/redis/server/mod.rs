//! A server, and the connection to it: made when it is needed, made again after it ends, and used for requests and messages.
//!
//! One task makes one attempt to connect at a time, for any number of callers. It runs while a caller waits for the connection, or
//! while the engine holds or waits for a lock, and ends when there is a connection. An attempt belongs to the server: if a caller gives
//! up, the attempt serves the next callers. [`ServerState`] says what happens when.
//!
//! A clean-up goes out on the connection of its acquire as long as that connection lives: on one connection it cannot overtake the
//! acquire.

#[cfg(feature = "cluster")]
pub(super) mod ask_once;
mod authenticate;
pub(super) mod batch;
pub(super) mod call;
mod channels;
pub(super) mod dialer;
pub(super) mod examine;
#[cfg(feature = "sentinel")]
mod follower;
pub(super) mod format;
#[cfg(feature = "cluster")]
mod in_cluster;
pub(super) mod list;
pub(super) mod look;
#[cfg(feature = "quorum")]
mod node;
pub(super) mod source;
mod state;
mod subscriptions;

use std::borrow::Borrow;
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::thread::panicking;
use std::time::Duration;

use redis::{Cmd, ErrorKind, PushInfo, PushKind, RedisError, RedisResult, Value, cmd};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::channels::Subscriptions;
use self::dialer::{Dial, Dialer, Recipient};
use self::source::Source;
use self::state::{DialStep, ServerState, Silent};
use crate::base::error::RUNTIME_ENDED;
use crate::base::observe::Event;
use crate::base::signal::Signal;
use crate::base::sync::lock;
use crate::base::time::{Clock, SystemClock};
use crate::store::redis::connection::Connection;
use crate::store::redis::connection::generation::Generation;
use crate::store::redis::error::{is_from_replica, misconfigured, said};
use crate::store::redis::reply::text;
use crate::store::redis::script::Script;
use crate::store::redis::wire::{self, Arg, Name, deliver};
use crate::store::{Attached, EngineRef, Events};

/// Minimum silence before a connection is replaced, however short the leases are that depend on it.
const HICCUP: Duration = Duration::from_millis(50);

/// How long a silent connection is kept beside its successor. If both lead to a master that was stopped and replaced, the silent one
/// is told first, before the new one can be granted anything.
const KEPT_SILENT: Duration = Duration::from_secs(3);

/// A server that holds locks: the only one, a master of a cluster, or a node of a quorum.
pub(in crate::store) struct Server {
    pub(super) dialer: Dialer,
    state: Mutex<ServerState<Arc<Connection>>>,
    /// The connection that fell silent, until its successor has been in use for a while.
    silent: Mutex<Option<Arc<Connection>>>,
    /// Notified when an attempt to connect has ended.
    attempted: Signal,
    /// Notified when the task that dials has to look at the state again.
    changed: Signal,
    pub(super) subscriptions: Subscriptions,
    /// The connection for the sharded channels of a master of a cluster.
    pub(super) of_slots: Option<Arc<Self>>,
}

impl Server {
    pub(super) fn open(source: Source, limit: Duration) -> Arc<Self> {
        let of_slots = source.of_slots().map(|it| Self::open(it, limit));
        Arc::new(Self {
            dialer: Dialer::new(source, limit),
            state: Mutex::new(ServerState::new()),
            silent: Mutex::default(),
            attempted: Signal::default(),
            changed: Signal::default(),
            subscriptions: Subscriptions::default(),
            of_slots,
        })
    }

    /// Host and port of the master, as far as they are known.
    pub(in crate::store) fn address(&self) -> Arc<str> {
        self.source().address()
    }

    /// The command deadline.
    pub(in crate::store) fn limit(&self) -> Duration {
        self.dialer.limit
    }

    pub(super) fn engine(&self) -> &EngineRef {
        &self.dialer.engine
    }

    pub(super) fn source(&self) -> &Source {
        &self.dialer.source
    }

    pub(in crate::store) fn attach(self: &Arc<Self>, engine: &Attached) {
        if let Some(of_slots) = &self.of_slots {
            of_slots.attach(engine);
        }
        self.engine().attach(engine.clone());
        if let Some(followed) = &self.source().followed {
            followed.watch(self);
        }
    }

    pub(in crate::store) fn pushes(&self) -> bool {
        self.dialer.pushes()
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
        let server = Arc::clone(self);
        async move {
            let connection = server.connection().await?;
            server.request_on(&connection, command.borrow(), asks).await
        }
    }

    /// As [`request_after`](Self::request_after), on this connection.
    pub(in crate::store) async fn request_on(
        self: &Arc<Self>,
        connection: &Connection,
        command: &Cmd,
        asks: bool,
    ) -> RedisResult<Value> {
        let result = if asks {
            Box::pin(connection.request_asking(command)).await
        } else {
            connection.request(command).await
        };
        let generation = &connection.generation;
        if !generation.replies_count() {
            // Whether or not it was carried out.
            return Err(no_master());
        }
        let result = result.and_then(Value::extract_error);
        match &result {
            Err(error) if error.is_connection_dropped() => self.discard(generation.number),
            // The address leads to another server by now, or will.
            Err(error) if is_from_replica(error) => {
                self.source().is_no_master();
                self.discard(generation.number);
            }
            _ => {}
        }
        result
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

    /// The connection in use, made if there is none. An error comes from an attempt that ended after the call.
    pub(super) async fn connection(self: &Arc<Self>) -> RedisResult<Arc<Connection>> {
        match self.current() {
            Some(connection) => Ok(connection),
            // Boxed because it is rare and large: otherwise every request would carry room for it.
            None => Box::pin(self.made()).await,
        }
    }

    async fn made(self: &Arc<Self>) -> RedisResult<Arc<Connection>> {
        let (_caller, before) = Caller::new(self);
        let look = || {
            let outcome = {
                let state = lock(&self.state);
                let refused = || state.is_retired().then(|| Err(retired()));
                let failed = || state.failed_since(before).map(Err);
                let made = state.current().cloned().map(Ok);
                made.or_else(refused).or_else(failed)
            };
            if outcome.is_none() {
                self.dial();
            }
            outcome
        };
        self.attempted.find(look).await
    }

    /// Starts the task that makes the connection, unless it runs.
    fn dial(self: &Arc<Self>) {
        let begins = lock(&self.state).wanted();
        if begins {
            // Without the lock: a runtime that has ended drops the task at once, and its drop takes the lock.
            let (server, ended) = (Arc::clone(self), false);
            self.engine().spawn(Dialing { server, ended }.run());
        }
    }

    /// Makes this connection the one in use, unless the master is elsewhere by now.
    fn adopt(self: &Arc<Self>, connection: &Arc<Connection>) {
        let number = connection.generation.number;
        let lost = {
            let mut state = lock(&self.state);
            let made = Arc::clone(connection);
            if !state.made(&connection.generation, made, Instant::now()) {
                return;
            }
            self.subscriptions.adopt(number);
            state.was_lost_at()
        };
        if let Some(lost) = lost {
            self.observe(&Event::Reconnected {
                server: &connection.address,
                away: lost.elapsed(),
            });
        }
        if connection.is_over() {
            // It may have ended before it was in use.
            self.discard(number);
            return;
        }
        if lock(&self.silent).is_some() {
            let server = Arc::downgrade(self);
            self.engine().spawn(async move {
                sleep(KEPT_SILENT).await;
                if let Some(server) = server.upgrade() {
                    drop(lock(&server.silent).take());
                }
            });
        }
        if number > 0 && !self.source().is_of_slots {
            // The cause that broke this connection may have broken the other one, which is silent most of the time.
            self.of_slots.iter().for_each(Self::has_moved);
            self.engine().reconnected();
        }
    }

    /// Forgets a connection, unless a newer one has replaced it, and wakes the waiters that depend on it.
    pub(in crate::store) fn discard(self: &Arc<Self>, number: u64) {
        let lost = {
            let mut state = lock(&self.state);
            let lost = state.ended(number, Instant::now());
            if lost.is_some() {
                self.subscriptions.lost(number);
            }
            lost
        };
        if let Some(connection) = lost {
            self.has_lost(&connection);
        }
    }

    /// The order matters: a waiter that is told of it must find that connection gone.
    fn has_lost(self: &Arc<Self>, connection: &Connection) {
        let generation = connection.generation.number;
        let lived = connection.dialled.until(SystemClock.now());
        tracing::debug!(generation, ?lived, "lost the connection to the lock server");
        let server = &*connection.address;
        self.observe(&Event::Disconnected { server });
        if self.source().is_of_slots {
            // Its waiters ask when the channel is subscribed again, which may be at another master.
            self.engine().is_in_doubt();
        } else {
            self.engine().interrupted();
        }
        if self.is_in_use() {
            self.dial();
        }
    }

    /// Leaves the connection, or the attempt to make one and the pause before it, because the master is elsewhere.
    fn has_moved(self: &Arc<Self>) {
        self.leaves(ServerState::moved);
        self.changed.notify_waiters();
        if self.is_in_use() {
            self.dial();
        }
    }

    fn leaves(
        self: &Arc<Self>,
        how: impl FnOnce(&mut ServerState<Arc<Connection>>, Instant) -> Option<Arc<Connection>>,
    ) {
        let left = {
            let mut state = lock(&self.state);
            let left = how(&mut state, Instant::now());
            if let Some(left) = &left {
                self.subscriptions.lost(left.generation.number);
            }
            left
        };
        drop(lock(&self.silent).take());
        if let Some(left) = left {
            left.end();
            self.has_lost(&left);
        }
    }

    /// Whether a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        let state = lock(&self.state);
        state.current().is_some_and(|it| it.is_busy())
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
        let Some(connection) = self.current() else {
            return;
        };
        let (number, silence) = (connection.generation.number, &connection.silence);
        // The request may have been sent a little later than its limit began.
        let lasts = silence.lasts(limit) + limit / 8;
        let silent = lock(&self.state).silent(number, lasts, maximum(silence.round_trip()));
        match silent {
            Silent::Wait => {}
            Silent::End => {
                if self.source().followed.is_some() {
                    lock(&self.silent).get_or_insert(connection);
                }
                self.discard(number);
            }
            Silent::Ask => {
                let server = Arc::clone(self);
                self.engine()
                    .spawn(async move { server.ask_if_it_lives(&connection).await });
            }
        }
    }

    /// After garbage the connection can be out of step.
    async fn ask_if_it_lives(self: &Arc<Self>, connection: &Connection) {
        let (mut ping, word) = (cmd("PING"), fastrand::u64(..).to_string());
        ping.arg(&word);
        let limit = self.limit().saturating_mul(2);
        let answer = timeout(limit, connection.request(&ping)).await;
        let is_refused = matches!(answer, Ok(Err(_) | Ok(Value::ServerError(_))));
        if is_refused || answer == Ok(Ok(Value::BulkString(word.into_bytes()))) {
            lock(&self.state).heard(connection.generation.number);
        } else {
            self.discard(connection.generation.number);
        }
    }

    /// Whether the engine holds or waits for a lock, or has something to tell a new master.
    fn is_in_use(&self) -> bool {
        let (is_retired, has_moved) = {
            let state = lock(&self.state);
            (state.is_retired(), state.has_moved)
        };
        if is_retired {
            return false;
        }
        if self.source().is_of_slots {
            return lock(&self.subscriptions.channels).has_listeners();
        }
        let tells = |events: &dyn Events| has_moved && events.has_released_lately();
        self.engine()
            .events()
            .is_some_and(|events| events.is_in_use() || tells(&*events))
    }

    /// The number of the connection in use, if any. It only grows.
    pub(in crate::store) fn generation(&self) -> Option<u64> {
        let state = lock(&self.state);
        state.current().map(|it| it.generation.number)
    }

    pub(super) fn current(&self) -> Option<Arc<Connection>> {
        lock(&self.state).current().cloned()
    }

    /// Called for a waiter without messages. Subscribes again from time to time.
    pub(super) fn subscribe_again(self: &Arc<Self>) {
        if self.dialer.subscribes_again()
            && let Some(connection) = self.current()
        {
            let server = Arc::clone(self);
            self.engine().spawn(async move {
                let Some(channel) = server.dialer.channel() else {
                    return;
                };
                let subscribed = connection.requests().subscribe(channel).await;
                if subscribed.is_ok() && connection.generation.messages_count() {
                    server.dialer.is_subscribed();
                    // A waiter has to name the channel, and a holder may have missed that its lock was taken away.
                    server.engine().interrupted();
                    server.engine().reconnected();
                }
            });
        }
    }

    /// Handles a message.
    fn heard(self: &Arc<Self>, on: &Generation, channel: &str, message: &str) {
        if let Some(followed) = &self.source().followed
            && channel == followed.channel()
        {
            if on.replies_count() && followed.heard(message) {
                self.has_moved();
            }
            return;
        }
        let Some(events) = self.engine().events().filter(|_| on.messages_count()) else {
            return;
        };
        if self.is_ours(channel) {
            deliver(&*events, |lock| self.engine().serves(lock), message);
        } else {
            self.subscriptions.heard(&*events, channel, message);
        }
    }

    fn observe(&self, event: &Event<'_>) {
        let events = self.engine().events();
        if let Some(events) = events.filter(|_| !self.source().is_of_slots) {
            events.observed(event);
        }
    }

    fn is_ours(&self, channel: &str) -> bool {
        let (engine, namespace) = (self.engine().get(), self.source().namespace());
        engine.is_some_and(|it| wire::is_channel_of(channel, namespace, &it.client))
    }
}

impl Recipient for Server {
    fn dials(&self, dial: Dial) -> Arc<Generation> {
        let mut state = lock(&self.state);
        match dial {
            Dial::First | Dial::Next => state.dials(),
            #[cfg(feature = "quorum")]
            Dial::Beside => state.dials_beside(),
        }
    }

    fn pushed(self: Arc<Self>, on: &Generation, push: PushInfo) {
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                let mut words = push.data.iter().map(|part| text(Some(part)));
                if let (Some(Some(channel)), Some(Some(message))) = (words.next(), words.next()) {
                    self.heard(on, channel, message);
                }
            }
            PushKind::Disconnection => self.discard(on.number),
            PushKind::SUnsubscribe => {
                // If the client did not unsubscribe, another server has the slot.
                let channels = &self.subscriptions.channels;
                let is_sent = |channel| lock(channels).is_sent(on.number, channel);
                if text(push.data.first()).is_some_and(is_sent) {
                    self.discard(on.number);
                }
            }
            _ => {}
        }
    }

    fn ended(self: Arc<Self>, number: u64) {
        self.discard(number);
    }
}

/// A caller that waits for the connection.
struct Caller<'a>(&'a Server);

impl<'a> Caller<'a> {
    /// Also returns the number of attempts that have failed so far.
    fn new(server: &'a Server) -> (Self, u64) {
        let failures = lock(&server.state).caller_waits();
        // The pause may be shorter now.
        server.changed.notify_waiters();
        (Self(server), failures)
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).caller_goes();
    }
}

/// The running task. Its drop reports the end of the runtime to the callers.
struct Dialing {
    server: Arc<Server>,
    /// Whether it came to its end. Another task may run by the time this one is dropped.
    ended: bool,
}

impl Drop for Dialing {
    fn drop(&mut self) {
        if !self.ended {
            // The runtime has ended, or lacks what a connection needs.
            let why = if panicking() {
                (ErrorKind::Io, "the attempt to connect has panicked").into()
            } else {
                misconfigured(RUNTIME_ENDED.to_owned())
            };
            lock(&self.server.state).dropped(why);
            self.server.attempted.notify_waiters();
        }
    }
}

impl Dialing {
    async fn run(mut self) {
        let server = Arc::clone(&self.server);
        loop {
            let changed = server.changed.notified();
            let in_use = server.is_in_use();
            let next = lock(&server.state).next(in_use, Instant::now());
            match next {
                DialStep::End => break,
                DialStep::PauseUntil(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = changed => {}
                },
                DialStep::Dial => Self::attempt(&server).await,
            }
        }
        self.ended = true;
        // A caller that came just before the end of the task starts another one.
        server.attempted.notify_waiters();
    }

    async fn attempt(server: &Arc<Server>) {
        let recipient = Arc::downgrade(server) as Weak<dyn Recipient>;
        let dial = if lock(&server.state).is_first() {
            Dial::First
        } else {
            Dial::Next
        };
        let attempt = tokio::select! {
            biased;
            () = server.changed.until(|| !lock(&server.state).is_dialing()) => return,
            attempt = server.dialer.dial(recipient, dial) => attempt,
        };
        match attempt {
            Ok(connection) => {
                server.adopt(&connection);
                // From now on, callers find the connection.
                server.attempted.notify_waiters();
            }
            Err(error) => {
                let why = said(&error);
                tracing::debug!(
                    server = &*server.address(),
                    why,
                    "no connection to the lock server"
                );
                lock(&server.state).failed(error, Instant::now());
                server.attempted.notify_waiters();
            }
        }
    }
}

const NO_MASTER: &str = "the server is no longer the master";

fn no_master() -> RedisError {
    io::Error::other(NO_MASTER).into()
}

/// Nothing was sent: another master may be asked.
fn retired() -> RedisError {
    io::Error::new(io::ErrorKind::ConnectionRefused, NO_MASTER).into()
}
