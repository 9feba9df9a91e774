//! Together with the attributes and types that services are made of.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use lock_core::{LockError, LockGuard, LockManager, distributed_lock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::instrument;

use crate::memory;

#[async_trait]
trait Payments {
    async fn pay(&self, id: u64, note: &str) -> Result<u64, LockError>;

    /// The attribute on a method with a body, beneath `#[async_trait]`.
    #[distributed_lock(key = "services:refund:{id}", client = self.locks())]
    async fn refund(&self, id: u64) -> Result<String, LockError> {
        Ok(LockGuard::current().expect("a hold").key().to_owned())
    }

    fn locks(&self) -> &LockManager;
}

struct Shop {
    locks: LockManager,
    tenant: String,
}

#[async_trait]
impl Payments for Shop {
    #[distributed_lock(key = "services:{id}", client = self.locks, guard = held)]
    async fn pay(&self, id: u64, note: &str) -> Result<u64, LockError> {
        assert_eq!(held.key(), format!("services:{id}"));
        let length = u64::try_from(note.len()).unwrap_or(0);
        tokio::task::yield_now().await;
        Ok(id + length)
    }

    fn locks(&self) -> &LockManager {
        &self.locks
    }
}

#[async_trait]
trait Patterns {
    async fn pair(&self, pair: (&str, u64)) -> Result<String, LockError>;
}

#[async_trait]
impl Patterns for LockManager {
    // `#[async_trait]` moves the pattern into the body; its names are values all the same.
    #[distributed_lock(key = "services:{user}:{id:03}", client = self, guard = held)]
    async fn pair(&self, (user, id): (&str, u64)) -> Result<String, LockError> {
        Ok(held.key().to_owned())
    }
}

#[tokio::test]
async fn patterns_beneath_async_trait_are_values_of_the_key() {
    let locks = memory().await;
    assert_eq!(locks.pair(("a:b", 7)).await.unwrap(), "services:a%3Ab:007");
}

struct Marked(LockManager);

#[async_trait]
impl Payments for Marked {
    #[distributed_lock(key = "services:marked", client = self.0, guard = held)]
    async fn pay(&self, #[key] id: u64, _note: &str) -> Result<u64, LockError> {
        assert_eq!(held.key(), format!("services:marked:{id}"));
        Ok(id)
    }

    fn locks(&self) -> &LockManager {
        &self.0
    }
}

#[tokio::test]
async fn methods_beneath_async_trait() {
    let locks = memory().await;
    let services: [Box<dyn Payments + Send + Sync>; 2] = [
        Box::new(Shop {
            locks: locks.clone(),
            tenant: "a".into(),
        }),
        Box::new(Marked(locks)),
    ];
    assert_eq!(services[0].pay(7, "abc").await.unwrap(), 10);
    assert_eq!(services[1].pay(7, "abc").await.unwrap(), 7);
    assert_eq!(services[0].refund(1).await.unwrap(), "services:refund:1");
}

#[distributed_lock(key = "services:outside:{id}", client = locks)]
#[instrument(skip(locks))]
async fn above_instrument(locks: &LockManager, id: u64) -> Result<String, LockError> {
    Ok(LockGuard::current().expect("a hold").key().to_owned())
}

#[instrument(skip(locks), err, ret)]
#[distributed_lock(key = "services:inside:{id}", client = locks, guard = held)]
async fn beneath_instrument(locks: &LockManager, id: u64) -> Result<String, LockError> {
    Ok(held.key().to_owned())
}

#[tokio::test]
async fn above_and_beneath_instrument() {
    let locks = memory().await;
    assert_eq!(
        above_instrument(&locks, 1).await.unwrap(),
        "services:outside:1"
    );
    assert_eq!(
        beneath_instrument(&locks, 1).await.unwrap(),
        "services:inside:1"
    );
}

#[distributed_lock(key = "services:test", client = LockManager::connect("memory://").await?)]
#[tokio::test]
async fn above_tokio_test() -> Result<(), LockError> {
    assert!(LockGuard::current().is_some());
    Ok(())
}

#[tokio::test]
#[distributed_lock(key = "services:test", client = LockManager::connect("memory://").await?)]
async fn beneath_tokio_test() -> Result<(), LockError> {
    assert!(LockGuard::current().is_some());
    Ok(())
}

#[tokio::test]
async fn anyhow_takes_the_error_and_keeps_it() {
    #[distributed_lock(key = "services:anyhow", wait = "0s", client = locks)]
    async fn parse(locks: &LockManager, text: &str) -> anyhow::Result<u32> {
        let number: u32 = text.parse().context("a number")?;
        anyhow::ensure!(number > 0, "too small");
        Ok(number)
    }
    let locks = memory().await;
    assert_eq!(parse(&locks, "7").await.unwrap(), 7);
    assert_eq!(
        parse(&locks, "x").await.unwrap_err().to_string(),
        "a number"
    );
    assert_eq!(
        parse(&locks, "0").await.unwrap_err().to_string(),
        "too small"
    );
    let _held = locks.lock("services:anyhow").acquire().await.unwrap();
    let error = parse(&locks, "7").await.unwrap_err();
    assert!(error.downcast_ref::<LockError>().unwrap().is_contention());
}

impl Shop {
    #[distributed_lock(key = "services:{self.tenant}:{id}", client = self.locks, guard = held)]
    async fn shared(self: Arc<Self>, id: u64) -> Result<String, LockError> {
        tokio::task::yield_now().await;
        Ok(held.key().to_owned())
    }
}

#[tokio::test]
async fn a_shared_receiver_is_spawned() {
    let shop = Arc::new(Shop {
        locks: memory().await,
        tenant: "acme".into(),
    });
    let calls: Vec<_> = (0..3)
        .map(|id| tokio::spawn(Arc::clone(&shop).shared(id)))
        .collect();
    for (id, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap(), format!("services:acme:{id}"));
    }
}

/// An error of a web service: contention is the client's to retry.
enum WebError {
    Lock(LockError),
}

impl From<LockError> for WebError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for WebError {
    fn into_response(self) -> Response {
        let Self::Lock(error) = self;
        let status = if error.is_contention() {
            StatusCode::CONFLICT
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        (status, error.to_string()).into_response()
    }
}

#[distributed_lock(key = "services:order:{id}", wait = "0s", client = shop.locks, guard = held)]
async fn submit(
    State(shop): State<Arc<Shop>>,
    Path(id): Path<u64>,
    Json(amount): Json<u64>,
) -> Result<Json<u64>, WebError> {
    tokio::task::yield_now().await;
    assert_eq!(held.key(), format!("services:order:{id}"));
    Ok(Json(amount + u64::try_from(shop.tenant.len()).unwrap_or(0)))
}

#[distributed_lock(
    key = "services:page",
    wait = "0s",
    on_busy = return = StatusCode::TOO_MANY_REQUESTS.into_response(),
    client = shop.locks,
)]
async fn page(State(shop): State<Arc<Shop>>) -> impl IntoResponse {
    Json(shop.tenant.clone()).into_response()
}

async fn request(address: std::net::SocketAddr, head: &str, body: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn axum_handlers() {
    let locks = memory().await;
    let shop = Arc::new(Shop {
        locks: locks.clone(),
        tenant: "acme".into(),
    });
    let app = axum::Router::new()
        .route("/orders/{id}", post(submit))
        .route("/page", get(page))
        .with_state(shop);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let tests = async {
        let paid = request(address, "POST /orders/7", "10").await;
        assert!(
            paid.starts_with("HTTP/1.1 200") && paid.ends_with("\r\n14"),
            "{paid}"
        );
        let shown = request(address, "GET /page", "").await;
        assert!(shown.ends_with("\"acme\""), "{shown}");
        let _order = locks.lock("services:order:7").acquire().await.unwrap();
        let _page = locks.lock("services:page").acquire().await.unwrap();
        let busy = request(address, "POST /orders/7", "10").await;
        assert!(busy.starts_with("HTTP/1.1 409"), "{busy}");
        let busy = request(address, "GET /page", "").await;
        assert!(busy.starts_with("HTTP/1.1 429"), "{busy}");
    };
    tokio::time::timeout(Duration::from_secs(60), tests)
        .await
        .unwrap();
    server.abort();
}

/// As on the page about errors and HTTP.
async fn one_at_a_time(State(locks): State<LockManager>, request: Request, next: Next) -> Response {
    let lock = locks.lock(request.uri().path());
    let lock = lock.default_wait(Duration::from_millis(20));
    match lock.with(async |_| next.run(request).await).await {
        Ok(response) => response,
        Err(LockError::Busy { .. } | LockError::TimedOut { .. }) => {
            (StatusCode::CONFLICT, [(header::RETRY_AFTER, "1")]).into_response()
        }
        Err(LockError::Unavailable { .. } | LockError::ShutDown) => (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::RETRY_AFTER, "1")],
        )
            .into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[tokio::test]
async fn a_layer_holds_a_lock_around_each_request() {
    let locks = memory().await;
    let app = axum::Router::new()
        .route("/cart/{customer}", get(async || "empty"))
        .layer(from_fn_with_state(locks.clone(), one_at_a_time));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let get = async |customer| request(address, &format!("GET /cart/{customer}"), "").await;
    let shown = get("ada").await;
    assert!(shown.starts_with("HTTP/1.1 200"), "{shown}");
    let _held = locks.lock("/cart/ada").acquire().await.unwrap();
    let busy = get("ada").await;
    assert!(busy.starts_with("HTTP/1.1 409"), "{busy}");
    assert!(busy.contains("retry-after: 1"), "{busy}");
    assert!(get("bob").await.starts_with("HTTP/1.1 200"));
    locks.shutdown(Duration::ZERO).await;
    let away = get("bob").await;
    assert!(
        away.starts_with("HTTP/1.1 503") && away.contains("retry-after: 1"),
        "{away}"
    );
    server.abort();
}
