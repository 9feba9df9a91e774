//! The metrics, and the event from which each of them is made.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::base::observe::{
    AcquiredHow, CANCELLED, Event, ObservedLock, Observer, REASONS, REFUSALS, ReleasedHow,
};

/// A metric.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// The names of its labels.
    pub(super) labels: &'static [&'static str],
    pub(super) meaning: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Of seconds.
    Histogram,
    Counter,
    Gauge,
}

const fn metric(
    name: &'static str,
    shape: Shape,
    labels: &'static [&'static str],
    meaning: &'static str,
) -> Metric {
    Metric {
        name,
        shape,
        labels,
        meaning,
    }
}

const OF_LOCK: &[&str] = &["kind", "label"];
const WITH_OUTCOME: &[&str] = &["kind", "label", "outcome"];
const WITH_REASON: &[&str] = &["kind", "label", "reason"];

static WAIT: Metric = metric(
    "lock_wait_seconds",
    Shape::Histogram,
    OF_LOCK,
    "Time from the call for a lock until the client had it.",
);
static HOLD: Metric = metric(
    "lock_hold_seconds",
    Shape::Histogram,
    OF_LOCK,
    "Time for which a guard had its lock.",
);
static SLACK: Metric = metric(
    "lock_renewal_slack_seconds",
    Shape::Histogram,
    OF_LOCK,
    "Time that was left of a lease when its renewal was confirmed.",
);
static WAITING: Metric = metric(
    "lock_waiting",
    Shape::Gauge,
    OF_LOCK,
    "Calls that wait for a lock or for the server's answer.",
);
static HELD: Metric = metric(
    "lock_held",
    Shape::Gauge,
    OF_LOCK,
    "Guards that hold a lock.",
);
static OUTSTANDING: Metric = metric(
    "lock_outstanding",
    Shape::Gauge,
    &["kind"],
    "Requests of this process that the server may have something of: queued, held, or not yet released.",
);
static ACQUISITIONS: Metric = metric(
    "lock_acquisitions_total",
    Shape::Counter,
    WITH_OUTCOME,
    "Calls for a lock, by their outcome.",
);
static RELEASES: Metric = metric(
    "lock_releases_total",
    Shape::Counter,
    WITH_OUTCOME,
    "Guards that were released or dropped, by the outcome.",
);
static LOSSES: Metric = metric(
    "lock_losses_total",
    Shape::Counter,
    WITH_REASON,
    "Locks that were lost under their guards, by the reason.",
);
static RENEWALS: Metric = metric(
    "lock_renewals_total",
    Shape::Counter,
    WITH_OUTCOME,
    "Renewals of leases, by their outcome.",
);
static DISCONNECTIONS: Metric = metric(
    "lock_disconnections_total",
    Shape::Counter,
    &["server"],
    "Connections to a server that have ended.",
);
static RECONNECTIONS: Metric = metric(
    "lock_reconnections_total",
    Shape::Counter,
    &["server"],
    "Connections to a server that replace one that has ended.",
);
static ABSENT: Metric = metric(
    "lock_quorum_node_absent",
    Shape::Gauge,
    &["node"],
    "Managers of this process that get no vote from this node of the quorum.",
);

/// The buckets of the histograms: a lock on the same machine, one in another zone, and a queue.
#[cfg(feature = "opentelemetry")]
pub(super) const BUCKETS: [f64; 9] = [0.000_5, 0.002, 0.01, 0.05, 0.2, 1.0, 5.0, 20.0, 60.0];

/// All of them.
pub(super) static METRICS: [&Metric; 13] = [
    &WAIT,
    &HOLD,
    &SLACK,
    &WAITING,
    &HELD,
    &OUTSTANDING,
    &ACQUISITIONS,
    &RELEASES,
    &LOSSES,
    &RENEWALS,
    &DISCONNECTIONS,
    &RECONNECTIONS,
    &ABSENT,
];

/// Adds to one series of a metric: the seconds of one event, one to a counter, or a change to a gauge.
pub(super) type Instrument = Box<dyn Fn(f64) + Send + Sync>;

/// Where the metrics go.
pub(super) trait Backend: Send + Sync + 'static {
    /// The series of a metric with these labels. From now on it is there, with the value zero.
    fn instrument(&self, metric: &'static Metric, labels: &[(&'static str, &str)]) -> Instrument;
}

/// Makes the metrics of the events.
pub(super) struct Figures<B> {
    backend: B,
    /// Found by the addresses of kind and label, which are cheaper to compare than the texts. One text at two addresses leads to
    /// one series by two ways.
    locks: Cache<(usize, usize, usize), OfLock>,
    outstanding: Cache<&'static str, Instrument>,
}

const ACQUIRED: [AcquiredHow; 4] = [
    AcquiredHow::Free,
    AcquiredHow::Granted,
    AcquiredHow::HandedOver,
    AcquiredHow::Tried,
];
const RELEASED: [ReleasedHow; 3] = [
    ReleasedHow::Released,
    ReleasedHow::Dropped,
    ReleasedHow::Unconfirmed,
];

/// The series of one label.
struct OfLock {
    wait: Instrument,
    hold: Instrument,
    slack: Instrument,
    waiting: Instrument,
    held: Instrument,
    acquired: ByWord,
    refused: ByWord,
    cancelled: Instrument,
    released: ByWord,
    lost: ByWord,
    renewed: Instrument,
    failed: Instrument,
}

/// One series for each word.
struct ByWord(Vec<(&'static str, Instrument)>);

impl ByWord {
    fn count(&self, word: &str) {
        if let Some((_, add)) = self.0.iter().find(|(known, _)| *known == word) {
            add(1.0);
        }
    }
}

impl OfLock {
    fn new(backend: &impl Backend, lock: ObservedLock<'_>) -> Self {
        let (kind, label) = (("kind", lock.kind), ("label", lock.label));
        let of_lock = |metric| backend.instrument(metric, &[kind, label]);
        let with = |metric: &'static Metric, word| {
            backend.instrument(metric, &[kind, label, (metric.labels[2], word)])
        };
        let all = |metric, words: &[&'static str]| {
            ByWord(
                words
                    .iter()
                    .map(|word| (*word, with(metric, *word)))
                    .collect(),
            )
        };
        Self {
            wait: of_lock(&WAIT),
            hold: of_lock(&HOLD),
            slack: of_lock(&SLACK),
            waiting: of_lock(&WAITING),
            held: of_lock(&HELD),
            acquired: all(&ACQUISITIONS, &ACQUIRED.map(AcquiredHow::word)),
            refused: all(&ACQUISITIONS, &REFUSALS),
            cancelled: with(&ACQUISITIONS, CANCELLED),
            released: all(&RELEASES, &RELEASED.map(ReleasedHow::word)),
            lost: all(&LOSSES, &REASONS),
            renewed: with(&RENEWALS, "renewed"),
            failed: with(&RENEWALS, "failed"),
        }
    }
}

impl<B: Backend> Figures<B> {
    pub(super) fn new(backend: B) -> Self {
        Self {
            backend,
            locks: Cache::default(),
            outstanding: Cache::default(),
        }
    }

    fn of(&self, lock: ObservedLock<'_>) -> Arc<OfLock> {
        let address = |text: &str| text.as_ptr() as usize;
        let key = (address(lock.kind), address(lock.label), lock.label.len());
        self.locks.get(key, || OfLock::new(&self.backend, lock))
    }

    fn outstanding(&self, lock: ObservedLock<'_>, change: f64) {
        let make = || {
            self.backend
                .instrument(&OUTSTANDING, &[("kind", lock.kind)])
        };
        self.outstanding.get(lock.kind, make)(change);
    }

    fn add(&self, metric: &'static Metric, of: &str, change: f64) {
        self.backend.instrument(metric, &[(metric.labels[0], of)])(change);
    }
}

impl<B: Backend> Observer for Figures<B> {
    fn observe(&self, event: &Event<'_>) {
        let word = event.outcome().unwrap_or_default();
        match *event {
            Event::Waiting { lock } => (self.of(lock).waiting)(1.0),
            Event::Acquired { lock, waited, .. } => {
                let of = self.of(lock);
                (of.waiting)(-1.0);
                (of.held)(1.0);
                (of.wait)(seconds(waited));
                of.acquired.count(word);
            }
            Event::Refused { lock, .. } => {
                let of = self.of(lock);
                (of.waiting)(-1.0);
                of.refused.count(word);
            }
            Event::Cancelled { lock, .. } => {
                let of = self.of(lock);
                (of.waiting)(-1.0);
                (of.cancelled)(1.0);
            }
            Event::Released { lock, held, .. } => {
                let of = self.of(lock);
                (of.held)(-1.0);
                (of.hold)(seconds(held));
                of.released.count(word);
            }
            Event::Lost { lock, held, .. } => {
                let of = self.of(lock);
                (of.held)(-1.0);
                (of.hold)(seconds(held));
                of.lost.count(word);
            }
            Event::Renewed { lock, slack } => {
                let of = self.of(lock);
                (of.slack)(seconds(slack));
                (of.renewed)(1.0);
            }
            Event::RenewalFailed { lock, .. } => (self.of(lock).failed)(1.0),
            Event::Outstanding { lock } => self.outstanding(lock, 1.0),
            Event::Settled { lock } => self.outstanding(lock, -1.0),
            Event::Disconnected { server } => self.add(&DISCONNECTIONS, server, 1.0),
            Event::Reconnected { server, .. } => self.add(&RECONNECTIONS, server, 1.0),
            Event::NodeLeft { node, .. } => self.add(&ABSENT, node, 1.0),
            Event::NodeReturned { node, .. } => self.add(&ABSENT, node, -1.0),
        }
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// Values that are made once.
struct Cache<K, V>(RwLock<HashMap<K, Arc<V>>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Hash + Eq, V> Cache<K, V> {
    fn get(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known.get(&key) {
            return Arc::clone(value);
        }
        drop(known);
        // Made without the lock: it is code of the user.
        let value = Arc::new(make());
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(key).or_insert(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/observability.md");

    #[test]
    fn the_page_lists_each_metric_with_its_type_and_labels() {
        for metric in METRICS {
            let shape = format!("{:?}", metric.shape).to_lowercase();
            let labels = metric.labels.join("`, `");
            let row = format!("| `{}` | {shape} | `{labels}` | ", metric.name);
            assert!(PAGE.contains(&row), "{row}");
        }
        let rows = PAGE.lines().filter(|line| line.starts_with("| `lock_"));
        assert_eq!(rows.count(), METRICS.len());
    }

    #[test]
    fn the_page_explains_each_outcome_and_each_reason() {
        let words = ACQUIRED.map(AcquiredHow::word).into_iter();
        let words = words.chain(RELEASED.map(ReleasedHow::word));
        for word in words.chain(REFUSALS).chain(REASONS).chain([CANCELLED]) {
            assert!(PAGE.contains(&format!("`{word}`")), "{word}");
        }
    }
}
