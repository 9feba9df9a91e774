//! The sentinels of a master: one task for each, which asks it for the master and hears of each failover.
//!
//! The address is that of `GET-MASTER-ADDR-BY-NAME`. Its epoch is that of `SENTINEL MASTER`, whose address lags behind for a
//! second. Both go out in one buffer, so that they belong together.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join;
use redis::{
    AsyncConnectionConfig, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult,
    Value, from_redis_value, pipe,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::agreement::{Agreement, agreement};
use super::error::{is_misconfigured, misconfigured, said};
use super::link::Link;
use super::named::Named;
use super::socket::{self, Socket};
use super::target::Target;
use crate::base::sync::lock;

/// Interval of the questions to a sentinel that tells us of failovers, and to one that does not.
const ASK_AGAIN: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(1)];

/// Maximum wait for a sentinel, once another one has answered or a master is known.
const PATIENCE: Duration = Duration::from_millis(100);

/// Pause after the first failure. Each further one doubles it.
const MINIMUM_PAUSE: Duration = Duration::from_millis(50);
const MAXIMUM_PAUSE: Duration = Duration::from_secs(10);

/// Maximum number of sentinels that are watched. A new one takes the place of one that others have named and that does not answer.
const MAXIMUM: usize = 16;

/// Answers in a row with an older epoch, from which on a sentinel does not only lag behind the others.
const LOST: u32 = 3;

/// All sentinels of a master.
pub(super) struct Sentinels {
    /// The name of the master.
    pub(super) name: Box<str>,
    /// What is shown in place of an address of the master.
    pub(super) shown: Arc<str>,
    board: Mutex<Board>,
    limit: Duration,
    /// Notified when all sentinels are to be asked.
    ask: Arc<Notify>,
    /// Notified when one has answered or failed.
    heard: Notify,
}

#[derive(Default)]
struct Board {
    all: Vec<Observed>,
    /// Number of answers so far.
    answers: u64,
}

struct Observed {
    target: Arc<Target>,
    task: Option<AbortHandle>,
    /// Named by another sentinel, and not by the URL.
    is_discovered: bool,
    /// The master that it named, or why it does not answer. `None` before the first answer.
    answer: Option<RedisResult<Named>>,
    /// Number of answers in a row with an older epoch.
    older: u32,
}

impl Sentinels {
    pub(super) fn new(name: &str, all: Vec<Target>, limit: Duration) -> Arc<Self> {
        let at: Vec<&str> = all.iter().map(|target| &*target.address).collect();
        let shown = format!("{name} (sentinels {})", at.join(", "));
        let mut board = Board::default();
        for target in all {
            // One that is named twice is one.
            if board.find(&target).is_none() {
                board.all.push(Observed::new(target, false));
            }
        }
        Arc::new(Self {
            name: name.into(),
            shown: shown.into(),
            board: Mutex::new(board),
            // So that a silent sentinel is known before the attempt that waits for it ends.
            limit: limit / 2,
            ask: Arc::default(),
            heard: Notify::new(),
        })
    }

    /// Begins to watch all sentinels that are not watched yet.
    pub(super) fn watch(&self, link: &Arc<Link>) {
        let mut board = lock(&self.board);
        for observed in &mut board.all {
            observed.task.get_or_insert_with(|| {
                let watch = Watch {
                    link: Arc::downgrade(link),
                    target: Arc::clone(&observed.target),
                    ask: Arc::clone(&self.ask),
                    limit: self.limit,
                };
                link.spawn(watch.run()).abort_handle()
            });
        }
    }

    /// Asks all sentinels. Where no master is known, waits until all have answered or failed, but not much longer than for the first
    /// answer: another one may know better. Else waits for the first answer, and not for long. An error if all have failed.
    pub(super) async fn ask(&self, is_known: bool) -> RedisResult<()> {
        let before = lock(&self.board).answers;
        self.ask.notify_waiters();
        if is_known {
            let first = self.until(|board| board.answers > before);
            return timeout(PATIENCE, first).await.unwrap_or(Ok(()));
        }
        self.until(|board| board.answers > before).await?;
        let all = self.until(|board| board.all.iter().all(|one| one.answer.is_some()));
        timeout(PATIENCE, all).await.unwrap_or(Ok(()))
    }

    async fn until(&self, is_heard: impl Fn(&Board) -> bool) -> RedisResult<()> {
        loop {
            let mut heard = pin!(self.heard.notified());
            heard.as_mut().enable();
            {
                let board = lock(&self.board);
                if is_heard(&board) {
                    return Ok(());
                }
                if let Some(error) = board.failed() {
                    return Err(error);
                }
            }
            heard.await;
        }
    }

    /// A sentinel has answered. It `lags` if it names a master that was replaced.
    fn answered(&self, which: &Target, named: &Named, lags: bool) {
        let mut board = lock(&self.board);
        board.answers += 1;
        if let Some(observed) = board.find(which) {
            let before = observed.answer.replace(Ok(named.clone()));
            observed.older = if lags { observed.older + 1 } else { 0 };
            let (sentinel, master) = (&*which.address, named.address());
            if matches!(before, Some(Err(_))) {
                tracing::info!(sentinel, "the sentinel answers again");
            }
            if observed.older == LOST {
                tracing::warn!(
                    sentinel,
                    master,
                    "the sentinel names a master that the others have replaced: the client ignores it"
                );
            }
        }
    }

    /// What the sentinels that answer say together.
    pub(super) fn agreement(&self) -> Agreement {
        let board = lock(&self.board);
        agreement(board.votes())
    }

    /// Whether most of all sentinels, also of those that do not answer, name this master.
    pub(super) fn most_name(&self, named: &Named) -> bool {
        let board = lock(&self.board);
        board.votes().filter(|(_, vote)| *vote == named).count() * 2 > board.all.len()
    }

    /// Whether all sentinels that answer name one master in one epoch, among them most of those in the URL.
    pub(super) fn are_at_one(&self) -> bool {
        let board = lock(&self.board);
        let of_url = board.all.iter().filter(|one| !one.is_discovered);
        let answer = of_url
            .clone()
            .filter(|one| matches!(one.answer, Some(Ok(_))));
        let mut votes = board.votes().map(|(_, named)| named);
        let first = votes.next();
        votes.all(|named| Some(named) == first) && answer.count() * 2 > of_url.count()
    }

    /// A sentinel has failed.
    fn failed(&self, which: &Target, error: RedisError, master: &str) {
        let mut board = lock(&self.board);
        let (sentinel, why) = (&*which.address, said(&error));
        let before = board.find(which).map(|one| one.answer.replace(Err(error)));
        if let Some(None | Some(Ok(_))) = before {
            tracing::warn!(
                sentinel,
                why,
                "a sentinel does not answer: the others are asked"
            );
            if board.failed().is_some() {
                tracing::warn!(
                    master,
                    "no sentinel answers: the client stays with the last master, and learns of a failover only from that server"
                );
            }
        }
        drop(board);
        self.heard.notify_waiters();
    }

    /// The other sentinels that one knows. True if there is one that is not watched.
    fn discovered(&self, by: &Target, others: &[(String, u16)]) -> bool {
        let mut board = lock(&self.board);
        let mut is_new = false;
        for (host, port) in others {
            if let Ok(target) = by.at(host, *port)
                && board.find(&target).is_none()
                && board.has_room()
            {
                board.all.push(Observed::new(target, true));
                is_new = true;
            }
        }
        is_new
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Board {
    fn find(&mut self, target: &Target) -> Option<&mut Observed> {
        let mut all = self.all.iter_mut();
        all.find(|observed| observed.target.address == target.address)
    }

    /// Who names which master, of those that answer.
    fn votes(&self) -> impl Iterator<Item = (&str, &Named)> {
        self.all
            .iter()
            .filter_map(|observed| match &observed.answer {
                Some(Ok(named)) => Some((&*observed.target.address, named)),
                _ => None,
            })
    }

    /// Whether one more can be watched, if need be in place of one that fails.
    fn has_room(&mut self) -> bool {
        let fails = |one: &Observed| one.is_discovered && matches!(one.answer, Some(Err(_)));
        if self.all.len() >= MAXIMUM
            && let Some(at) = self.all.iter().position(fails)
        {
            self.all.remove(at);
        }
        self.all.len() < MAXIMUM
    }

    /// The error if all have failed: if possible, one that trying again does not help.
    fn failed(&self) -> Option<RedisError> {
        let mut failures = Vec::new();
        for observed in &self.all {
            match &observed.answer {
                Some(Err(error)) => failures.push((&observed.target.address, error)),
                None | Some(Ok(_)) => return None,
            }
        }
        let mut errors = failures.iter().map(|(_, error)| *error);
        if let Some(error) = errors.find(|error| is_misconfigured(error)) {
            return Some(error.clone());
        }
        let each = failures.iter();
        let each: Vec<_> = each
            .map(|(at, error)| format!("{at}: {}", said(error)))
            .collect();
        let each = each.join("; ");
        Some(io::Error::other(format!("no sentinel answers: {each}")).into())
    }
}

impl Observed {
    fn new(target: Target, is_discovered: bool) -> Self {
        Self {
            target: Arc::new(target),
            task: None,
            is_discovered,
            answer: None,
            older: 0,
        }
    }
}

/// The task that watches one sentinel.
struct Watch {
    link: Weak<Link>,
    target: Arc<Target>,
    ask: Arc<Notify>,
    limit: Duration,
}

impl Watch {
    async fn run(self) {
        let mut pause = MINIMUM_PAUSE;
        loop {
            let begun = Instant::now();
            let Err(error) = self.follow().await;
            if begun.elapsed() > MAXIMUM_PAUSE {
                pause = MINIMUM_PAUSE;
            }
            let told =
                self.tell(|link, sentinels| sentinels.failed(&self.target, error, &link.address()));
            if told.is_none() {
                return;
            }
            // An attempt to reach the master may be right about the sentinel as well.
            let spread = 0.5 + fastrand::f64() / 2.0;
            let _ = timeout(pause.mul_f64(spread), self.ask.notified()).await;
            pause = (pause * 2).min(MAXIMUM_PAUSE);
        }
    }

    fn tell<T>(&self, what: impl FnOnce(&Arc<Link>, &Sentinels) -> T) -> Option<T> {
        let link = self.link.upgrade()?;
        let sentinels = link.sentinels()?;
        Some(what(&link, &sentinels))
    }

    /// Asks the sentinel at once, at each message, and from time to time.
    async fn follow(&self) -> RedisResult<Infallible> {
        let changed = Arc::new(Notify::new());
        let (mut socket, mut pushes) = self.connect(&changed).await?;
        let mut requests = socket.requests.clone();
        let mut subscribe = Some(requests.subscribe("+switch-master")).filter(|_| pushes);
        loop {
            // The first question goes out with the subscription.
            let question = self.question(&mut socket);
            let asked = match subscribe.take() {
                None => self.within(question).await,
                Some(subscribe) => {
                    let (asked, subscribed) =
                        join(self.within(question), self.within(subscribe)).await;
                    pushes = subscribed.is_ok();
                    asked
                }
            };
            let (named, others) = asked?;
            self.tell(|link, sentinels| {
                let lags = link.source.is_replaced(&named);
                sentinels.answered(&self.target, &named, lags);
                link.weigh(sentinels);
                // After that, so that an attempt to connect finds the agreement heeded.
                sentinels.heard.notify_waiters();
                if sentinels.discovered(&self.target, &others) {
                    sentinels.watch(link);
                }
            });
            tokio::select! {
                () = changed.notified() => {}
                () = self.ask.notified() => {}
                () = sleep(ASK_AGAIN[usize::from(!pushes)]) => {}
            }
        }
    }

    /// Also returns whether the sentinel can tell us of failovers.
    async fn connect(&self, changed: &Arc<Notify>) -> RedisResult<(Socket, bool)> {
        let settings = self.target.info.redis_settings();
        let ended = || {
            let changed = Arc::clone(changed);
            move || changed.notify_one()
        };
        let told = Arc::clone(changed);
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            if matches!(push.kind, PushKind::Message) {
                told.notify_one();
            }
            Ok::<(), RedisError>(())
        });
        let resp3 = settings.clone().set_protocol(ProtocolVersion::RESP3);
        let connecting = socket::connect(&self.target, &resp3, config, true, ended());
        match self.within(connecting).await {
            Ok(socket) => Ok((socket, true)),
            Err(error) if error.kind() == ErrorKind::RESP3NotSupported => {
                let config = AsyncConnectionConfig::new();
                let connecting = socket::connect(&self.target, settings, config, true, ended());
                Ok((self.within(connecting).await?, false))
            }
            Err(error) => Err(error),
        }
    }

    /// The master that the sentinel names, and the other sentinels that it knows.
    async fn question(&self, socket: &mut Socket) -> RedisResult<(Named, Vec<(String, u16)>)> {
        let name = self.tell(|_, sentinels| sentinels.name.clone());
        let name = name.unwrap_or_default();
        let mut question = pipe();
        for what in ["GET-MASTER-ADDR-BY-NAME", "MASTER", "SENTINELS"] {
            question.cmd("SENTINEL").arg(what).arg(&*name);
        }
        let answers = socket
            .requests
            .send_packed_commands(&question, 0, 3)
            .await?;
        let [address, master, others] = <[Value; 3]>::try_from(answers).map_err(|_| {
            RedisError::from(io::Error::other("the sentinel's answer is incomplete"))
        })?;
        if address == Value::Nil {
            return Err(self.is_unknown(&name, socket).await);
        }
        let (host, port): (String, u16) = from_redis_value(address.extract_error()?)?;
        if host.is_empty() || port == 0 {
            return Err(io::Error::other("it names no address of the master").into());
        }
        let master: HashMap<String, String> = from_redis_value(master.extract_error()?)?;
        let epoch = master
            .get("config-epoch")
            .and_then(|epoch| epoch.parse().ok());
        let others: Vec<HashMap<String, String>> = others
            .extract_error()
            .and_then(|others| Ok(from_redis_value(others)?))
            .unwrap_or_default();
        let others = others
            .iter()
            .filter_map(|other| Some((other.get("ip")?.clone(), other.get("port")?.parse().ok()?)));
        let named = Named {
            name,
            epoch: epoch.unwrap_or_default(),
            host: host.into(),
            port,
        };
        Ok((named, others.collect()))
    }

    async fn is_unknown(&self, name: &str, socket: &mut Socket) -> RedisError {
        let mut masters = redis::cmd("SENTINEL");
        let masters = socket.request(masters.arg("MASTERS")).await;
        let masters: Vec<HashMap<String, String>> = masters
            .and_then(|masters| Ok(from_redis_value(masters.extract_error()?)?))
            .unwrap_or_default();
        let names = masters.iter().filter_map(|master| master.get("name"));
        let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
        let knows = match &names[..] {
            [] => "no master".to_owned(),
            names => names.join(", "),
        };
        misconfigured(format!(
            "the sentinel at {} knows no master of the name `{name}`: it knows {knows}, so write that name behind the sentinels in the URL",
            self.target.address
        ))
    }

    async fn within<T>(&self, what: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        match timeout(self.limit, what).await {
            Ok(done) => done.map_err(|error| self.explained(error)),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        }
    }

    /// A sentence for what trying again does not help.
    fn explained(&self, error: RedisError) -> RedisError {
        let at = &self.target.address;
        let said = said(&error);
        if error.kind() == ErrorKind::RESP3NotSupported {
            return error;
        }
        if said.starts_with("NOAUTH") {
            return misconfigured(format!(
                "the sentinel at {at} asks for a password: give it with `.sentinel_password(..)`"
            ));
        }
        if error.kind() == ErrorKind::AuthenticationFailed || said.starts_with("WRONGPASS") {
            return misconfigured(format!(
                "the sentinel at {at} refused the password: check `.sentinel_password(..)`, and `.sentinel_user(..)` where it has users"
            ));
        }
        let of_tls = error.detail().filter(|_| is_misconfigured(&error));
        if let Some(why) = of_tls.filter(|why| why.contains("TLS")) {
            return misconfigured(format!(
                "{why} (this server is a sentinel: set its TLS with `.sentinel_tls(..)`)"
            ));
        }
        if said.contains("unknown command") {
            return misconfigured(format!(
                "the server at {at} is no sentinel: name the sentinels with their port, which is mostly 26379"
            ));
        }
        error
    }
}
