//! The sentinels of a master: the last answer of each, and their common answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{RedisError, RedisResult};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::named::{Agreement, Named, agreement};
use crate::base::signal::Signal;
use crate::base::sync::lock;
use crate::store::redis::connection::target::Target;
use crate::store::redis::error::{advised, is_misconfigured, said};

/// Maximum wait for a sentinel, once the others have decided or a master is known.
const OTHERS_WAIT: Duration = Duration::from_millis(100);

/// Maximum number of watched sentinels. A new sentinel takes the place of one that others have named and that does not answer.
const MAXIMUM: usize = 16;

/// Answers in a row with an older epoch after which a sentinel does not count as lagging behind the others any more.
const LOST: u32 = 3;

/// All sentinels of a master.
pub(in crate::store::redis) struct Sentinels {
    /// The name of the master.
    pub(in crate::store::redis) name: Box<str>,
    /// The text that is shown in place of an address of the master.
    pub(in crate::store::redis) shown: Arc<str>,
    board: Mutex<Board>,
    pub(in crate::store::redis) limit: Duration,
    /// Notified when all sentinels are to be asked.
    pub(in crate::store::redis) ask: Arc<Signal>,
    /// Notified when a sentinel has answered or failed.
    pub(in crate::store::redis) heard: Signal,
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
    /// Whether another sentinel named it, not the URL.
    is_discovered: bool,
    /// The master that it named, or why it does not answer. `None` before the first answer.
    answer: Option<RedisResult<Named>>,
    /// Whether an attempt to connect that has begun since waits for another answer.
    is_old: bool,
    /// Number of answers in a row with an older epoch.
    older: u32,
}

impl Sentinels {
    pub(in crate::store::redis) fn new(name: &str, all: Vec<Target>, limit: Duration) -> Arc<Self> {
        let at: Vec<&str> = all.iter().map(|target| &*target.address).collect();
        let shown = format!("{name} (sentinels {})", at.join(", "));
        let mut board = Board::default();
        for target in all {
            // A sentinel that is named twice counts once.
            if board.find(&target).is_none() {
                board.all.push(Observed::new(target, false));
            }
        }
        Arc::new(Self {
            name: name.into(),
            shown: shown.into(),
            board: Mutex::new(board),
            // Half of it, so that a silent sentinel is known before the attempt that waits for it ends.
            limit: limit / 2,
            ask: Arc::default(),
            heard: Signal::default(),
        })
    }

    /// Begins a task for each sentinel that has none.
    pub(in crate::store::redis) fn begin_tasks(&self, begin: impl Fn(&Arc<Target>) -> AbortHandle) {
        for observed in &mut lock(&self.board).all {
            let target = &observed.target;
            observed.task.get_or_insert_with(|| begin(target));
        }
    }

    /// Asks all sentinels. If a master is known, waits a short time for the first answer. Otherwise waits until those of the URL have
    /// decided, so that no few of them are believed where the others answer late, and a short time more: a new epoch is known to one
    /// sentinel first. An error if all have failed since.
    pub(in crate::store::redis) async fn ask(&self, is_known: bool) -> RedisResult<()> {
        let before = {
            let mut board = lock(&self.board);
            board.all.iter_mut().for_each(|one| one.is_old |= !is_known);
            board.answers
        };
        self.ask.notify_waiters();
        if is_known {
            let first = self.until(|board| board.answers > before);
            return timeout(OTHERS_WAIT, first).await.unwrap_or(Ok(()));
        }
        self.until(|board| board.answers > before && board.is_decided())
            .await?;
        let all = self.until(|board| board.all.iter().all(|one| one.answer.is_some()));
        timeout(OTHERS_WAIT, all).await.unwrap_or(Ok(()))
    }

    async fn until(&self, is_heard: impl Fn(&Board) -> bool) -> RedisResult<()> {
        let look = || {
            let board = lock(&self.board);
            let failed = || board.failed().map(Err);
            is_heard(&board).then_some(Ok(())).or_else(failed)
        };
        self.heard.find(look).await
    }

    /// Notes the answer of a sentinel. It `lags` if it names a master that was replaced.
    pub(in crate::store::redis) fn answered(&self, which: &Target, named: &Named, lags: bool) {
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

    /// The common answer of the sentinels that answer.
    pub(in crate::store::redis) fn agreement(&self) -> Agreement {
        let board = lock(&self.board);
        agreement(board.votes())
    }

    /// Whether a majority of all sentinels, also of those that do not answer, names this master.
    pub(in crate::store::redis) fn most_name(&self, named: &Named) -> bool {
        let board = lock(&self.board);
        board.votes().filter(|(_, vote)| *vote == named).count() * 2 > board.all.len()
    }

    /// Whether all sentinels that answer name one master in one epoch, among them a majority of those in the URL.
    pub(in crate::store::redis) fn are_at_one(&self) -> bool {
        let board = lock(&self.board);
        let of_url = board.all.iter().filter(|one| !one.is_discovered);
        let answer = of_url
            .clone()
            .filter(|one| matches!(one.answer, Some(Ok(_))));
        let mut votes = board.votes().map(|(_, named)| named);
        let first = votes.next();
        votes.all(|named| Some(named) == first) && answer.count() * 2 > of_url.count()
    }

    /// Notes that a sentinel has failed. `master` is the master of the last answers, if there were any.
    pub(in crate::store::redis) fn failed(
        &self,
        which: &Target,
        error: RedisError,
        master: Option<&str>,
    ) {
        let mut board = lock(&self.board);
        let (sentinel, why) = (&*which.address, said(&error));
        let before = board.find(which).map(|one| {
            one.is_old = false;
            one.answer.replace(Err(error))
        });
        if let Some(None | Some(Ok(_))) = before {
            tracing::warn!(
                sentinel,
                why,
                "a sentinel does not answer: the others are asked"
            );
            if let Some(master) = master
                && board.failed().is_some()
            {
                tracing::warn!(
                    master,
                    "no sentinel answers: the client stays with the last master, and learns of a failover only from that server"
                );
            }
        }
        drop(board);
        self.heard.notify_waiters();
    }

    /// Notes the other sentinels that a sentinel knows. True if one of them is not watched.
    pub(in crate::store::redis) fn discovered(
        &self,
        by: &Target,
        others: &[(String, u16)],
    ) -> bool {
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

    /// Which sentinels name which master, of those that answer.
    fn votes(&self) -> impl Iterator<Item = (&str, &Named)> {
        self.all
            .iter()
            .filter_map(|observed| match &observed.answer {
                Some(Ok(named)) => Some((&*observed.target.address, named)),
                _ => None,
            })
    }

    /// Whether most sentinels of the URL name one master, or all of them have answered or failed.
    fn is_decided(&self) -> bool {
        let of_url = self.all.iter().filter(|one| !one.is_discovered);
        let answers: Vec<_> = of_url.map(|one| &one.answer).collect();
        let named: Vec<&Named> = answers
            .iter()
            .filter_map(|answer| answer.as_ref()?.as_ref().ok())
            .collect();
        let same = |one: &Named| named.iter().filter(|other| **other == one).count();
        answers.iter().all(|answer| answer.is_some())
            || named.iter().any(|one| same(one) * 2 > answers.len())
    }

    /// Whether one more sentinel can be watched, if need be in place of a failing one.
    fn has_room(&mut self) -> bool {
        let fails = |one: &Observed| one.is_discovered && matches!(one.answer, Some(Err(_)));
        if self.all.len() >= MAXIMUM
            && let Some(at) = self.all.iter().position(fails)
        {
            self.all.remove(at);
        }
        self.all.len() < MAXIMUM
    }

    /// The error if all have failed: if possible, an error that a retry does not help.
    fn failed(&self) -> Option<RedisError> {
        let mut failures = Vec::new();
        for observed in &self.all {
            match &observed.answer {
                Some(Err(error)) if !observed.is_old => {
                    failures.push((&observed.target.address, error));
                }
                _ => return None,
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
        let why = format!("no sentinel answers: {each}");
        Some(advised(
            why,
            "check that the sentinels run and can be reached",
        ))
    }
}

impl Observed {
    fn new(target: Target, is_discovered: bool) -> Self {
        Self {
            target: Arc::new(target),
            task: None,
            is_discovered,
            answer: None,
            is_old: false,
            older: 0,
        }
    }
}
