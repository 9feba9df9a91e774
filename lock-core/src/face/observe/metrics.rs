//! Metrics by the crate `metrics`.

use std::fmt;

use metrics::{
    Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use super::figures::{Backend, Figures, Instrument, METRICS, Metric, Shape};
use crate::base::observe::{Event, Observer};

/// Makes metrics of the events, for the recorder of the crate [`metrics`](https://docs.rs/metrics). Needs the feature `metrics`.
///
/// The [guide](crate::guide::observability#metrics) lists the metrics. Install the recorder before the first lock is acquired: what
/// happens earlier is not counted, and a label that was used earlier is never counted. The recorder must not forget idle series.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// use lock_core::LockManager;
/// use lock_core::observe::MetricsObserver;
///
/// // Before: `PrometheusBuilder::new().install_recorder()`, or another recorder.
/// let locks = LockManager::builder()
///     .observer(MetricsObserver::new())
///     .connect("memory://")
///     .await?;
/// # let _ = locks; Ok(()) }
/// ```
pub struct MetricsObserver(Figures<Recorder>);

struct Recorder;

impl MetricsObserver {
    /// An observer, and the descriptions of its metrics.
    ///
    /// # Examples
    ///
    /// See [`MetricsObserver`].
    #[must_use]
    pub fn new() -> Self {
        for metric in METRICS {
            let Metric { name, meaning, .. } = *metric;
            match metric.shape {
                Shape::Histogram => describe_histogram!(name, Unit::Seconds, meaning),
                Shape::Counter => describe_counter!(name, meaning),
                Shape::Gauge => describe_gauge!(name, meaning),
            }
        }
        Self(Figures::new(Recorder))
    }
}

impl Default for MetricsObserver {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MetricsObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsObserver").finish_non_exhaustive()
    }
}

impl Observer for MetricsObserver {
    fn observe(&self, event: &Event<'_>) {
        self.0.observe(event);
    }
}

impl Backend for Recorder {
    fn instrument(&self, metric: &'static Metric, labels: &[(&'static str, &str)]) -> Instrument {
        let labels = labels
            .iter()
            .map(|(name, value)| Label::new(*name, (*value).to_owned()));
        let labels: Vec<_> = labels.collect();
        match metric.shape {
            Shape::Histogram => {
                let histogram = histogram!(metric.name, labels);
                Box::new(move |seconds| histogram.record(seconds))
            }
            Shape::Counter => {
                let counter = counter!(metric.name, labels);
                Box::new(move |_| counter.increment(1))
            }
            Shape::Gauge => {
                let gauge = gauge!(metric.name, labels);
                Box::new(move |change| gauge.increment(change))
            }
        }
    }
}
