//! The program as a whole.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_lock-bench");
/// Only ends a test that hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("lock-bench-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_quick_run_writes_its_figures_and_plots() {
    let folder = Folder::new("quick");
    let json = folder.0.join("results.json");
    let output = Command::new(PROGRAM)
        .args(["--quick", "--only", "a,f,h", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("demanded at most 1.35: "), "{out}");

    let results: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(results["notes"], Value::Array(Vec::new()), "{err}");
    let figure = |contestant: &str, variant: &str, name: &str| {
        let scenarios = results["measures"].as_object().unwrap();
        let mut variants = scenarios
            .values()
            .filter_map(|scenario| scenario.get(variant));
        let figures = variants.next().expect("it was measured");
        figures[name][contestant][0].as_f64()
    };
    for contestant in ["lock-core", "rslock", "async-redis-lock", "raw floor"] {
        // Counted in the network and by the server, which must agree: two commands, and nothing else.
        for name in ["requests_seen", "requests_counted"] {
            assert_eq!(
                figure(contestant, "requests", name),
                Some(2.0),
                "{contestant}"
            );
        }
        assert!(figure(contestant, "multi-thread", "p50_us").is_some_and(|p50| p50 > 0.0));
    }
    for contestant in ["lock-core", "rslock", "raw floor"] {
        for variant in ["5 masters", "1 of 5 stopped", "2 of 5 stopped"] {
            let cycles = figure(contestant, variant, "cycles");
            assert!(
                cycles.is_some_and(|cycles| cycles >= 1.0),
                "{contestant}, {variant}"
            );
        }
    }
    assert!(figure("lock-core", "4 waiters", "between_processes").is_some_and(|n| n > 0.0));
    let plot = fs::read_to_string(folder.0.join("uncontended.svg")).unwrap();
    assert!(plot.contains("async-redis-lock"));
    assert!(folder.0.join("quorum.svg").exists());
}

#[test]
fn plots_are_drawn_anew_from_figures_alone() {
    let folder = Folder::new("plots");
    let json = folder.0.join("figures.json");
    fs::write(
        &json,
        r#"{"about":{"date":"2026-01-01","quick":false,"rounds":1,"cores":2,"system":"","server":"","versions":{}},
        "measures":{"c":{"64 waiters":{"acquisitions_per_s":{"rslock":[77.0,70.0,90.0]}}}},
        "verdicts":[],"notes":[]}"#,
    )
    .unwrap();
    let drawn = Command::new(PROGRAM).arg("--plots").arg(&json).status();
    assert!(drawn.unwrap().success());
    let plot = fs::read_to_string(folder.0.join("hot-key.svg")).unwrap();
    assert!(plot.contains(">77<"), "{plot}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_that_is_ended_leaves_nobody_behind() {
    for signal in [Signal::INT, Signal::KILL] {
        let mark = format!("LOCK_BENCH_RUN={}-{signal:?}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut run = Command::new(PROGRAM)
            .args(["--only", "d"])
            .env(name, value)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A step with four workers.
        let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("64 waiters")));
        eventually("the workers run", || family(&mark) >= 6);
        end(&mut run, signal);
        eventually("all have ended", || family(&mark) == 0);
    }
}

fn end(run: &mut Child, signal: Signal) {
    kill_process(Pid::from_child(run), signal).unwrap();
    run.wait().unwrap();
}

/// How many processes have this in their environment: the run, its workers, its server, and who watches over them.
fn family(mark: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|process| {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            environment
                .split(|&byte| byte == 0)
                .any(|line| line == mark.as_bytes())
        })
        .count()
}

fn eventually(what: &str, check: impl Fn() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < LIMIT, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
