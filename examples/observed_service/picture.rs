//! What the dashboard shows of a minute, drawn without Grafana.

use std::time::{Duration, Instant};

use lock_core::LockManager;
use lock_examples::{Outcome, PrivateServer};
use lock_plot::{Frame, Scale};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until};

use crate::{recorder, settings};

const LASTS: Duration = Duration::from_secs(60);
const AWAY: [Duration; 2] = [Duration::from_secs(25), Duration::from_secs(32)];
const EACH: Duration = Duration::from_millis(500);
const COLOUR: &str = "#2f6fde";
const OUTAGE: &str = "#ff0033";

/// The rows: a title, the beginning of the series that are added up, and whether they are shown as a rate.
const ROWS: [(&str, &str, bool); 6] = [
    ("acquired / s", "lock_wait_seconds_count", true),
    ("refused / s", "lock_acquisitions_total", true),
    ("calls that wait", "lock_waiting", false),
    ("locks held", "lock_held", false),
    ("failed renewals / s", "lock_renewals_total", true),
    ("locks lost", "lock_losses_total", false),
];

/// A sample of each row.
struct Sample {
    at: Duration,
    values: [f64; ROWS.len()],
}

/// Works for a minute, and draws it.
pub(crate) async fn draw(file: &str) -> Outcome {
    let metrics = recorder()?;
    let server = PrivateServer::start()?;
    let locks = settings()
        .default_wait(Duration::from_secs(2))
        .connect(&server.url())
        .await?;
    let started = Instant::now();
    let mut crew = JoinSet::new();
    // Twelve services want three orders, and five jobs run for long: one of them has a short ttl.
    for n in 0..12 {
        crew.spawn(work(locks.clone(), n));
    }
    for n in 0..5_u64 {
        let ttl = Duration::from_secs(if n == 0 { 6 } else { 20 });
        let lock = locks.lock(format!("job:{n}")).label("job").ttl(ttl);
        crew.spawn(async move {
            loop {
                if let Ok(guard) = lock.acquire().await {
                    guard.lost().await;
                }
            }
        });
    }
    crew.spawn(async move {
        sleep_until((started + AWAY[0]).into()).await;
        let _ = server.signal("STOP");
        sleep_until((started + AWAY[1]).into()).await;
        let _ = server.signal("CONT");
        // The server lives until the end.
        sleep(LASTS).await;
        drop(server);
    });
    let mut samples = Vec::new();
    let mut clock = interval(EACH);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while started.elapsed() < LASTS {
        clock.tick().await;
        samples.push(Sample::of(&metrics, started.elapsed()));
    }
    crew.shutdown().await;
    std::fs::write(file, picture(&samples))?;
    println!("drawn: {file}");
    Ok(())
}

async fn work(locks: LockManager, n: u64) {
    loop {
        let lock = locks.lock(format!("order:{}", n % 3)).label("order");
        if let Ok(_guard) = lock.acquire().await {
            sleep(Duration::from_millis(20)).await;
        }
        sleep(Duration::from_millis(fastrand::u64(20..100))).await;
    }
}

impl Sample {
    fn of(metrics: &PrometheusHandle, at: Duration) -> Self {
        let page = metrics.render();
        let values = ROWS.map(|(_, name, _)| {
            let lines = page
                .lines()
                .filter(|line| line.split(['{', ' ']).next() == Some(name) && counts(name, line));
            lines
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum()
        });
        Self { at, values }
    }
}

/// Of the outcomes, those that a row shows.
fn counts(name: &str, line: &str) -> bool {
    let any = |words: &[&str]| words.iter().any(|word| line.contains(word));
    match name {
        "lock_acquisitions_total" => any(&["\"busy\"", "\"timed_out\"", "\"unavailable\""]),
        "lock_renewals_total" => any(&["\"failed\""]),
        _ => true,
    }
}

/// A row for each metric, the first one at the top. The highest value of a row fills it.
fn picture(samples: &[Sample]) -> String {
    let rows = ROWS.len() as f64;
    let x = Scale::Linear(0.0, LASTS.as_secs_f64());
    let legend = [("the server is stopped", OUTAGE)];
    let mut svg = Frame::new(70.0 * rows + 50.0, x, Scale::Linear(0.0, rows), &legend);
    svg.x_axis("", |at| format!("{at:.0} s"));
    for (number, (title, _, is_rate)) in ROWS.into_iter().enumerate() {
        let bottom = rows - 1.0 - number as f64;
        let points: Vec<(f64, f64)> = samples
            .windows(2)
            .map(|pair| {
                let [before, now] = [&pair[0], &pair[1]];
                let (value, seconds) = (now.values[number], now.at.saturating_sub(before.at));
                let rate = (value - before.values[number]) / seconds.as_secs_f64();
                (now.at.as_secs_f64(), if is_rate { rate } else { value })
            })
            .collect();
        let highest = points.iter().map(|(_, value)| *value).fold(1.0, f64::max);
        svg.row(bottom + 0.5, title);
        svg.row(bottom + 0.2, &format!("at most {highest:.0}"));
        let [from, to] = AWAY.map(|at| at.as_secs_f64());
        svg.bar(
            (from, bottom),
            (to, bottom + 0.02),
            OUTAGE,
            "the server is stopped",
        );
        let line = points
            .iter()
            .map(|(at, value)| (*at, bottom + 0.85 * value / highest));
        svg.line(line, COLOUR, title);
    }
    svg.file("metrics of a minute with an outage")
}
