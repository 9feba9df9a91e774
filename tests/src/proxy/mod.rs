//! A small network between a client and a server, which fails on command.
//!
//! It understands the protocol just enough to tell requests, replies and
//! pushes apart, so that a test can say *which* message is lost or late. The
//! order on each connection is always kept, as TCP keeps it: what waits makes
//! everything behind it wait, and after a loss nothing more gets through in
//! that direction.

mod pending;
mod relay;
mod request;
mod rules;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

pub use request::Request;
pub use rules::{DropMode, Dropped, Held};
use rules::{Rules, Verdict};

use crate::server::TestServer;
use crate::wait::in_time;

/// A proxy on a loopback port, in front of one server; its connections end
/// with it.
///
/// It runs on a thread of its own, so it works while the test blocks, and the
/// time of the test's runtime may be paused.
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What controls and connections have in common.
#[derive(Default)]
struct Shared {
    delay_nanos: AtomicU64,
    drop_pushes: AtomicBool,
    cut_to_server: AtomicBool,
    cut_to_client: AtomicBool,
    refuse: AtomicBool,
    target: Mutex<Option<SocketAddr>>,
    accepted: Count,
    refused: Count,
    live: AtomicU64,
    lost_requests: Count,
    lost_replies: Count,
    hold: watch::Sender<bool>,
    resets: watch::Sender<u64>,
    rules: Mutex<Rules>,
    seen: watch::Sender<Vec<Request>>,
}

#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_nanos.load(Ordering::SeqCst))
    }

    fn judge(&self, request: &Request) -> Verdict {
        // Under one lock, so that a rule made on seeing this request is for
        // later ones, and a request that was caught has been counted.
        let mut rules = lock(&self.rules);
        self.seen.send_modify(|seen| seen.push(request.clone()));
        rules.judge(request)
    }
}

impl Proxy {
    /// A proxy in front of `server`.
    ///
    /// # Panics
    ///
    /// When the system has no port or thread left.
    #[must_use]
    pub fn start(server: &TestServer) -> Self {
        Self::to(server.addr())
    }

    /// A proxy in front of whatever listens on `target`.
    ///
    /// # Panics
    ///
    /// When the system has no port or thread left.
    #[must_use]
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free loopback port");
        let addr = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        let shared = Arc::<Shared>::default();
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("proxy".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        error = accept(listener, theirs, target) => eprintln!("proxy: {error}"),
                        _ = stopped => {}
                    }
                });
            })
            .expect("a thread");
        Self {
            addr,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// `redis://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Delays every message, each way, from now on.
    pub fn delay(&self, delay: Duration) {
        let nanos = delay.as_nanos().try_into().unwrap_or(u64::MAX);
        self.shared.delay_nanos.store(nanos, Ordering::SeqCst);
    }

    /// Loses the reply to the next request for which `matches` holds. The
    /// server executes it.
    pub fn drop_next_reply_matching(
        &self,
        matches: impl FnMut(&Request) -> bool + Send + 'static,
        mode: DropMode,
    ) -> Dropped {
        let slot = lock(&self.shared.rules).add(Box::new(matches), Some(mode));
        Dropped { slot }
    }

    /// Whether messages of subscriptions (and other pushes) are lost. The
    /// confirmation of a subscription is not: it is the reply to a request.
    pub fn drop_pushes(&self, drop: bool) {
        self.shared.drop_pushes.store(drop, Ordering::SeqCst);
    }

    /// Keeps every request, from now on, until
    /// [`release_held`](Self::release_held). It is then delivered even if its
    /// client has gone in the meantime: a zombie.
    pub fn hold_requests(&self) {
        self.shared.hold.send_replace(true);
    }

    /// Ends [`hold_requests`](Self::hold_requests); what a [`Held`] has
    /// caught stays with it.
    pub fn release_held(&self) {
        self.shared.hold.send_replace(false);
    }

    /// Keeps the next request for which `matches` holds, and what follows it
    /// on its connection, until [`Held::deliver`], even if its client has
    /// gone by then. Other connections go on.
    pub fn hold_next_request_matching(
        &self,
        matches: impl FnMut(&Request) -> bool + Send + 'static,
    ) -> Held {
        let slot = lock(&self.shared.rules).add(Box::new(matches), None);
        let shared = Arc::clone(&self.shared);
        let disarm = Box::new(move |slot: &_| lock(&shared.rules).remove(slot));
        Held { slot, disarm }
    }

    /// Whether what clients send vanishes, silently, connections staying
    /// open. A connection that lost something sends nothing ever after; one
    /// that lost nothing works again after the cut.
    pub fn cut_to_server(&self, cut: bool) {
        self.shared.cut_to_server.store(cut, Ordering::SeqCst);
    }

    /// Whether what the server sends vanishes, silently, connections staying
    /// open. A connection that lost something hears nothing ever after.
    pub fn cut_to_client(&self, cut: bool) {
        self.shared.cut_to_client.store(cut, Ordering::SeqCst);
    }

    /// Resets (RST) every live connection to a client. The server sees an
    /// end after the requests taken so far; held ones can still be delivered.
    pub fn reset(&self) {
        self.shared.resets.send_modify(|count| *count += 1);
    }

    /// Leads new connections to another server; those that are open stay.
    pub fn retarget(&self, target: SocketAddr) {
        *lock(&self.shared.target) = Some(target);
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Connections that were accepted so far, without refused ones.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.accepted.get()
    }

    /// Connections that were closed at once so far, as [`refuse`](Self::refuse) asks for.
    #[must_use]
    pub fn refused_connections(&self) -> u64 {
        self.shared.refused.get()
    }

    /// Connections that one side at least still has open.
    #[must_use]
    pub fn live_connections(&self) -> u64 {
        self.shared.live.load(Ordering::SeqCst)
    }

    /// Requests, and ends of connections, that a cut has swallowed so far.
    #[must_use]
    pub fn lost_requests(&self) -> u64 {
        self.shared.lost_requests.get()
    }

    /// Replies, pushes, and ends of connections, that a cut has swallowed so
    /// far.
    #[must_use]
    pub fn lost_replies(&self) -> u64 {
        self.shared.lost_replies.get()
    }

    /// How many requests for which `matches` holds have come so far.
    pub fn count(&self, mut matches: impl FnMut(&Request) -> bool) -> usize {
        let seen = self.shared.seen.borrow();
        seen.iter().filter(|request| matches(request)).count()
    }

    /// Every request that has come so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.seen.borrow().clone()
    }

    /// The next request for which `matches` holds and which comes after this
    /// call, whenever its answer is awaited. It has reached the proxy, not
    /// yet the server.
    ///
    /// # Panics
    ///
    /// The future panics when none comes within [`LIMIT`](crate::LIMIT).
    pub fn on_request<P>(&self, matches: P) -> impl Future<Output = Request> + Send + use<P>
    where
        P: Fn(&Request) -> bool + Send + Sync,
    {
        let mut seen = self.shared.seen.subscribe();
        let start = seen.borrow().len();
        async move {
            let find = |seen: &Vec<Request>| seen[start..].iter().find(|it| matches(it)).cloned();
            let found = in_time("a request", seen.wait_for(|seen| find(seen).is_some())).await;
            // An error means that the proxy has gone.
            let seen = found.expect("the proxy outlives its events");
            find(&seen).expect("waited until it was there")
        }
    }

    /// Waits until `n` requests for which `matches` holds have come, counted
    /// from the proxy's start.
    ///
    /// # Panics
    ///
    /// When they do not within [`LIMIT`](crate::LIMIT).
    pub async fn on_count(&self, n: usize, matches: impl Fn(&Request) -> bool) {
        let mut seen = self.shared.seen.subscribe();
        let enough = |seen: &Vec<Request>| seen.iter().filter(|it| matches(it)).count() >= n;
        let what = format!("{n} requests");
        let _ = in_time(&what, seen.wait_for(enough)).await;
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, target: SocketAddr) -> io::Error {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    // Dropped with this future, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => return error,
        };
        while connections.try_join_next().is_some() {}
        if shared.refuse.load(Ordering::SeqCst) {
            shared.refused.add();
            continue;
        }
        shared.accepted.add();
        let id = shared.accepted.get();
        shared.live.fetch_add(1, Ordering::SeqCst);
        let reset = shared.resets.subscribe();
        let target = lock(&shared.target).unwrap_or(target);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            // Without a server the client just finds itself disconnected.
            let _ = relay::run(&shared, id, client, target, reset).await;
            shared.live.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A predicate of a test may have panicked; the data is whole all the same.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
