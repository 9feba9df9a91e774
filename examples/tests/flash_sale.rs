//! The flash sale, run as a user would: what is sold, what is refused, and what is left behind.

#[expect(dead_code, reason = "another test program needs the rest")]
mod program;
#[path = "flash_sale/report.rs"]
mod report;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lock_examples::PrivateServer;

use program::{Ended, Running, command, lives};
use report::Report;

/// A folder for reports; gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("flash-sale-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a folder of our own");
        Self(path)
    }

    fn report(&self) -> PathBuf {
        self.0.join("report.html")
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a small sale on a server of its own.
fn sale(options: &str, out: &Path) -> Report {
    let mut command = command("flash_sale", None);
    command.args(options.split(' ')).arg("--out").arg(out);
    let ended = Ended::new(command.output().expect("the example starts"));
    Report::read(&ended.success())
}

fn sells_exactly_the_stock(strategy: &str) {
    let folder = Folder::new();
    let options = format!("--strategy {strategy} --stock 30 --buyers 90 --processes 3");
    let report = sale(&options, &folder.report());
    let sale = &report.sales[strategy];
    assert_eq!((sale.sold, sale.oversold, sale.lost), (30, 0, 0));
    assert_eq!((sale.stored, sale.twice, sale.workers_killed), (30, 0, 2));
    // Whoever was killed had orders in hand, and some of them were stored already.
    assert!(sale.claimed > sale.stored_before && sale.stored_before > 0);
    assert!(sale.refused > 0, "greedy users are refused");
    assert!(folder.report().is_file());
}

#[test]
fn a_script_sells_exactly_the_stock() {
    sells_exactly_the_stock("script");
}

#[test]
fn transactions_sell_exactly_the_stock() {
    sells_exactly_the_stock("transaction");
}

#[test]
fn a_lock_sells_exactly_the_stock() {
    sells_exactly_the_stock("lock");
}

#[test]
fn a_reentrant_lock_sells_exactly_the_stock() {
    sells_exactly_the_stock("reentrant");
}

#[test]
fn guarded_writes_sell_exactly_the_stock() {
    sells_exactly_the_stock("guarded");
}

#[test]
fn a_segmented_lock_sells_exactly_the_stock() {
    sells_exactly_the_stock("segmented");
}

#[test]
fn segments_in_a_cluster_sell_exactly_the_stock_though_a_master_is_killed() {
    let folder = Folder::new();
    let mut command = command("flash_sale", None);
    command.args("--cluster --stock 60 --buyers 200 --processes 3".split(' '));
    let output = command.arg("--out").arg(folder.report()).output();
    let output = Ended::new(output.expect("the example starts")).success();
    let sold = "\ncluster: 60 sold, 60 stored, 0 lost, 0 twice; 1 master killed after ";
    assert!(output.contains(sold), "{output}");
    assert!(folder.report().is_file());
}

#[test]
fn where_there_are_fewer_buyers_than_pieces_each_gets_one() {
    let folder = Folder::new();
    let options = "--strategy segmented --stock 50 --buyers 7 --processes 2 --seed 3";
    let sale = &sale(options, &folder.report()).sales["segmented"];
    assert!(sale.sold >= 7 && sale.sold < 20, "{}", sale.sold);
    assert_eq!((sale.stored, sale.oversold, sale.lost), (sale.sold, 0, 0));
}

fn oversells_at_least_once_in_ten_runs(strategy: &str) {
    let folder = Folder::new();
    for seed in 1..=10 {
        let options =
            format!("--strategy {strategy} --stock 30 --buyers 90 --processes 2 --seed {seed}");
        let sale = &sale(&options, &folder.report()).sales[strategy];
        // Its orders are all there: there are only too many of them.
        assert_eq!((sale.lost, sale.twice), (0, 0));
        if sale.oversold > 0 && sale.lost_updates > 0 {
            assert_eq!(sale.sold, 30 + sale.oversold);
            return;
        }
    }
    panic!("`{strategy}` did everything right in ten runs");
}

#[test]
fn to_get_and_then_set_oversells() {
    oversells_at_least_once_in_ten_runs("broken-get-then-set");
}

#[test]
fn to_delete_the_lock_of_whoever_has_it_oversells() {
    oversells_at_least_once_in_ten_runs("broken-del");
}

/// Kills one holder and pauses another past its lease: what is sold is the stock, and the paused one writes nothing.
fn sells_exactly_the_stock_in_chaos(strategy: &str, seed: u64) {
    let folder = Folder::new();
    let options = format!(
        "--strategy {strategy} --stock 24 --buyers 120 --processes 3 --seed {seed} --chaos"
    );
    let sale = &sale(&options, &folder.report()).sales[strategy];
    assert_eq!((sale.sold, sale.oversold, sale.lost), (24, 0, 0));
    assert_eq!((sale.stored, sale.twice, sale.lost_updates), (24, 0, 0));
    assert_eq!((sale.holders_killed, sale.holders_paused), (1, 1));
    // The paused one woke up with its write before it, when its lock was another's.
    assert!(sale.stale_tried >= 1);
    assert_eq!(sale.stale_refused, sale.stale_tried);
}

#[test]
fn a_holder_that_is_paused_at_its_work_writes_nothing_after_its_lease() {
    sells_exactly_the_stock_in_chaos("lock", 1);
    sells_exactly_the_stock_in_chaos("reentrant", 1);
}

/// Paused after its last look at the lock: only the server can refuse the write.
#[test]
fn a_holder_paused_before_a_guarded_write_writes_nothing_after_its_lease() {
    for seed in 1..=4 {
        sells_exactly_the_stock_in_chaos("guarded", seed);
    }
}

#[test]
fn what_needs_no_lock_sells_exactly_the_stock_in_chaos() {
    let folder = Folder::new();
    for strategy in ["script", "transaction"] {
        let options =
            format!("--strategy {strategy} --stock 24 --buyers 120 --processes 3 --chaos");
        let sale = &sale(&options, &folder.report()).sales[strategy];
        assert_eq!((sale.sold, sale.stored, sale.twice), (24, 24, 0));
        assert_eq!((sale.oversold, sale.lost, sale.lost_updates), (0, 0, 0));
    }
}

#[test]
fn it_runs_on_the_server_of_redis_url_and_leaves_it_clean() {
    let (server, folder) = (PrivateServer::start().unwrap(), Folder::new());
    let mut command = command("flash_sale", Some(&server.url()));
    command.args("--strategy all --stock 10 --buyers 20 --processes 2 --work-ms 1".split(' '));
    let output = command.arg("--out").arg(folder.report()).output();
    let output = Ended::new(output.unwrap()).success();
    assert!(output.starts_with("The stock is on the server of REDIS_URL"));
    assert_eq!(Report::read(&output).sales.len(), 8);
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let left: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    // The counter of fencing tokens and the number of the format stay by design; the requests of a user are forgotten after half a
    // minute.
    let stays = |key: &&String| matches!(key.as_str(), "lock-core:fence" | "lock-core:format");
    for key in left.iter().filter(|key| !stays(key)) {
        let ttl: i64 = redis::cmd("PTTL").arg(key).query(&mut connection).unwrap();
        assert!(ttl > 0 && key.contains(":requests:"), "{key}: {ttl}");
    }
}

#[test]
fn wrong_options_are_one_sentence_and_exit_code_2() {
    let folder = Folder::new();
    for (options, words) in [
        ("--stock 0", "--stock `0`"),
        ("--stock -5", "--stock `-5`"),
        ("--buyers 1e3", "--buyers `1e3`"),
        ("--buyers 0", "from 1 to"),
        ("--processes 0", "--processes `0`"),
        ("--processes 33", "from 1 to 32"),
        ("--work-ms -1", "--work-ms `-1`"),
        ("--seed x", "--seed `x`"),
        ("--strategy best", "there is no strategy `best`"),
        ("--strategy", "wants a value"),
        ("--sock 5", "there is no option `--sock`"),
        ("sell", "there is no option `sell`"),
        ("--out /nonexistent/report.html", "--out"),
        ("--out /", "--out"),
        ("--out /dev/null", "--out"),
        ("--cluster --chaos", "--cluster"),
    ] {
        let mut command = command("flash_sale", None);
        command.args(options.split(' ')).current_dir(&folder.0);
        let ended = Ended::new(command.output().unwrap());
        assert_eq!(ended.status.code(), Some(2), "{options}");
        let complaint = ended.complaint();
        assert!(complaint.contains(words), "{complaint}");
        assert!(complaint.starts_with("flash_sale: "), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
    assert!(folder.is_empty());
}

#[test]
fn a_server_that_is_none_is_one_sentence() {
    let folder = Folder::new();
    for url in [
        "localhost:6379",
        "memory://",
        "redis://me:secret@127.0.0.1:1",
    ] {
        let mut command = command("flash_sale", Some(url));
        command.current_dir(&folder.0);
        let complaint = Ended::new(command.output().unwrap()).failure();
        assert!(complaint.starts_with("flash_sale: "), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
    }
    assert!(folder.is_empty());
}

/// Waits until a sale is in full swing.
fn begun(server: &PrivateServer) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let start = Instant::now();
    loop {
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("*:orders")
            .query(&mut connection)
            .unwrap();
        let orders: u64 = keys.first().map_or(0, |orders| {
            let mut length = redis::cmd("XLEN");
            length.arg(orders).query(&mut connection).unwrap()
        });
        if orders >= 5 {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is sold");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A sale that takes a while, into this folder.
fn long_sale(server: &PrivateServer, folder: &Folder) -> Running {
    let mut command = command("flash_sale", Some(&server.url()));
    command.args("--strategy lock --stock 500 --buyers 1000 --processes 2".split(' '));
    command.arg("--out").arg(folder.report());
    // The database of orders, too, shall be gone in the end.
    command.env("TMPDIR", &folder.0);
    Running::start_command(command)
}

fn all_gone(family: &[u32]) {
    let start = Instant::now();
    while family.iter().any(|pid| lives(*pid)) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "left: {family:?}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_that_goes_in_the_middle_is_one_sentence_and_no_report() {
    let (server, folder) = (PrivateServer::start().unwrap(), Folder::new());
    let running = long_sale(&server, &folder);
    begun(&server);
    let family = running.family();
    assert!(family.len() >= 4, "{family:?}");
    drop(server);
    let complaint = running.end().failure();
    assert!(
        complaint.starts_with("flash_sale: `lock` was broken off: "),
        "{complaint}"
    );
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    all_gone(&family);
    assert!(folder.is_empty(), "no report, not even a part of one");
}

#[test]
fn an_interrupted_sale_leaves_nothing_behind() {
    for signal in ["INT", "TERM"] {
        let (server, folder) = (PrivateServer::start().unwrap(), Folder::new());
        let running = long_sale(&server, &folder);
        begun(&server);
        let family = running.family();
        running.signal(signal);
        let complaint = running.end().failure();
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        all_gone(&family);
        assert!(folder.is_empty());
    }
}

#[test]
fn a_killed_sale_leaves_no_process_behind() {
    let (server, folder) = (PrivateServer::start().unwrap(), Folder::new());
    let running = long_sale(&server, &folder);
    begun(&server);
    let family = running.family();
    running.signal("KILL");
    assert_eq!(running.end().status.code(), None);
    all_gone(&family);
    assert!(!folder.report().exists());
}

#[test]
fn an_older_report_is_replaced_as_a_whole() {
    let folder = Folder::new();
    std::fs::write(folder.report(), "an older report").unwrap();
    sale(
        "--strategy script --stock 5 --buyers 9 --processes 1",
        &folder.report(),
    );
    let page = std::fs::read_to_string(folder.report()).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}
