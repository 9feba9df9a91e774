//! Metrics by OpenTelemetry.

use std::collections::HashMap;
use std::fmt;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

use super::figures::{BUCKETS, Backend, Figures, Instrument, METRICS, Metric, Shape};
use crate::base::observe::{Event, Observer};

/// Makes metrics of the events, for a [`Meter`] of OpenTelemetry. Needs the feature `opentelemetry`.
///
/// The [guide](crate::guide::observability#metrics) lists the metrics. The names are without `_seconds` and `_total`, as
/// OpenTelemetry wants them: exporters to Prometheus add these.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::LockError> {
/// use lock_core::LockManager;
/// use lock_core::observe::OpenTelemetryObserver;
///
/// let meter = opentelemetry::global::meter("orders");
/// let locks = LockManager::builder()
///     .observer(OpenTelemetryObserver::new(&meter))
///     .connect("memory://")
///     .await?;
/// # let _ = locks; Ok(()) }
/// ```
pub struct OpenTelemetryObserver(Figures<Instruments>);

#[derive(Default)]
struct Instruments {
    histograms: HashMap<&'static str, Histogram<f64>>,
    counters: HashMap<&'static str, Counter<u64>>,
    gauges: HashMap<&'static str, UpDownCounter<i64>>,
}

impl OpenTelemetryObserver {
    /// An observer with instruments of this meter.
    ///
    /// # Examples
    ///
    /// See [`OpenTelemetryObserver`].
    #[must_use]
    pub fn new(meter: &Meter) -> Self {
        let mut instruments = Instruments::default();
        for Metric {
            name,
            shape,
            meaning,
            ..
        } in METRICS
        {
            match shape {
                Shape::Histogram => {
                    let histogram = meter.f64_histogram(name.trim_end_matches("_seconds"));
                    let histogram = histogram.with_unit("s").with_description(*meaning);
                    let histogram = histogram.with_boundaries(BUCKETS.to_vec());
                    instruments.histograms.insert(name, histogram.build());
                }
                Shape::Counter => {
                    let counter = meter.u64_counter(name.trim_end_matches("_total"));
                    let counter = counter.with_description(*meaning).build();
                    instruments.counters.insert(name, counter);
                }
                Shape::Gauge => {
                    let gauge = meter.i64_up_down_counter(*name).with_description(*meaning);
                    instruments.gauges.insert(name, gauge.build());
                }
            }
        }
        Self(Figures::new(instruments))
    }
}

impl fmt::Debug for OpenTelemetryObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTelemetryObserver")
            .finish_non_exhaustive()
    }
}

impl Observer for OpenTelemetryObserver {
    fn observe(&self, event: &Event<'_>) {
        self.0.observe(event);
    }
}

impl Backend for Instruments {
    fn instrument(&self, metric: &'static Metric, labels: &[(&'static str, &str)]) -> Instrument {
        let labels = labels
            .iter()
            .map(|(name, value)| KeyValue::new(*name, (*value).to_owned()));
        let labels: Vec<_> = labels.collect();
        match metric.shape {
            Shape::Histogram => {
                let histogram = self.histograms[metric.name].clone();
                Box::new(move |seconds| histogram.record(seconds, &labels))
            }
            Shape::Counter => {
                let counter = self.counters[metric.name].clone();
                counter.add(0, &labels);
                Box::new(move |_| counter.add(1, &labels))
            }
            Shape::Gauge => {
                let gauge = self.gauges[metric.name].clone();
                gauge.add(0, &labels);
                Box::new(move |change| gauge.add(change as i64, &labels))
            }
        }
    }
}
