//! The service whose locks can be seen: each metric has the right value after events that are known, and the dashboard asks for
//! these metrics.

#[expect(dead_code, reason = "another test program needs the rest")]
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use lock_core::{Lock, LockManager};
use lock_examples::{get, post};
use lock_tests::{LIMIT, TestServer, eventually};
use program::{Running, command};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// The names of all metrics, as the page for operators lists them.
fn listed() -> BTreeSet<String> {
    let page = include_str!("../../docs/observability.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `lock_"));
    let names = rows.filter_map(|row| Some(format!("lock_{}", row.split_once('`')?.0)));
    names.collect()
}

/// The value of each series.
struct Page(BTreeMap<String, String>);

impl Page {
    fn value(&self, name: &str) -> u64 {
        let value = self.0.get(name);
        let value = value.unwrap_or_else(|| panic!("{name}: {:#?}", self.0));
        value.parse().unwrap()
    }
}

struct Service {
    running: Running,
    address: String,
}

impl Service {
    fn start(url: &str) -> Self {
        let mut service = command("observed_service", Some(url));
        service.stdin(Stdio::piped());
        let mut running = Running::start_command(service);
        let line = running.line_with("listening on ");
        let address = line.rsplit(' ').next().unwrap().to_owned();
        Self { running, address }
    }

    /// Asks for a payment, which waits for the bank.
    fn pay(&self) -> tokio::task::JoinHandle<u16> {
        let address = self.address.clone();
        tokio::spawn(async move { post(&address, "/orders/7/pay").await.unwrap().0 })
    }

    async fn bank(&self) {
        post(&self.address, "/bank").await.unwrap();
    }

    async fn scrape(&self) -> Page {
        let page = get(&self.address, "/metrics").await.unwrap().body;
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| line.rsplit_once(' '));
        Page(
            series
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    async fn has(&self, name: &str, value: u64) {
        let what = format!("{name} {value}");
        let is = async || self.scrape().await.0.get(name) == Some(&value.to_string());
        eventually(&what, LIMIT, is).await;
    }

    async fn has_more(&self, name: &str, value: u64) {
        let is = async || self.scrape().await.value(name) > value;
        eventually(name, LIMIT, is).await;
    }
}

fn of(metric: &str, label: &str, outcome: &str) -> String {
    let word = if metric == "lock_losses_total" {
        "reason"
    } else {
        "outcome"
    };
    format!(r#"{metric}{{kind="exclusive",label="{label}",{word}="{outcome}"}}"#)
}

fn gauge(metric: &str) -> String {
    format!(r#"{metric}{{kind="exclusive",label="order:{{order}}"}}"#)
}

const ORDER: &str = "order:{order}";
const OUTSTANDING: &str = r#"lock_outstanding{kind="exclusive"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_metric_has_the_right_value_after_known_events() {
    let server = TestServer::start().await;
    let other = LockManager::connect(&server.url()).await.unwrap();
    let mut service = Service::start(&server.url());
    payments(&mut service, &other.lock("order:7")).await;
    let report = async |service: &Service| post(&service.address, "/report").await.unwrap().1;
    assert_eq!(report(&service).await, "the report is made");
    let theirs = other.lock("report:monday").acquire().await.unwrap();
    assert_eq!(report(&service).await, "another copy makes the report");
    theirs.release().await.unwrap();
    service.has(OUTSTANDING, 0).await;

    let page = service.scrape().await;
    for (outcome, count) in [
        ("free", 1),
        ("handed_over", 1),
        ("granted", 2),
        ("timed_out", 1),
        ("cancelled", 1),
        ("busy", 0),
        ("tried", 0),
        ("unavailable", 0),
    ] {
        let name = of("lock_acquisitions_total", ORDER, outcome);
        assert_eq!(page.value(&name), count, "{outcome}");
    }
    for (name, count) in [
        (of("lock_acquisitions_total", "report", "tried"), 1),
        // The one that was skipped.
        (of("lock_acquisitions_total", "report", "busy"), 1),
        (of("lock_releases_total", "report", "released"), 1),
        (of("lock_releases_total", ORDER, "released"), 3),
        (of("lock_releases_total", ORDER, "dropped"), 0),
        (of("lock_losses_total", ORDER, "force_released"), 1),
        (of("lock_losses_total", ORDER, "expired"), 0),
        (of("lock_renewals_total", ORDER, "failed"), 0),
        (gauge("lock_wait_seconds_count"), 4),
        (gauge("lock_hold_seconds_count"), 4),
        (gauge("lock_held"), 0),
        (gauge("lock_waiting"), 0),
    ] {
        assert_eq!(page.value(&name), count, "{name}");
    }
    let renewed = page.value(&of("lock_renewals_total", ORDER, "renewed"));
    assert_eq!(
        page.value(&gauge("lock_renewal_slack_seconds_count")),
        renewed
    );

    // What it serves is what the page lists, but for the nodes of a quorum, and connections, none of which broke.
    let rare = [
        "lock_disconnections_total",
        "lock_reconnections_total",
        "lock_quorum_node_absent",
    ];
    let names: BTreeSet<String> = page.0.keys().map(|name| base_of(name)).collect();
    let mut expected = listed();
    expected.retain(|name| !rare.contains(&&**name));
    assert_eq!(names, expected);
}

/// Payments that are free, granted, handed over, lost, timed out and cancelled.
async fn payments(service: &mut Service, order: &Lock) {
    // Free and renewed; then granted, by the command that releases it; then handed over without a command.
    let first = service.pay();
    service.running.line_with("paying order 7");
    let renewed = of("lock_renewals_total", ORDER, "renewed");
    service.has(&renewed, 1).await;
    let (second, third) = (service.pay(), service.pay());
    service.has(&gauge("lock_waiting"), 2).await;
    service.has(&gauge("lock_held"), 1).await;
    service.bank().await;
    assert_eq!(first.await.unwrap(), 200);
    for _ in 0..2 {
        service.running.line_with("paying order 7");
        service.bank().await;
    }
    assert_eq!((second.await.unwrap(), third.await.unwrap()), (200, 200));
    service.has(OUTSTANDING, 0).await;

    // Granted, after a wait for another process; and taken away under the payment.
    let theirs = order.acquire().await.unwrap();
    let last = service.pay();
    service.has(&gauge("lock_waiting"), 1).await;
    theirs.release().await.unwrap();
    service.running.line_with("paying order 7");
    assert!(order.force_release().await.unwrap());
    assert_eq!(last.await.unwrap(), 500);

    // Timed out; and cancelled, by a client that hangs up.
    let theirs = order.acquire().await.unwrap();
    assert_eq!(service.pay().await.unwrap(), 409);
    let mut client = TcpStream::connect(&service.address).await.unwrap();
    let request = "POST /orders/7/pay HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    service.has(&gauge("lock_waiting"), 1).await;
    drop(client);
    let cancelled = of("lock_acquisitions_total", ORDER, "cancelled");
    service.has(&cancelled, 1).await;
    theirs.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_and_returns_is_counted() {
    let server = TestServer::start().await;
    let mut service = Service::start(&server.url());
    let payment = service.pay();
    service.running.line_with("paying order 7");
    server.kill();
    let address = server.url().trim_start_matches("redis://").to_owned();
    let counter = |name| format!(r#"{name}{{server="{address}"}}"#);
    service.has(&counter("lock_disconnections_total"), 1).await;
    let failed = of("lock_renewals_total", ORDER, "failed");
    service.has_more(&failed, 0).await;
    server.restart().await;
    service.has(&counter("lock_reconnections_total"), 1).await;
    // The server has forgotten the lock.
    assert_eq!(payment.await.unwrap(), 500);
    let page = service.scrape().await;
    let lost = |reason| page.value(&of("lock_losses_total", ORDER, reason));
    assert_eq!(lost("gone") + lost("expired"), 1);
}

/// The metric of a series.
fn base_of(series: &str) -> String {
    let name = series.split('{').next().unwrap();
    let ends = ["_bucket", "_sum", "_count"];
    let base = ends.iter().find_map(|end| name.strip_suffix(end));
    base.unwrap_or(name).to_owned()
}

#[test]
fn the_dashboard_asks_for_each_metric_and_for_no_other() {
    let dashboard = include_str!("../observed_service/dashboard.json");
    let words = dashboard.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let asked: BTreeSet<String> = words
        .filter(|word| word.starts_with("lock_"))
        .map(base_of)
        .collect();
    assert_eq!(asked, listed());
}
