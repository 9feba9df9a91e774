//! The handle to an election, the proof of leadership, and the leaders that others observe.

use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt, unfold};

use crate::base::claim::{Claim, PLAIN};
use crate::base::config::check_ttl;
use crate::base::election::{LEADER, LeaderSnapshot};
use crate::base::error::LockError;
use crate::base::fencing::FencingToken;
use crate::base::key::LockKey;
use crate::base::kind::Kind;
use crate::engine::{Announcements, Engine, Limit};
#[cfg(feature = "blocking")]
use crate::face::blocking::Blocking;
#[cfg(feature = "blocking")]
use crate::face::blocking_guard::BlockingGuard;
#[cfg(feature = "blocking")]
use crate::face::guard::AnyGuard;
use crate::face::guard::LockGuard;
use crate::face::handle::LockHandle;
use crate::face::inspect::LockInfo;
use crate::face::options::{named, options};
use crate::face::scope::Scope;
use crate::face::verbs::operates;

/// The longest value of a leader, in bytes.
const MAX_VALUE: usize = 1024;

/// Interval between two reads of an observer if the server announces nothing.
const POLL: Duration = Duration::from_secs(1);

/// Pause after the end of a lease before it is read again, and before a campaign is repeated.
const A_MOMENT: Duration = Duration::from_millis(5);

/// Whether a candidate must not lead.
type Unfit = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// One leader at a time among the copies of a service, with a term that grows, and a value that others can read.
///
/// A candidate [campaigns](Self::campaign), and leads until it resigns, ends, or loses the lease. Others [observe](Self::observe) who
/// leads. When a candidate becomes the leader, a new term begins. Its number is larger than all earlier ones: it is a fencing token.
///
/// # Which type should I use?
///
/// | you want | use |
/// |---|---|
/// | one copy that does a job for as long as it lives | an election, with [`run`](Self::run) |
/// | to know where the leader is | [`observe`](Self::observe), [`leader`](Self::leader) |
/// | one piece of work at a time | a [`Lock`](crate::Lock) |
///
/// For other clients an election is an exclusive lock: a [`Lock`](crate::Lock) with the same key and the election exclude each other.
///
/// # What no election can promise
///
/// A leader that is paused past its lease does not know that it has been replaced until it runs again; then
/// [`is_held`](crate::LockView::is_held) is false. A request that it had sent before may arrive later. So the resources that the leader
/// works on must refuse a smaller [`term`](Leadership::term) than the largest that they have seen.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// let locks = lock_core::LockManager::connect("memory://").await?;
/// let scheduler = locks.election("scheduler");
/// let leadership = scheduler.campaign("10.0.0.7:8080").await?;
/// let mut leaders = scheduler.observe().await?;
/// while let Some(leader) = leaders.next().await {
///     // `None` stands for a time without a leader.
///     let Some(leader) = leader else { continue };
///     assert_eq!((leader.value(), leader.term()), ("10.0.0.7:8080", leadership.term()));
///     break;
/// }
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing: call `campaign`, `run` or `observe`"]
pub struct Election {
    handle: LockHandle,
    unfit: Option<Unfit>,
}

named!(Election);

impl Election {
    pub(crate) fn new(engine: Arc<Engine>, key: &str) -> Self {
        let checked = LockKey::checked(engine.shared.config.prefix(), key, Kind::Election);
        Self {
            handle: LockHandle::new(engine, key, checked),
            unfit: None,
        }
    }

    options! {
        ttl ": how long a crashed leader keeps others from leading",
        max_hold ": ends a term after this time, even if its lease is renewed",
        label
    }

    /// [`run`](Self::run) gives up leading while the check is true, and campaigns again afterwards: for a copy that cannot reach its
    /// database, or that is about to end. The check is called before each campaign, before the body, and after each third of the ttl while
    /// the candidate leads. A check that takes longer than a third of the ttl counts as true. After a check has ended a term, the candidate
    /// pauses for a third of the ttl. The check runs in the task that awaits `run`.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// # async fn database_answers() -> bool { true }
    /// let locks = lock_core::LockManager::connect("memory://").await?;
    /// let election = locks.election("scheduler").step_down_if(|| async { !database_answers().await });
    /// let outcome = election.run("copy 1", async |_leadership| 7).await?;
    /// assert_eq!(outcome, 7);
    /// # Ok(()) }
    /// ```
    pub fn step_down_if<F>(mut self, check: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        self.unfit = Some(Arc::new(move || Box::pin(check())));
        self
    }

    /// Waits until this candidate leads, in FIFO order with all others. Observers see `value`, for example an address: at most 1024
    /// bytes.
    ///
    /// The wait has no limit, and [`default_wait`](crate::LockManagerBuilder::default_wait) does not set one: drop the future to withdraw.
    /// A process may have several candidates; each grant is a term of its own.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`](crate::Lock::acquire), and [`InvalidConfig`](LockError::InvalidConfig) for a value that is too long.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: drop the future to withdraw the candidate. Its place in the queue, or a term that began at that moment, ends in the
    /// background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let election = lock_core::LockManager::connect("memory://").await?.election("scheduler");
    /// let first = election.campaign("copy 1").await?;
    /// let term = first.term();
    /// first.resign().await?;
    /// assert!(election.campaign("copy 2").await?.term() > term);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn campaign(
        &self,
        value: &str,
    ) -> impl Future<Output = Result<Leadership, LockError>> + use<> {
        self.candidate(value.to_owned(), Limit::Forever, Location::caller())
    }

    /// As [`campaign`](Self::campaign), waiting at most this long. Zero makes one try, and does not queue.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), and as [`Lock::acquire_within`](crate::Lock::acquire_within).
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe, as without a limit.
    #[track_caller]
    pub fn campaign_within(
        &self,
        value: &str,
        limit: Duration,
    ) -> impl Future<Output = Result<Leadership, LockError>> + use<> {
        self.candidate(value.to_owned(), Limit::of(Some(limit)), Location::caller())
    }

    operates! {
        /// The state of the election as a lock, with its candidates as waiters. [`leader`](Self::leader) says who leads.
        inspect,
        /// Ends the term of the leader. The next candidate leads at once.
        force_release
    }

    fn candidate(
        &self,
        value: String,
        limit: Limit,
        at: &'static Location<'static>,
    ) -> impl Future<Output = Result<Leadership, LockError>> + use<> {
        let checked = if value.len() > MAX_VALUE {
            Err(LockError::config(
                "the value of a candidate is longer than 1024 bytes: name a place where the rest can be read",
            ))
        } else {
            Ok(())
        };
        let handle = self.handle.claiming(Claim::named(value));
        let taking = handle.take(limit, None, at);
        async {
            checked?;
            taking.await.map(Leadership)
        }
    }

    /// Campaigns, and runs `body` while this candidate leads. If the leadership is lost, or a [check](Self::step_down_if) ends it, the
    /// body is dropped and the candidate campaigns again, until a body returns. `run` waits through outages of the server.
    ///
    /// The body runs in the scope of its lock, like the body of [`Lock::with`](crate::Lock::with). In a spawned task, write it as
    /// `async move |leadership| ..`.
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign), but never [`Unavailable`](LockError::Unavailable): `run` tries again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body, and resigns in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let election = lock_core::LockManager::connect("memory://").await?.election("scheduler");
    /// let mut terms = Vec::new();
    /// let jobs = election
    ///     .run("copy 1", async |leadership| {
    ///         terms.push(leadership.term());
    ///         // .. the jobs of the leader; each write names the term ..
    ///         42
    ///     })
    ///     .await?;
    /// assert_eq!((jobs, terms.len()), (42, 1));
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn run<T>(
        &self,
        value: &str,
        mut body: impl AsyncFnMut(&Leadership) -> T,
    ) -> impl Future<Output = Result<T, LockError>> {
        let (value, at) = (value.to_owned(), Location::caller());
        async move {
            let mut pause = Duration::ZERO;
            loop {
                self.until_fit(pause, at).await?;
                pause = Duration::ZERO;
                let leadership = match self.candidate(value.clone(), Limit::Forever, at).await {
                    Err(LockError::Unavailable { .. }) => {
                        self.pause(A_MOMENT).await;
                        continue;
                    }
                    campaigned => campaigned?,
                };
                let leads = leadership.run_while_held(async {
                    // Ask again: the wait may have been long.
                    if self.is_unfit().await {
                        return None;
                    }
                    tokio::select! {
                        () = self.until_unfit() => None,
                        value = body(&leadership) => Some(value),
                    }
                });
                let outcome = Scope::run([leadership.view()].into_iter(), leads).await;
                leadership.release_quietly().await;
                match outcome {
                    Ok(Some(value)) => return Ok(value),
                    // A check that alternates must not begin terms without a pause.
                    Ok(None) => pause = self.third(),
                    Err(_) => {}
                }
            }
        }
    }

    /// Waits for this long, and until the candidate may lead. Fails if a campaign would fail at once.
    async fn until_fit(
        &self,
        pause: Duration,
        at: &'static Location<'static>,
    ) -> Result<(), LockError> {
        let engine = &self.handle.engine;
        self.handle.check(None, Limit::Forever, at)?;
        let fit = async {
            if !pause.is_zero() {
                self.pause(pause).await;
            }
            while self.is_unfit().await {
                self.pause(self.third()).await;
            }
        };
        tokio::select! {
            error = engine.closed() => Err(error),
            () = fit => Ok(()),
        }
    }

    /// Waits until the candidate must not lead any more.
    async fn until_unfit(&self) {
        if self.unfit.is_none() {
            return std::future::pending().await;
        }
        loop {
            self.pause(self.third()).await;
            if self.is_unfit().await {
                return;
            }
        }
    }

    async fn is_unfit(&self) -> bool {
        let Some(unfit) = &self.unfit else {
            return false;
        };
        tokio::select! {
            biased;
            unfit = unfit() => unfit,
            () = self.pause(self.third()) => true,
        }
    }

    fn third(&self) -> Duration {
        self.ttl_or_default() / 3
    }

    fn ttl_or_default(&self) -> Duration {
        let default = self.handle.engine.shared.config.default_ttl;
        self.handle.ttl.unwrap_or(default)
    }

    async fn pause(&self, time: Duration) {
        self.handle.engine.shared.timers.sleep(time).await;
    }

    /// The leader at this moment; `None` if there is none, or if its term began just now.
    ///
    /// # Errors
    ///
    /// [`Unavailable`](LockError::Unavailable) if the server does not answer; [`NotALock`](LockError::NotALock);
    /// [`InvalidKey`](LockError::InvalidKey); [`InvalidConfig`](LockError::InvalidConfig) if the server refuses.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it changes nothing.
    pub async fn leader(&self) -> Result<Option<Leader>, LockError> {
        let (engine, key) = (&self.handle.engine, self.handle.key()?);
        Ok(Leader::of(engine.leader(key).await?).0)
    }

    /// The leaders, one after the other: first the leader at this call, then each change. `None` stands for a time without a known leader.
    ///
    /// The server announces changes. An observer also reads when the lease that it knows of would end, to find that a leader has
    /// crashed, and at the latest after its own [`ttl`](Self::ttl). If the server does not announce (a connection of the user, a quorum,
    /// a user without the right to the channel), it reads once a second. A leader with a smaller term than one that was seen is shown as
    /// `None`. While the server is away the last leader stays.
    ///
    /// # Errors
    ///
    /// As [`leader`](Self::leader), and [`InvalidConfig`](LockError::InvalidConfig) for a ttl out of range. An observer waits through
    /// later errors of the server, and while the key is something else.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
    /// let election = lock_core::LockManager::connect("memory://").await?.election("scheduler");
    /// let mut leaders = election.observe().await?;
    /// assert_eq!(leaders.next().await, Some(None));
    /// let _leadership = election.campaign("copy 1").await?;
    /// let leader = leaders.next().await.flatten().expect("announced");
    /// assert_eq!(leader.value(), "copy 1");
    /// # Ok(()) }
    /// ```
    pub async fn observe(&self) -> Result<Leaders, LockError> {
        let engine = Arc::clone(&self.handle.engine);
        let key = Arc::clone(self.handle.key()?);
        check_ttl(self.ttl_or_default())?;
        let announcements = Announcements::new(&engine.shared, &key, LEADER);
        let mut observer = LeaderReader {
            ttl: self.ttl_or_default(),
            _engine: engine,
            key,
            announcements,
            highest: None,
            shown: None,
            read_in: Duration::ZERO,
            warned: false,
        };
        let first = observer.read(Some(Duration::ZERO)).await?;
        observer.shown.clone_from(&first);
        let later = unfold(observer, async |mut observer| {
            let leader = observer.next().await?;
            Some((leader, observer))
        });
        let first = futures_util::stream::once(std::future::ready(first));
        Ok(Leaders(first.chain(later).fuse().boxed()))
    }
}

/// Proof of leadership: a [`LockGuard`], with all its methods. The term ends when it is dropped or lost.
#[must_use = "the leadership ends as soon as it is dropped: bind it, `let _leadership = ..` (not `let _ = ..`)"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct Leadership(LockGuard);

impl Leadership {
    /// The number of this term, larger than that of every earlier one: the [fencing token](crate::LockView::fencing_token).
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.0.fencing_token()
    }

    /// Ends the term. The next candidate, in any process, leads when this returns. As [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the release continues in the background.
    #[doc(alias = "release")]
    #[doc(alias = "step_down")]
    pub async fn resign(self) -> Result<(), LockError> {
        self.0.release().await
    }
}

impl Deref for Leadership {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.0
    }
}

/// A leader, as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    value: String,
    term: FencingToken,
}

impl Leader {
    /// The value with which it has [campaigned](Election::campaign).
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The number of its term: see [`Leadership::term`].
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.term
    }

    /// The leader, and the rest of its lease as the server knows it.
    fn of(seen: LeaderSnapshot) -> (Option<Self>, Duration) {
        match seen {
            LeaderSnapshot::Free => (None, Duration::MAX),
            LeaderSnapshot::Unknown { remaining } => (None, remaining),
            LeaderSnapshot::Leads {
                term,
                value,
                remaining,
            } => {
                let term = FencingToken::new(term);
                (Some(Self { value, term }), remaining)
            }
        }
    }
}

/// The leaders of an election, one after the other. Made by [`Election::observe`]. A [`Stream`]. It ends when its manager is shut down,
/// or if the server refuses what it allowed before.
#[must_use = "a stream does nothing before `next`"]
pub struct Leaders(BoxStream<'static, Option<Leader>>);

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders").finish_non_exhaustive()
    }
}

impl Leaders {
    /// The next change. The first call returns the leader when [`observe`](Election::observe) returned. The inner `None` stands for a
    /// time without a known leader, the outer `None` for the end of the stream.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: no change is lost.
    pub async fn next(&mut self) -> Option<Option<Leader>> {
        self.0.next().await
    }
}

impl Stream for Leaders {
    type Item = Option<Leader>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

/// Reads the leader whenever it may have changed.
struct LeaderReader {
    /// Keeps the manager running.
    _engine: Arc<Engine>,
    key: Arc<LockKey>,
    announcements: Announcements,
    /// The longest time without a read.
    ttl: Duration,
    /// The largest term that was seen.
    highest: Option<FencingToken>,
    shown: Option<Leader>,
    /// The time until the lease that was read would end.
    read_in: Duration,
    /// Whether the log has reported that the key is something else.
    warned: bool,
}

impl LeaderReader {
    /// The next change. `None` at the end.
    async fn next(&mut self) -> Option<Option<Leader>> {
        loop {
            self.announcements.news(self.read_in, POLL).await;
            match self.read(None).await {
                Ok(leader) if self.shown != leader => {
                    self.shown.clone_from(&leader);
                    return Some(leader);
                }
                Ok(_) => {}
                Err(LockError::ShutDown) => return None,
                Err(error) => {
                    tracing::warn!(key = self.key.name(), %error, "the election is not observed any more");
                    return None;
                }
            }
        }
    }

    /// Reads the leader now.
    async fn read(&mut self, patience: Option<Duration>) -> Result<Option<Leader>, LockError> {
        let reading = self.announcements.leader(patience);
        let refused = match reading.await? {
            Ok(leader) => {
                self.warned = false;
                Ok(Leader::of(leader))
            }
            Err(refusal) => Err(PLAIN.refused(&self.key, refusal)),
        };
        let (leader, remaining) = match refused {
            // After the first read the key may be something else by a mistake that is mended soon.
            Err(error) if patience.is_none() => {
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!(key = self.key.name(), %error, "the election has no leader meanwhile");
                }
                (None, POLL)
            }
            read => read?,
        };
        self.read_in = remaining.saturating_add(A_MOMENT).min(self.ttl);
        let leader = leader.filter(|leader| Some(leader.term) >= self.highest);
        self.highest = self.highest.max(leader.as_ref().map(Leader::term));
        Ok(leader)
    }
}

#[cfg(feature = "blocking")]
crate::face::blocking_face::blocking_face! {
    Election:
    options { ttl, max_hold, label }
    calls {
        fn campaign(value: &str) -> BlockingGuard<Leadership>, held;
        fn campaign_within(value: &str, limit: Duration) -> BlockingGuard<Leadership>, held;
        fn leader() -> Option<Leader>;
        fn observe() -> Blocking<Leaders>, another;
        fn inspect() -> LockInfo;
        fn force_release() -> bool;
    }
}

/// The leaders of an election: each step blocks until there is another one. `None` of an item is a time without a leader.
#[cfg(feature = "blocking")]
impl Iterator for Blocking<Leaders> {
    type Item = Option<Leader>;

    fn next(&mut self) -> Option<Option<Leader>> {
        let Self { face, thread } = self;
        thread.block_on(face.next())
    }
}

#[cfg(feature = "blocking")]
impl AnyGuard for Leadership {
    fn parts(&self) -> &[LockGuard] {
        std::slice::from_ref(&self.0)
    }
}

#[cfg(feature = "blocking")]
crate::face::blocking_guard::blocking_guard! { Leadership, resign }
