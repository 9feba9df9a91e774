//! A web service whose functions are annotated with `#[distributed_lock]`, and the client that calls it.
//!
//! ```text
//! cargo run -p larger-examples --bin annotated_service
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p larger-examples --bin annotated_service
//! ```
//!
//! - `POST /orders/{id}/charge` charges an order once, however many requests ask for it at the same time.
//! - `POST /orders/{id}/cancel` does not wait for a charge that is under way: 409, with `Retry-After`.
//! - `POST /report` runs in one place at a time; whoever asks meanwhile is told so instead of waiting.
//!
//! A copy that ends, or has lost its Redis, answers 503 with `Retry-After`: a load balancer asks another copy.
//!
//! Here the service is one process. Started ten times on one Redis, it would do the same.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use lock_core::{LockError, LockManager, distributed_lock};
use lock_examples::{Answer, Outcome, ask, exit, post as call, redis_url_or_memory};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> ExitCode {
    exit("annotated_service", run().await)
}

async fn run() -> Outcome {
    // A prefix keeps two runs on one server apart. A real service takes a fixed one, such as `shop:`.
    let locks = LockManager::builder()
        .prefix(format!("shop-{}:", std::process::id()))
        .connect(&redis_url_or_memory())
        .await?;
    let shop = Arc::new(Shop::new(locks.clone()));
    let routes = Router::new()
        .route("/orders/{id}/charge", post(charge))
        .route("/orders/{id}/cancel", post(cancel))
        .route("/report", post(report))
        .route("/close", post(close))
        .with_state(shop);

    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?.to_string();
    println!("The service listens on http://{address}.\n");
    let closing = Arc::new(Notify::new());
    let stopped = Arc::clone(&closing);
    let service = tokio::spawn(async move {
        axum::serve(listener, routes)
            .with_graceful_shutdown(async move { stopped.notified().await })
            .await
    });

    let outcome = async {
        client(&address).await?;
        busy_and_closing(&address, &locks).await
    };
    let outcome = outcome.await;

    // The requests that wait for a lock were told to come back: nothing holds the end up.
    closing.notify_one();
    service.await??;
    outcome
}

/// The application: what several requests, and several copies of the service, must not do at once.
struct Shop {
    locks: LockManager,
    ledger: Mutex<HashMap<u64, u64>>,
    closed: Notify,
}

impl Shop {
    fn new(locks: LockManager) -> Self {
        Self {
            locks,
            ledger: Mutex::default(),
            closed: Notify::new(),
        }
    }

    /// Charges an order, unless that was done before. Nobody else is between the look and the charge.
    #[distributed_lock(key = "order:{order}", ttl = "10s", wait = "30s", client = self.locks, guard = held)]
    async fn charge(&self, order: u64) -> Result<Charge, ShopError> {
        if self.ledger().contains_key(&order) {
            return Ok(Charge::AlreadyDone);
        }
        // The payment provider takes its time. If the lock is lost now, the body ends here with `LockError::Lost`.
        tokio::time::sleep(Duration::from_millis(50)).await;
        // A database would keep the number and refuse a smaller one: `.. WHERE fence <= $1`.
        self.ledger().insert(order, held.fencing_token().get());
        Ok(Charge::Done)
    }

    /// Cancels an order that was not charged. Where a charge is under way the caller hears of it at once.
    #[distributed_lock(key = "order:{order}", wait = "0s", client = self.locks)]
    async fn cancel(&self, order: u64) -> Result<bool, ShopError> {
        Ok(!self.ledger().contains_key(&order))
    }

    /// Counts the orders of the day when the shop has closed. One run is enough: a second one does not wait, it skips.
    #[distributed_lock(key = "report", wait = "0s", on_busy = return = Ok(Report::RunsAlready), client = self.locks)]
    async fn report(&self) -> Result<Report, ShopError> {
        self.closed.notified().await;
        Ok(Report::Orders(self.ledger().len()))
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, HashMap<u64, u64>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Charge {
    Done,
    AlreadyDone,
}

enum Report {
    Orders(usize),
    RunsAlready,
}

/// The service's own error. `From<LockError>` is all that the attribute asks of it.
struct ShopError(LockError);

impl From<LockError> for ShopError {
    fn from(error: LockError) -> Self {
        Self(error)
    }
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        let status = match &self.0 {
            // Another request works on it: the caller may come back.
            error if error.is_contention() => StatusCode::CONFLICT,
            LockError::Unavailable { .. } | LockError::ShutDown => StatusCode::SERVICE_UNAVAILABLE,
            // Lost under the work, or a mistake of the program: it must not be repeated blindly.
            _ => return (StatusCode::INTERNAL_SERVER_ERROR, self.0.to_string()).into_response(),
        };
        // `Busy` tells when the lease of the holder ends if it crashed. A live holder is rather done in a second.
        let retry_after = (header::RETRY_AFTER, HeaderValue::from_static("1"));
        (status, [retry_after], self.0.to_string()).into_response()
    }
}

// The handlers know HTTP and nothing of locks.

async fn charge(
    State(shop): State<Arc<Shop>>,
    Path(order): Path<u64>,
) -> Result<Response, ShopError> {
    Ok(match shop.charge(order).await? {
        Charge::Done => (StatusCode::CREATED, format!("order {order} is charged")).into_response(),
        Charge::AlreadyDone => format!("order {order} was charged before").into_response(),
    })
}

async fn cancel(
    State(shop): State<Arc<Shop>>,
    Path(order): Path<u64>,
) -> Result<Response, ShopError> {
    Ok(if shop.cancel(order).await? {
        format!("order {order} is cancelled").into_response()
    } else {
        (StatusCode::GONE, format!("order {order} was charged")).into_response()
    })
}

async fn report(State(shop): State<Arc<Shop>>) -> Result<Response, ShopError> {
    Ok(match shop.report().await? {
        Report::Orders(orders) => format!("{orders} orders today").into_response(),
        Report::RunsAlready => (StatusCode::ACCEPTED, "a report runs already").into_response(),
    })
}

async fn close(State(shop): State<Arc<Shop>>) -> &'static str {
    shop.closed.notify_one();
    "the shop is closed"
}

/// The other side: asks for the same things several times at once, and says what came back.
async fn client(address: &str) -> Outcome {
    println!("Five requests charge order 7 at the same time:");
    let answers = at_once(address, "/orders/7/charge", 5).join_all().await;
    let mut charged = 0;
    for answer in answers {
        let (status, body) = answer?;
        println!("  {status} {body}");
        charged += u32::from(status == 201);
    }
    println!("Another order has another lock:");
    print_answer(&call(address, "/orders/8/charge").await?);

    println!("Two requests ask for the report, which runs until the shop closes:");
    let mut reports = at_once(address, "/report", 2);
    // The one that runs cannot answer yet, so the first answer is from the one that skipped.
    let skipped = next(&mut reports).await?;
    print_answer(&skipped);
    print_answer(&call(address, "/close").await?);
    let done = next(&mut reports).await?;
    print_answer(&done);

    if charged != 1 {
        return Err(format!("order 7 was charged {charged} times").into());
    }
    if (skipped.0, done.0) != (202, 200) {
        return Err("the report did not run exactly once".into());
    }
    println!("\nOrder 7 was charged once, and the report ran once.");
    Ok(())
}

/// What a client sees where it comes at a bad moment.
async fn busy_and_closing(address: &str, locks: &LockManager) -> Outcome {
    println!("Order 9 is being charged, by another copy of the service:");
    let _other = locks.lock("order:9").acquire().await?;
    let busy = ask(address, "/orders/9/cancel").await?;
    print_when(&busy);

    println!("A request waits for it when this copy ends:");
    let waiting = ask(address, "/orders/9/charge");
    let end = async {
        while locks.lock("order:9").inspect().await?.waiters() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        locks.shutdown(Duration::from_secs(5)).await;
        Outcome::Ok(())
    };
    let (closing, end) = tokio::join!(waiting, end);
    end?;
    let closing = closing?;
    print_when(&closing);
    if (busy.status, closing.status) != (409, 503) {
        return Err("a client was not told to come back".into());
    }
    Ok(())
}

fn print_when(answer: &Answer) {
    let when = answer.header("retry-after").unwrap_or("?");
    println!("  {} Retry-After: {when}: {}", answer.status, answer.body);
}

/// The same request, several times.
fn at_once(address: &str, path: &'static str, times: usize) -> JoinSet<Outcome<(u16, String)>> {
    let mut requests = JoinSet::new();
    for _ in 0..times {
        let address = address.to_owned();
        requests.spawn(async move { call(&address, path).await });
    }
    requests
}

async fn next(requests: &mut JoinSet<Outcome<(u16, String)>>) -> Outcome<(u16, String)> {
    requests.join_next().await.ok_or("no request is left")??
}

fn print_answer((status, body): &(u16, String)) {
    println!("  {status} {body}");
}
