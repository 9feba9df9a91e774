//! The ways to sell: a file each. A new one is a file, and a line in every `match` below.

mod broken_del;
mod broken_get_then_set;
mod cluster;
mod guarded;
mod lock;
mod reentrant;
mod script;
mod segmented;
mod transaction;

use lock_core::{LockError, LockGuard};
use lock_examples::Outcome;

use crate::line::Answer;
use crate::shop::{Order, Till};

/// In how many parts `segmented` splits the stock.
pub(crate) const SEGMENTS: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Script,
    Transaction,
    Lock,
    Reentrant,
    Guarded,
    Segmented,
    /// Not one of those on one server: `--cluster`.
    Cluster,
    BrokenGetThenSet,
    BrokenDel,
}

impl Strategy {
    pub(crate) const ALL: [Self; 8] = [
        Self::Script,
        Self::Transaction,
        Self::Lock,
        Self::Reentrant,
        Self::Guarded,
        Self::Segmented,
        Self::BrokenGetThenSet,
        Self::BrokenDel,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Transaction => "transaction",
            Self::Lock => "lock",
            Self::Reentrant => "reentrant",
            Self::Guarded => "guarded",
            Self::Segmented => "segmented",
            Self::Cluster => "cluster",
            Self::BrokenGetThenSet => "broken-get-then-set",
            Self::BrokenDel => "broken-del",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Script => "works first, then checks and takes in one Lua script",
            Self::Transaction => "WATCH, read, work, MULTI .. EXEC; again if another was faster",
            Self::Lock => "reads, works and writes under one lock",
            Self::Reentrant => "the same by functions that each take the lock, and call each other",
            Self::Guarded => {
                "the same, and the write is a script that runs only while the lock is held"
            }
            Self::Segmented => {
                "reads, works and writes under one of 20 locks, each with a part of the stock"
            }
            Self::Cluster => {
                "the same, and guarded, with the parts spread over the masters of a cluster"
            }
            Self::BrokenGetThenSet => "wrong: reads, works and writes without a lock",
            Self::BrokenDel => "wrong: SETNX, EXPIRE, and DEL of whoever's lock it is then",
        }
    }

    /// In the plots.
    pub(crate) fn colour(self) -> &'static str {
        match self {
            Self::Script => "#2f6fde",
            Self::Transaction => "#13a08a",
            Self::Lock => "#8e44c9",
            Self::Reentrant => "#c94497",
            Self::Guarded => "#5d8a1f",
            Self::Segmented | Self::Cluster => "#e58a00",
            Self::BrokenGetThenSet => "#d43d3d",
            Self::BrokenDel => "#a8552d",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter().chain([Self::Cluster]);
        all.find(|known| known.name() == name)
    }

    /// Whether it promises to sell exactly the stock.
    pub(crate) fn is_correct(self) -> bool {
        !matches!(self, Self::BrokenGetThenSet | Self::BrokenDel)
    }

    /// Whether that holds even if a process is paused in the worst moment.
    pub(crate) fn is_safe_from_the_past(self) -> bool {
        matches!(self, Self::Script | Self::Transaction | Self::Guarded)
    }

    /// How many parts the stock has.
    pub(crate) fn parts(self) -> usize {
        match self {
            Self::Segmented | Self::Cluster => SEGMENTS,
            _ => 1,
        }
    }
}

/// A strategy at work in one process.
pub(crate) enum Counter {
    Script(script::Counter),
    Transaction(transaction::Counter),
    Lock(lock::Counter),
    Reentrant(reentrant::Counter),
    Guarded(guarded::Counter),
    Segmented(segmented::Counter),
    Cluster(cluster::Counter),
    BrokenGetThenSet,
    BrokenDel(broken_del::Counter),
}

impl Counter {
    pub(crate) async fn open(strategy: Strategy, till: &Till) -> Outcome<Self> {
        Ok(match strategy {
            Strategy::Script => Self::Script(script::Counter::open(till).await?),
            Strategy::Transaction => Self::Transaction(transaction::Counter::open(till).await?),
            Strategy::Lock => Self::Lock(lock::Counter::open(till)),
            Strategy::Reentrant => Self::Reentrant(reentrant::Counter::open(till)),
            Strategy::Guarded => Self::Guarded(guarded::Counter::open(till)),
            Strategy::Segmented => Self::Segmented(segmented::Counter::open(till)),
            Strategy::Cluster => Self::Cluster(cluster::Counter::open(till).await?),
            Strategy::BrokenGetThenSet => Self::BrokenGetThenSet,
            Strategy::BrokenDel => Self::BrokenDel(broken_del::Counter::open(till)),
        })
    }

    pub(crate) async fn sell(&self, till: &Till, order: &Order) -> Outcome<Answer> {
        match self {
            Self::Script(counter) => counter.sell(till, order).await,
            Self::Transaction(counter) => counter.sell(till, order).await,
            Self::Lock(counter) => counter.sell(till, order).await,
            Self::Reentrant(counter) => counter.sell(till, order).await,
            Self::Guarded(counter) => counter.sell(till, order).await,
            Self::Segmented(counter) => counter.sell(till, order).await,
            Self::Cluster(counter) => counter.sell(till, order).await,
            Self::BrokenGetThenSet => broken_get_then_set::sell(till, order).await,
            Self::BrokenDel(counter) => counter.sell(till, order).await,
        }
    }
}

/// How a purchase under a lock went.
enum Under {
    Sold,
    Empty,
    /// The lock was lost meanwhile, and nothing was written: try again.
    Lost,
}

/// Reads, works and writes while a lock is held.
async fn take_one(till: &Till, order: &Order, stock: &str, guard: &LockGuard) -> Outcome<Under> {
    let left = till.left(stock).await?;
    if left <= 0 {
        return Ok(Under::Empty);
    }
    till.work(order).await;
    // A process that was paused meanwhile notices it here.
    if !guard.is_held() {
        till.stale_write(true);
        return Ok(Under::Lost);
    }
    // It may still be paused here, and no lock can help against that.
    till.write(stock, left - 1, order).await?;
    if !guard.is_held() {
        // Perhaps in time, perhaps over what another has written.
        till.stale_write(false);
    }
    Ok(Under::Sold)
}

/// A lock that was lost need not be given back, and a server that is gone ends the sale.
fn give_back(released: Result<(), LockError>) -> Result<(), LockError> {
    match released {
        Err(LockError::Lost { .. }) => Ok(()),
        other => other,
    }
}
