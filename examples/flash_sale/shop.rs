//! What a sale keeps on the server, and the part of it that one process works with.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lock_core::{LockError, LockManager};
use lock_examples::Outcome;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::sync::watch;

use crate::line::{Hold, Line, Micros, Mouth, Totals};
use crate::strategies::SEGMENTS;

/// How long a crashed holder keeps the others from buying.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// A busy machine is no reason to give up on the server.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const GROUP: &str = "workers";

/// The names of a sale's keys: in one slot of a cluster, and no other sale's.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    sale: String,
}

impl Keys {
    pub(crate) fn new(sale: &str) -> Self {
        Self {
            sale: sale.to_owned(),
        }
    }

    pub(crate) fn sale(&self) -> &str {
        &self.sale
    }

    pub(crate) fn stock(&self) -> String {
        format!("{{{}}}:stock", self.sale)
    }

    /// The part of the stock that belongs to a segment.
    pub(crate) fn part(&self, segment: usize) -> String {
        format!("{{{}}}:stock:{segment}", self.sale)
    }

    /// The key of the lock, and of the data that it protects.
    pub(crate) fn lock(&self) -> String {
        format!("{{{}}}:sale", self.sale)
    }

    pub(crate) fn orders(&self) -> String {
        format!("{{{}}}:orders", self.sale)
    }

    pub(crate) fn requests_of(&self, user: &str) -> String {
        format!("{{{}}}:requests:{user}", self.sale)
    }

    /// Everything that is there for the whole sale.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut keys = vec![self.stock(), self.orders()];
        keys.extend((0..SEGMENTS).map(|segment| self.part(segment)));
        keys
    }
}

/// The URLs of the nodes of a cluster, or of the only server.
pub(crate) fn nodes_of(url: &str) -> Vec<String> {
    match url.strip_prefix("redis+cluster://") {
        Some(nodes) => nodes
            .split(',')
            .map(|node| format!("redis://{node}"))
            .collect(),
        None => vec![url.to_owned()],
    }
}

/// A connection of one's own.
pub(crate) async fn connect(url: &str) -> Outcome<MultiplexedConnection> {
    let client = redis::Client::open(url)
        .map_err(|error| format!("REDIS_URL is not the address of a Redis server ({error})"))?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    Ok(connection
        .await
        .map_err(|error| format!("the server is not available ({error})"))?)
}

pub(crate) async fn connect_locks(url: &str) -> Result<LockManager, LockError> {
    let builder = LockManager::builder()
        .default_ttl(TTL)
        .command_deadline(PATIENCE);
    builder.connect(url).await
}

/// A purchase that somebody wants to make.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) id: String,
    /// How long the shop works on an order as a rule: asks for the price, checks the address, ..
    pub(crate) usual: Duration,
    /// How long on this one.
    pub(crate) work: Duration,
}

/// What a strategy sells with: one for each process.
#[derive(Debug)]
pub(crate) struct Till {
    pub(crate) url: String,
    /// The server; in a cluster one of them, and unused.
    pub(crate) redis: MultiplexedConnection,
    pub(crate) locks: LockManager,
    pub(crate) keys: Keys,
    mouth: Mouth,
    opened: Instant,
    /// Whoever works next shall be caught at it.
    wanted: AtomicBool,
    /// How often those who are caught were let go.
    let_go: watch::Sender<u64>,
    commands: AtomicU64,
    stale_tried: AtomicU64,
    stale_refused: AtomicU64,
    asked_again: AtomicU64,
}

impl Till {
    pub(crate) async fn new(url: String, sale: &str, mouth: Mouth) -> Outcome<Self> {
        Ok(Self {
            redis: connect(&nodes_of(&url)[0]).await?,
            locks: connect_locks(&url).await?,
            keys: Keys::new(sale),
            url,
            mouth,
            opened: Instant::now(),
            wanted: AtomicBool::new(false),
            let_go: watch::Sender::new(0),
            commands: AtomicU64::new(0),
            stale_tried: AtomicU64::new(0),
            stale_refused: AtomicU64::new(0),
            asked_again: AtomicU64::new(0),
        })
    }

    /// The doors opened at this time of the machine's clock: all processes count from there.
    pub(crate) fn open(&mut self, epoch: Micros) {
        let since = micros_of_the_day().saturating_sub(epoch);
        self.opened = Instant::now()
            .checked_sub(Duration::from_micros(since))
            .unwrap_or_else(Instant::now);
    }

    pub(crate) fn now(&self) -> Micros {
        self.opened.elapsed().as_micros() as Micros
    }

    pub(crate) fn say(&self, line: Line) {
        self.mouth.say(line);
    }

    /// Counts commands that are no scripts; see `Totals`.
    pub(crate) fn sends(&self, commands: u64) {
        self.commands.fetch_add(commands, Ordering::Relaxed);
    }

    /// Counts a write that a holder from the past was about to make, or has made.
    pub(crate) fn stale_write(&self, refused: bool) {
        self.stale_tried.fetch_add(1, Ordering::Relaxed);
        self.stale_refused
            .fetch_add(u64::from(refused), Ordering::Relaxed);
    }

    /// Counts a purchase without an answer, which may have been made.
    pub(crate) fn asks_again(&self) {
        self.asked_again.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted here.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            commands: self.commands.load(Ordering::Relaxed),
            stale_tried: self.stale_tried.load(Ordering::Relaxed),
            stale_refused: self.stale_refused.load(Ordering::Relaxed),
            asked_again: self.asked_again.load(Ordering::Relaxed),
        }
    }

    /// From now on the next who has something in hand is caught.
    pub(crate) fn catch(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Nobody is caught any more, and whoever was goes on.
    pub(crate) fn let_go(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        self.let_go.send_modify(|times| *times += 1);
    }

    /// What a purchase has to do before it can be written. Somebody who is caught is caught at the beginning of it.
    pub(crate) async fn work(&self, order: &Order) {
        self.perhaps_caught().await;
        self.toil(order).await;
    }

    /// Only the work.
    pub(crate) async fn toil(&self, order: &Order) {
        tokio::time::sleep(order.work).await;
    }

    /// A moment to be killed or paused: whoever is caught stays here until it is over.
    pub(crate) async fn perhaps_caught(&self) {
        let mut over = self.let_go.subscribe();
        if self.wanted.swap(false, Ordering::SeqCst) {
            self.say(Line::InHand);
            // An error would mean that the till is gone, and this is a part of it.
            let _ = over.changed().await;
        }
    }

    /// What is left under a key.
    pub(crate) async fn left(&self, stock: &str) -> Outcome<i64> {
        self.sends(1);
        let left: Option<i64> = redis::cmd("GET")
            .arg(stock)
            .query_async(&mut self.redis.clone())
            .await?;
        Ok(left.unwrap_or(0))
    }

    /// Writes what is left and the order, both or neither.
    pub(crate) async fn write(&self, stock: &str, left: i64, order: &Order) -> Outcome {
        // MULTI, SET, XADD, EXEC
        self.sends(4);
        let mut transaction = redis::pipe();
        transaction.atomic().set(stock, left).ignore();
        transaction
            .xadd(self.keys.orders(), "*", &[("id", &order.id)])
            .ignore();
        let () = transaction.query_async(&mut self.redis.clone()).await?;
        Ok(())
    }

    /// Notes that a lock is held, until the note is dropped.
    pub(crate) fn holds(&self, segment: usize) -> Holding<'_> {
        Holding {
            till: self,
            segment,
            from: self.now(),
        }
    }
}

/// A lock is held.
#[derive(Debug)]
pub(crate) struct Holding<'a> {
    till: &'a Till,
    segment: usize,
    from: Micros,
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.till.say(Line::Held(Hold {
            segment: self.segment,
            from: self.from,
            to: self.till.now(),
        }));
    }
}

pub(crate) fn micros_of_the_day() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as Micros)
}
