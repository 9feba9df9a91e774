use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use lock_core::observe::MetricsObserver;
use lock_core::{LockGuard, LockManager, LockManagerBuilder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use super::{Contestant, TTL};

/// lock-core.
#[derive(Clone)]
pub(crate) struct Ours(LockManager);

/// The variable that tells the workers of a server and of the URL through which our locks find it.
pub(crate) const BEHIND_SENTINEL: &str = "LOCK_BENCH_SENTINEL";

/// The variable that tells the workers the URL of the cluster.
pub(crate) const OF_CLUSTER: &str = "LOCK_BENCH_CLUSTER";

/// The URL of our locks for this server.
pub(crate) fn url(server: &str) -> String {
    let behind = std::env::var(BEHIND_SENTINEL).unwrap_or_default();
    match behind.split_once(' ') {
        Some((known, url)) if known == server => url.to_owned(),
        _ => server.to_owned(),
    }
}

/// The variable that tells the workers to make metrics of our locks.
const METRICS: &str = "LOCK_BENCH_METRICS";

/// The variable that gives each of our managers a thread of its own.
const OWN_THREAD: &str = "LOCK_BENCH_OWN_THREAD";

/// How often the recorder is emptied, as by a scrape.
const UPKEEP: Duration = Duration::from_secs(1);

/// Whether the process has its recorder.
static RECORDS: AtomicBool = AtomicBool::new(false);

/// Whether our locks wait long for an answer: servers that are counted are slow.
pub(crate) static PATIENT: AtomicBool = AtomicBool::new(false);

/// How long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The settings of our locks.
pub(crate) fn settings() -> Result<LockManagerBuilder> {
    let mut builder = LockManager::builder();
    if std::env::var_os(OWN_THREAD).is_some() {
        builder = builder.own_thread();
    }
    if PATIENT.load(Ordering::Relaxed) {
        builder = builder.command_deadline(PATIENCE);
    }
    if std::env::var_os(METRICS).is_none() {
        return Ok(builder);
    }
    if !RECORDS.swap(true, Ordering::Relaxed) {
        let seconds = Matcher::Suffix("_seconds".to_owned());
        let recorder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &[0.001, 0.1])?;
        let handle = recorder.install_recorder()?;
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(UPKEEP);
                handle.run_upkeep();
            }
        });
    }
    Ok(builder.observer(MetricsObserver::new()))
}

impl Ours {
    pub(crate) async fn connect(urls: &[String], handover_limit: Option<u32>) -> Result<Self> {
        let mut builder = settings()?;
        if let Some(limit) = handover_limit {
            builder = builder.handover_limit(limit);
        }
        Ok(Self(match urls {
            [server] => builder.connect(&url(server)).await?,
            urls => builder.connect_quorum(urls).await?,
        }))
    }
}

impl Ours {
    pub(crate) async fn on_cluster() -> Result<Self> {
        let url = std::env::var(OF_CLUSTER)?;
        Ok(Self(settings()?.connect(&url).await?))
    }
}

impl Contestant for Ours {
    type Guard = LockGuard;

    async fn acquire(&self, key: &str) -> Result<LockGuard> {
        Ok(self.0.lock(key).ttl(TTL).acquire().await?)
    }

    async fn release(&self, guard: LockGuard) -> Result<()> {
        Ok(guard.release().await?)
    }

    async fn leave(&self, guard: LockGuard) -> Result<()> {
        drop(guard);
        Ok(())
    }
}
