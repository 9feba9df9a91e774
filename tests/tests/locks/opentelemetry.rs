//! The metrics of locks by OpenTelemetry: names, units, labels and values, as an exporter gets them.

use std::collections::BTreeMap;
use std::time::Duration;

use lock_core::LockManager;
use lock_core::observe::OpenTelemetryObserver;
use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{
    AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};

/// The value of each series, or the number of its seconds.
fn series(exported: &[ResourceMetrics]) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let metrics = exported.iter().flat_map(ResourceMetrics::scope_metrics);
    for metric in metrics.flat_map(ScopeMetrics::metrics) {
        let mut add = |labels: &mut dyn Iterator<Item = &KeyValue>, value: f64| {
            let labels: Vec<_> = labels
                .map(|label| format!("{}={}", label.key, label.value))
                .collect();
            let name = format!("{} {} {}", metric.name(), metric.unit(), labels.join(" "));
            found.insert(name.replace("  ", " "), value);
        };
        match metric.data() {
            AggregatedMetrics::F64(MetricData::Histogram(data)) => {
                for point in data.data_points() {
                    add(&mut point.attributes(), point.count() as f64);
                }
            }
            AggregatedMetrics::U64(MetricData::Sum(data)) => {
                for point in data.data_points() {
                    add(&mut point.attributes(), point.value() as f64);
                }
            }
            AggregatedMetrics::I64(MetricData::Sum(data)) => {
                for point in data.data_points() {
                    add(&mut point.attributes(), point.value() as f64);
                }
            }
            other => panic!("{}: {other:?}", metric.name()),
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exporter_gets_each_metric_with_its_labels_and_value() {
    let exporter = InMemoryMetricExporter::default();
    let provider = SdkMeterProvider::builder()
        .with_periodic_exporter(exporter.clone())
        .build();
    let observer = OpenTelemetryObserver::new(&provider.meter("orders"));
    let builder = LockManager::builder().observer(observer);
    let locks = builder.connect("memory://").await.unwrap();
    let lock = locks.lock("order:7").label("order");
    lock.acquire().await.unwrap().release().await.unwrap();
    let guard = lock.try_acquire().await.unwrap().unwrap();
    assert!(
        lock.acquire_within(Duration::from_millis(10))
            .await
            .is_err()
    );
    assert!(lock.force_release().await.unwrap());
    guard.lost().await;
    let other = locks.lock("order:8").label("order");
    let _held = other.acquire().await.unwrap();

    provider.force_flush().unwrap();
    let found = series(&exporter.get_finished_metrics().unwrap());
    let of = "kind=exclusive label=order";
    for (name, value) in [
        (format!("lock_wait s {of}"), 3.0),
        (format!("lock_hold s {of}"), 2.0),
        (format!("lock_held {of}"), 1.0),
        (format!("lock_waiting {of}"), 0.0),
        (format!("lock_acquisitions {of} outcome=free"), 2.0),
        (format!("lock_acquisitions {of} outcome=tried"), 1.0),
        (format!("lock_acquisitions {of} outcome=timed_out"), 1.0),
        (format!("lock_acquisitions {of} outcome=busy"), 0.0),
        (format!("lock_releases {of} outcome=released"), 1.0),
        (format!("lock_losses {of} reason=force_released"), 1.0),
        (format!("lock_renewals {of} outcome=failed"), 0.0),
    ] {
        assert_eq!(found.get(&name), Some(&value), "{name}: {found:#?}");
    }
    assert!(
        found["lock_outstanding kind=exclusive"] >= 1.0,
        "{found:#?}"
    );
}
