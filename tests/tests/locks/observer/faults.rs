//! Observers and subscribers that misbehave, and what is told while they do.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::LockManager;
use lock_core::observe::{Event, Observer};
use lock_tests::{LIMIT, TestCluster, TestServer, eventually};
use tracing::{Metadata, Subscriber, span};

use crate::observer::{Record, observed, order};

/// A subscriber that panics once, where the outcome of an acquisition is recorded.
#[derive(Default)]
struct Careless {
    spans: AtomicUsize,
    panics: AtomicBool,
}

impl Subscriber for Careless {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("lock_core")
    }

    fn new_span(&self, of: &span::Attributes<'_>) -> span::Id {
        let id = self.spans.fetch_add(2, Ordering::Relaxed) as u64 + 2;
        span::Id::from_u64(id + u64::from(of.metadata().name() == "lock.acquire"))
    }

    fn record(&self, id: &span::Id, _: &span::Record<'_>) {
        let panics = id.into_u64() % 2 == 1 && self.panics.swap(false, Ordering::SeqCst);
        assert!(!panics, "on purpose");
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn a_subscriber_that_panics_leaves_no_lock_behind() {
    let server = TestServer::start().await;
    let (locks, record) = observed(&server.url()).await;
    let careless = Careless {
        panics: AtomicBool::new(true),
        ..Careless::default()
    };
    let panicked = {
        let _subscriber = tracing::subscriber::set_default(careless);
        // Other tests of this program may just have told the same spans that none listens.
        tracing::callsite::rebuild_interest_cache();
        let acquiring = AssertUnwindSafe(order(&locks).acquire());
        acquiring.catch_unwind().await
    };
    assert!(panicked.is_err());
    let others = LockManager::connect(&server.url()).await.unwrap();
    eventually("it is released", LIMIT, async || {
        others
            .lock("order:7")
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    })
    .await;
    let lock = "order:7/order/exclusive";
    assert_eq!(
        record.take(),
        [
            format!("acquired free {lock}"),
            format!("ended dropped {lock}")
        ]
    );
}

struct Panics;

impl Observer for Panics {
    fn observe(&self, _: &Event<'_>) {
        panic!("on purpose");
    }
}

#[tokio::test]
async fn a_panic_of_one_observer_costs_another_one_nothing() {
    let record = Arc::new(Record::default());
    let builder = LockManager::builder();
    let builder = builder.observer(Panics).observer(Arc::clone(&record));
    let locks = builder.connect("memory://").await.unwrap();
    order(&locks)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let told = ["waiting", "acquired", "ended", "outstanding", "settled"];
    assert_eq!(told.map(|word| record.of(word)), [1; 5]);
}

#[tokio::test]
async fn connections_to_the_nodes_of_a_cluster_are_told() {
    let cluster = TestCluster::start(3).await;
    let (locks, record) = observed(&cluster.url()).await;
    let tag = cluster.tag_on(0).await;
    let ttl = Duration::from_secs(30);
    let _held = locks
        .lock(format!("{{{tag}}}"))
        .ttl(ttl)
        .acquire()
        .await
        .unwrap();
    assert!(cluster.nodes[0].server.client_kill_all().await > 0);
    record.has("disconnected").await;
    record.has("reconnected").await;
}
