//! Helper of the tests across processes: takes locks as it is told, an order a line, and says what happened, a
//! line each, with stamps in nanoseconds of the clock that all processes of the machine share.
//!
//! `contender URL current|multi [DRIFT_MS]`, the flavour being that of its tokio runtime. It says `ready TASKS` once it is
//! connected (how many tasks its runtime has then), and ends with its input.
//!
//! | order | answer |
//! |---|---|
//! | `acquire NAME KEY TTL_MS [fixed]` | `granted NAME FENCE ASKED GRANTED ENDS`, whenever that is |
//! | `try NAME KEY TTL_MS` | the same, or `busy NAME` |
//! | `hammer NAME KEY TTL_MS` | `granted ..` after as many tries as it takes |
//! | `permits NAME KEY TTL_MS WEIGHT MAX` | the same, for permits of a semaphore |
//! | `lead NAME KEY TTL_MS` | the same, for a candidate, whose value is NAME |
//! | `waiters KEY` | `waiters COUNT`, on the server and in line in this process |
//! | `look NAME` | `held NAME true/false STAMP` |
//! | `release NAME` | `released NAME STAMP` (read before the call) or `refused NAME why` |
//! | `write NAME plain/checked URL RESOURCE` | `aims NAME true/false`; then, at `fire NAME`, `wrote NAME` or `rejected NAME` |
//! | `work OWNER KEY TASKS TTL_MS` | the lines of a history, until `stop` is answered with `done` |
//! | `mix OWNER KEY TASKS TTL_MS SEED` | the same, with callers that are cut off, guards dropped, leases that run out |
//! | `race KEY TASKS TTL_MS` | nothing until `stop`: then `grant FENCE ASKED GRANTED` for each, and `done` |
//! | `read KEY TASKS TTL_MS` | the same, for the readers of a read-write lock |
//! | `several OWNER TASKS` | nothing until `end`: then `several COUNT`; before, `overlap ..` or `backwards ..` for each that it finds |
//! | `fill PREFIX COUNT TTL_MS` | `filled` |
//! | `count` | `holds HELD TASKS`, of what was filled |
//! | `empty` | `emptied`: what was filled is dropped |
//! | `shutdown` | `left COUNT`, and it ends |
//!
//! Without being asked: `lost NAME STAMP REASON`.

mod hold;
mod many;
mod several;
mod work;

use std::collections::HashMap;
use std::io::BufRead;
use std::time::Duration;

use lock_core::{LockManager, LockManagerBuilder};
use lock_tests::boottime_now;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The clock that all processes share, in nanoseconds.
fn stamp() -> u64 {
    boottime_now().as_nanos() as u64
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, flavour] = &args[..] else {
        panic!("contender URL current|multi");
    };
    // A machine full of other tests may be slow; that is not what is tested.
    let settings = LockManager::builder().command_deadline(Duration::from_secs(10));
    let mut runtime = match flavour.as_str() {
        "multi" => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    runtime
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(serve(settings, url, orders()));
}

/// The lines of the input, read by a thread so that a runtime with one thread is free for its tasks.
fn orders() -> UnboundedReceiver<String> {
    let (sender, orders) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    orders
}

async fn serve(settings: LockManagerBuilder, url: &str, mut orders: UnboundedReceiver<String>) {
    let locks = settings.connect(url).await.expect("a server");
    let mut holds: HashMap<String, UnboundedSender<hold::Order>> = HashMap::new();
    let mut crowd = work::Crowd::default();
    let mut many = many::Many::default();
    let mut several = several::Several::default();
    // The task that has made the connection ends behind it.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    println!("ready {}", many::tasks());
    while let Some(order) = orders.recv().await {
        let words: Vec<&str> = order.split_whitespace().collect();
        match words[..] {
            ["acquire" | "try" | "hammer", name, key, ttl, ..] => {
                let lock = locks
                    .lock(key)
                    .ttl(millis(ttl))
                    .renew(words.last() != Some(&"fixed"));
                let (sender, receiver) = unbounded_channel();
                holds.insert(name.to_owned(), sender);
                let how = hold::How::of(words[0]);
                tokio::spawn(hold::run(name.to_owned(), lock, how, receiver));
            }
            ["permits", name, key, ttl, weight, max] => {
                let semaphore = locks.semaphore(key, number(max) as u32);
                let semaphore = semaphore.ttl(millis(ttl)).permits(number(weight) as u32);
                let (sender, receiver) = unbounded_channel();
                holds.insert(name.to_owned(), sender);
                let taking = async move { semaphore.acquire().await.map(Some) };
                tokio::spawn(hold::hold(name.to_owned(), taking, receiver));
            }
            ["lead", name, key, ttl] => {
                let campaign = locks.election(key).ttl(millis(ttl)).campaign(name);
                let (sender, receiver) = unbounded_channel();
                holds.insert(name.to_owned(), sender);
                let taking = async { campaign.await.map(Some) };
                tokio::spawn(hold::hold(name.to_owned(), taking, receiver));
            }
            ["waiters", key] => {
                let info = locks.lock(key).inspect().await.expect("a server");
                println!("waiters {}", info.waiters());
            }
            ["look", name] => tell(&holds, name, hold::Order::Look),
            ["release", name] => tell(&holds, name, hold::Order::Release),
            ["write", name, how, url, resource] => {
                let write = hold::Write {
                    checked: how == "checked",
                    url: url.to_owned(),
                    resource: resource.to_owned(),
                };
                tell(&holds, name, hold::Order::Write(write));
            }
            ["fire", name] => tell(&holds, name, hold::Order::Fire),
            ["work", owner, key, tasks, ttl] => {
                crowd.work(&locks.lock(key).ttl(millis(ttl)), owner, number(tasks));
            }
            ["mix", owner, key, tasks, ttl, seed] => {
                let lock = locks.lock(key).ttl(millis(ttl));
                crowd.mix(&lock, owner, number(tasks), number(seed) as u64);
            }
            ["race", key, tasks, ttl] => {
                crowd.race(&locks.lock(key).ttl(millis(ttl)), number(tasks));
            }
            ["read", key, tasks, ttl] => {
                crowd.read(&locks.rw_lock(key).ttl(millis(ttl)), number(tasks));
            }
            ["several", owner, tasks] => several.work(&locks, url, owner, number(tasks)),
            ["end"] => several.stop().await,
            ["stop"] => crowd.stop().await,
            ["fill", prefix, count, ttl] => {
                many.fill(&locks, prefix, number(count), millis(ttl)).await;
            }
            ["count"] => many.count(),
            ["empty"] => many.empty(),
            ["shutdown"] => {
                println!("left {}", locks.shutdown(Duration::from_secs(25)).await);
                return;
            }
            _ => panic!("what is {order:?}?"),
        }
    }
}

fn tell(holds: &HashMap<String, UnboundedSender<hold::Order>>, name: &str, order: hold::Order) {
    let hold = holds.get(name).expect("a known name");
    hold.send(order).expect("a hold that is not over");
}

fn number(word: &str) -> usize {
    word.parse().expect("a number")
}

fn millis(word: &str) -> Duration {
    Duration::from_millis(word.parse().expect("milliseconds"))
}
