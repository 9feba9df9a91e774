//! A service as it runs in production: several copies, a server with TLS and a private CA, a user with the rights of
//! `docs/operating.md`, and a name for each copy, which errors and lists show.
//!
//! ```text
//! REDIS_URL=rediss://locks:password@redis.internal:6380 REDIS_CA=ca.pem SERVICE_NAME=orders-1 \
//!     cargo run -p larger-examples --bin production_service
//! ```
//!
//! - `POST /orders/{id}/pay` pays an order, in one copy at a time.
//! - `POST /bank` is the answer of the bank, on which a payment waits.
//! - `POST /locks` lists all locks that are held, whoever holds them.
//! - `GET /ready` is for a readiness probe: whether locks can be granted now.
//!
//! It ends when its input does, as it would at a signal: first no more requests, then no more locks.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use lock_core::{LockError, LockManager, Tls, distributed_lock};
use lock_examples::{Outcome, exit};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// Maximum time for requests in flight. What still runs then loses its lock and is cancelled.
const DRAIN: Duration = Duration::from_secs(3);

/// Maximum time for the releases.
const LOCKS: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> ExitCode {
    exit("production_service", run().await)
}

async fn run() -> Outcome {
    let url = env::var("REDIS_URL").map_err(|_| "set REDIS_URL")?;
    let mut builder = LockManager::builder().default_ttl(Duration::from_secs(10));
    if let Ok(ca) = env::var("REDIS_CA") {
        builder = builder.tls(Tls::new().ca_file(ca));
    }
    if let Ok(name) = env::var("SERVICE_NAME") {
        builder = builder.client_name(name);
    }
    // A wrong address, certificate, password or right ends the program here, with a sentence that says what to change.
    let locks = builder.connect(&url).await?;

    let service = Arc::new(Service {
        locks: locks.clone(),
        bank: Notify::new(),
    });
    let routes = Router::new()
        .route("/orders/{id}/pay", post(pay))
        .route("/bank", post(bank))
        .route("/locks", post(list))
        .route("/ready", get(ready))
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
}

impl Service {
    /// Waits for the bank. Another copy that is asked to pay the same order meanwhile says who does it.
    #[distributed_lock(key = "order:{order}", wait = "0s", client = self.locks)]
    async fn pay(&self, order: u64) -> Result<String, Failure> {
        println!("paying order {order}");
        self.bank.notified().await;
        Ok(format!("order {order} is paid"))
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
        let (status, text) = match self.0 {
            LockError::Busy { holder, key, .. } => {
                let holder = holder.unwrap_or_else(|| "somebody".into());
                (StatusCode::CONFLICT, format!("{holder} is at {key}"))
            }
            error @ LockError::Unavailable { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            error => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        (status, text).into_response()
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

async fn ready(State(service): State<Arc<Service>>) -> Result<String, Failure> {
    let pong = service.locks.ping().await?;
    Ok(format!("locks answer in {:?}", pong.round_trip()))
}

async fn list(State(service): State<Arc<Service>>) -> Result<String, Failure> {
    let mut lines = Vec::new();
    let mut list = service.locks.list();
    while let Some(page) = list.next_page().await? {
        lines.extend(page.iter().map(|lock| {
            let holder = lock.info().holder().unwrap_or("?");
            format!("{} is held by {holder}", lock.key())
        }));
    }
    Ok(lines.join("\n"))
}
