//! What was measured in one sale, and what is read from it.

use std::time::Duration;

use crate::books::Balance;
use crate::line::{Hold, Micros};
use crate::strategies::Strategy;

/// One sale, from the opening of the doors to the last stored order.
#[derive(Debug)]
pub(crate) struct Sale {
    pub(crate) strategy: Strategy,
    pub(crate) stock: u64,
    pub(crate) balance: Balance,
    /// How long each buyer who got a piece waited for it, in order of length.
    pub(crate) waits: Vec<Micros>,
    /// When the last piece was sold.
    pub(crate) last_sold: Micros,
    /// Buyers who were sold something or told that there is nothing left.
    pub(crate) answered: u64,
    /// Requests that the limiter refused.
    pub(crate) refused: u64,
    /// Commands that all buyers' processes sent.
    pub(crate) commands: u64,
    /// What was left, from time to time.
    pub(crate) left: Vec<(Micros, i64)>,
    /// Who held a lock: the number of the process, and when.
    pub(crate) holds: Vec<(usize, Hold)>,
    pub(crate) trouble: Trouble,
}

/// What was done to the processes of a sale, and what came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) workers_killed: u64,
    /// Orders that a worker took over from a dead one.
    pub(crate) claimed: u64,
    /// Orders of these that had been stored already.
    pub(crate) again: u64,
    pub(crate) holders_killed: u64,
    pub(crate) holders_paused: u64,
    pub(crate) stale_tried: u64,
    pub(crate) stale_refused: u64,
    /// Purchases that a buyer asked for again, because the first answer did not come.
    pub(crate) asked_again: u64,
    pub(crate) failover: Option<Failover>,
}

/// A master of the cluster was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failover {
    /// Number of pieces that were sold before.
    pub(crate) sold: usize,
    /// How many segments it had.
    pub(crate) segments: usize,
    /// Until its replica took over.
    pub(crate) took: Duration,
}

impl Sale {
    /// A sale of which nothing is known so far.
    pub(crate) fn new(strategy: Strategy, stock: u64) -> Self {
        Self {
            strategy,
            stock,
            balance: Balance::default(),
            waits: Vec::new(),
            last_sold: 0,
            answered: 0,
            refused: 0,
            commands: 0,
            left: Vec::new(),
            holds: Vec::new(),
            trouble: Trouble::default(),
        }
    }

    pub(crate) fn oversold(&self) -> u64 {
        self.balance.sold.saturating_sub(self.stock)
    }

    /// Pieces sold for which the stock did not become less: somebody's write was written over.
    pub(crate) fn lost_updates(&self) -> i64 {
        i64::try_from(self.balance.sold).unwrap_or(i64::MAX) - self.balance.taken
    }

    /// Pieces per second, until the last one was sold.
    pub(crate) fn throughput(&self) -> f64 {
        self.balance.sold as f64 / seconds(self.last_sold.max(1))
    }

    pub(crate) fn wait_at(&self, fraction: f64) -> Duration {
        Duration::from_micros(percentile(&self.waits, fraction))
    }

    pub(crate) fn commands_per_purchase(&self) -> f64 {
        self.commands as f64 / self.answered.max(1) as f64
    }

    /// How much of the sale a lock was held: at 1, no time was lost between one holder and the next. `None` without locks.
    pub(crate) fn held(&self) -> Option<f64> {
        let held: Micros = self
            .holds
            .iter()
            .map(|(_, hold)| hold.to.min(self.last_sold).saturating_sub(hold.from))
            .sum();
        (held > 0).then(|| held as f64 / self.last_sold.max(1) as f64)
    }

    /// Whether it did what it promises; else what went wrong.
    pub(crate) fn verdict(&self, buyers: u64) -> Result<(), String> {
        let balance = &self.balance;
        let everybody_came = self.trouble.holders_killed == 0;
        if balance.is_even(self.stock)
            && (!everybody_came || balance.sold == self.stock || buyers < self.stock)
        {
            return Ok(());
        }
        Err(format!(
            "`{}` does not add up: {} of {} sold, {} taken from stock, {} stored, {} lost, {} twice",
            self.strategy.name(),
            balance.sold,
            self.stock,
            balance.taken,
            balance.stored,
            balance.lost,
            balance.twice
        ))
    }
}

/// The value below which this fraction lies; 0 of nothing.
pub(crate) fn percentile(sorted: &[Micros], fraction: f64) -> Micros {
    let rank = (sorted.len() as f64 * fraction).ceil() as usize;
    let index = rank.max(1) - 1;
    sorted.get(index).or(sorted.last()).copied().unwrap_or(0)
}

pub(crate) fn seconds(time: Micros) -> f64 {
    time as f64 / 1e6
}
