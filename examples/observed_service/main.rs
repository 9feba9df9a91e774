//! A service whose locks can be seen: metrics for Prometheus at `GET /metrics`, and a dashboard for Grafana beside this file.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p larger-examples --bin observed_service
//! cargo run --release -p larger-examples --bin observed_service -- --picture observability.svg
//! ```
//!
//! - `POST /orders/{id}/pay` pays an order, in one copy at a time.
//! - `POST /bank` is the answer of the bank, on which a payment waits.
//! - `POST /report` makes a report, unless another copy does.
//!
//! It ends when its input does. With `--picture` it serves nothing: it starts a server of its own, works for a minute, stops
//! the server for seven seconds, and draws what the dashboard would show.

mod picture;

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use lock_core::observe::MetricsObserver;
use lock_core::{LockError, LockManager, LockManagerBuilder, distributed_lock};
use lock_examples::{Outcome, exit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// Maximum time for requests in flight. What still runs then loses its lock and is cancelled.
const DRAIN: Duration = Duration::from_secs(3);

/// Maximum time for the releases.
const LOCKS: Duration = Duration::from_secs(2);

/// In seconds: a lock on the same machine, one in another zone, and a queue.
const BUCKETS: [f64; 9] = [0.000_5, 0.002, 0.01, 0.05, 0.2, 1.0, 5.0, 20.0, 60.0];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [flag, file] if flag == "--picture" => picture::draw(file).await,
        _ => serve().await,
    };
    exit("observed_service", outcome)
}

/// Where the metrics go. Before the first lock: what happens earlier is not counted.
fn recorder() -> Outcome<PrometheusHandle> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &BUCKETS)?;
    Ok(builder.install_recorder()?)
}

fn settings() -> LockManagerBuilder {
    LockManager::builder()
        .observer(MetricsObserver::new())
        .default_ttl(Duration::from_secs(10))
}

async fn serve() -> Outcome {
    let url = env::var("REDIS_URL").map_err(|_| "set REDIS_URL")?;
    let metrics = recorder()?;
    let locks = settings().connect(&url).await?;
    let service = Arc::new(Service {
        locks: locks.clone(),
        bank: Notify::new(),
        metrics,
    });
    let routes = Router::new()
        .route("/orders/{id}/pay", post(pay))
        .route("/bank", post(bank))
        .route("/report", post(report))
        .route("/metrics", get(scrape))
        .with_state(service);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("listening on {}", listener.local_addr()?);
    let (end, ended) = oneshot::channel::<()>();
    let serving = axum::serve(listener, routes).with_graceful_shutdown(async { drop(ended.await) });
    let serving = tokio::spawn(serving.into_future());
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    // In this order: no new request, an end for those in flight, no more locks.
    drop(end);
    if let Ok(served) = timeout(DRAIN, serving).await {
        served??;
    }
    let left = locks.shutdown(LOCKS).await;
    println!("ended, {left} locks left");
    Ok(())
}

struct Service {
    locks: LockManager,
    bank: Notify,
    metrics: PrometheusHandle,
}

impl Service {
    /// The label is the template: `order:{order}`.
    #[distributed_lock(key = "order:{order}", ttl = "1500ms", wait = "2s", client = self.locks)]
    async fn pay(&self, order: u64) -> Result<String, Failure> {
        println!("paying order {order}");
        self.bank.notified().await;
        Ok(format!("order {order} is paid"))
    }

    #[distributed_lock(key = "report:monday", label = "report", wait = "0s", on_busy = skip, client = self.locks)]
    async fn report(&self) -> Option<&'static str> {
        Some("the report is made")
    }
}

/// The service's own error.
struct Failure(LockError);

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.0 {
            LockError::Busy { .. } | LockError::TimedOut { .. } => StatusCode::CONFLICT,
            LockError::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, self.0.to_string()).into_response()
    }
}

async fn pay(
    State(service): State<Arc<Service>>,
    Path(order): Path<u64>,
) -> Result<String, Failure> {
    service.pay(order).await
}

async fn bank(State(service): State<Arc<Service>>) -> &'static str {
    service.bank.notify_one();
    "confirmed"
}

async fn report(State(service): State<Arc<Service>>) -> &'static str {
    let made = service.report().await;
    made.unwrap_or("another copy makes the report")
}

async fn scrape(State(service): State<Arc<Service>>) -> String {
    service.metrics.render()
}
