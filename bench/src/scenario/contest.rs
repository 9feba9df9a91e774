//! Many tasks: (b), (c), (d), (f) and (g).

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Kind, Step};
use crate::contestant::Who;
use crate::options::Options;
use crate::stage::{Contest, Stage};
use crate::worker::Contend;

/// Waiters of (c), and of (g).
const HOT: [usize; 4] = [2, 8, 64, 256];
pub(crate) const USED: [usize; 3] = [8, 64, 256];

pub(super) const PROCESSES: usize = 4;

pub(super) struct Spec {
    pub(super) who: Who,
    processes: usize,
    /// In all processes together.
    tasks: usize,
    apart: bool,
    inside: Duration,
    outside: Duration,
    warm_up: Duration,
    span: Duration,
    /// Whether the gaps of the machine are measured in the same turn.
    gaps: bool,
}

impl Spec {
    fn hot(who: Who, processes: usize, tasks: usize) -> Self {
        Self {
            who,
            processes,
            tasks,
            apart: false,
            inside: Duration::ZERO,
            outside: Duration::ZERO,
            // So long Linux moves the processes about before each has found its processor.
            warm_up: Duration::from_millis(400),
            span: Duration::from_millis(900),
            gaps: false,
        }
    }
}

pub(super) fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |scenario, variant: String, spec| {
        let kind = Kind::Contest(spec);
        steps.push(Step {
            scenario,
            variant,
            kind,
        });
    };
    let waiters = |tasks| format!("{tasks} waiters");
    let many = [
        Who::Floor,
        Who::Ours,
        Who::OursCluster,
        Who::Rslock,
        Who::AsyncRedisLock,
    ];
    let patient = [
        Who::Ours,
        Who::OursCluster,
        Who::Rslock,
        Who::RslockTuned,
        Who::AsyncRedisLock,
    ];
    let strict = [
        Who::Ours,
        Who::OursStrict,
        Who::OursCluster,
        Who::Rslock,
        Who::RslockTuned,
        Who::AsyncRedisLock,
    ];

    for who in many {
        let spec = Spec {
            apart: true,
            span: Duration::from_millis(1_500),
            ..Spec::hot(who, 1, 64)
        };
        add("b", "64 tasks".to_owned(), spec);
    }
    // A round with two waiters has one of two speeds, by where the system puts the two workers of the runtime. On one core, the
    // worker that is woken preempts the task that has just released, before that task waits again: it finds no waiter to hand the lock
    // to, and releases it on the server. With a runtime of one thread, and with more waiters, each round is fast.
    for tasks in HOT {
        for who in patient {
            let spec = Spec {
                gaps: who == Who::Ours,
                ..Spec::hot(who, 1, tasks)
            };
            add("c", waiters(tasks), spec);
        }
    }
    // What a hand-over is compared with: a lock and a release of the floor by a task that is alone.
    let alone = Spec::hot(Who::Floor, 1, 1);
    add("d", "1 task, alone".to_owned(), alone);
    for tasks in [64, 256] {
        for who in strict {
            add("d", waiters(tasks), Spec::hot(who, PROCESSES, tasks));
        }
    }
    for who in patient {
        let spec = Spec {
            inside: Duration::from_millis(1),
            outside: Duration::from_millis(1),
            span: Duration::from_millis(1200),
            ..Spec::hot(who, PROCESSES, PROCESSES)
        };
        add("f", waiters(PROCESSES), spec);
    }
    for tasks in USED {
        for who in patient {
            let spec = Spec {
                inside: Duration::from_millis(2),
                outside: Duration::from_millis(5),
                // With 64, long enough for each task to have more than ten turns; with 256 it would be long indeed.
                span: Duration::from_millis(match tasks {
                    64 => 2_800,
                    256 => 1_800,
                    _ => 1_200,
                }),
                ..Spec::hot(who, PROCESSES, tasks)
            };
            add("g", waiters(tasks), spec);
        }
    }
    steps
}

type Figures = Vec<(&'static str, Option<f64>)>;

impl Spec {
    /// The figures, and what must be known to read them.
    pub(super) async fn measure(
        &self,
        options: &Options,
        stage: &mut Stage,
    ) -> Result<(Figures, Option<String>)> {
        let work = |tasks| Contend {
            urls: vec![stage.server().url()],
            who: self.who,
            key: "bench:hot".to_owned(),
            apart: self.apart,
            tasks,
            inside: self.inside,
            outside: self.outside,
        };
        let works = vec![work(self.tasks / self.processes); self.processes];
        let shorter = if options.quick { 4 } else { 1 };
        let contest = stage
            .contest(works, self.warm_up / shorter, self.span / shorter)
            .await?;
        let mut figures = figures(&contest);
        if self.gaps {
            let gap = tokio::task::spawn_blocking({
                let span = self.span / shorter;
                move || longest_gap(span)
            });
            figures.push(("gap_longest_ms", Some(gap.await?.as_secs_f64() * 1e3)));
        }
        Ok((figures, note(&contest, self.apart)))
    }
}

/// The longest time for which a thread that never waits did not run, with as many threads as there are processors and one more.
fn longest_gap(time: Duration) -> Duration {
    let spin = move || {
        let (start, mut longest) = (Instant::now(), Duration::ZERO);
        let mut last = start;
        while last - start < time {
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        longest
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads: Vec<_> = (0..=processors).map(|_| thread::spawn(spin)).collect();
    let gaps = threads.into_iter().filter_map(|thread| thread.join().ok());
    gaps.max().unwrap_or_default()
}

pub(super) fn figures(contest: &Contest) -> Figures {
    let account = &contest.account;
    let rate = |count: usize| Some(count as f64 / account.seconds);
    let each = |amount: f64| (account.grants > 0).then(|| amount / account.grants as f64);
    let scaled = |nanos: Option<u64>, unit: f64| nanos.map(|nanos| nanos as f64 / unit);
    let (micros, millis) = (1e3, 1e6);
    let cycles = &account.cycles;
    let (hand_over, between) = (&account.hand_over, &account.between_processes);
    vec![
        ("acquisitions_per_s", rate(account.grants)),
        ("hand_overs_per_s", rate(account.hand_overs)),
        ("commands_per_acquisition", each(contest.commands as f64)),
        ("cycle_p50_us", scaled(cycles.percentile(50), micros)),
        ("cycle_p99_us", scaled(cycles.percentile(99), micros)),
        ("hand_over_p50_us", scaled(hand_over.percentile(50), micros)),
        ("hand_over_p99_us", scaled(hand_over.percentile(99), micros)),
        (
            "between_processes_p50_us",
            scaled(between.percentile(50), micros),
        ),
        (
            "between_processes_p99_us",
            scaled(between.percentile(99), micros),
        ),
        ("between_processes", Some(between.len() as f64)),
        ("wait_p50_ms", scaled(account.waits.percentile(50), millis)),
        ("wait_p99_ms", scaled(account.waits.percentile(99), millis)),
        ("wait_longest_ms", scaled(account.waits.most(), millis)),
        ("fewest_per_task", Some(account.per_worker.fewest as f64)),
        ("most_per_task", Some(account.per_worker.most as f64)),
        ("fairness_of_tasks", account.per_worker.ratio()),
        ("fairness_of_processes", account.per_process.ratio()),
        ("held_percent", Some(account.held * 100.0)),
        (
            "server_us_per_acquisition",
            each(contest.server_cpu * account.seconds / micros),
        ),
        (
            "client_us_per_acquisition",
            each(contest.client_cpu * account.seconds / micros),
        ),
    ]
}

pub(super) fn note(contest: &Contest, apart: bool) -> Option<String> {
    let account = &contest.account;
    let mut notes = Vec::new();
    // With a key each, all hold theirs at once.
    if account.overlaps > 0 && !apart {
        notes.push(format!(
            "{} grants before the hold before them had ended",
            account.overlaps
        ));
    }
    if account.errors > 0 {
        let first = account.first_error.as_deref().unwrap_or_default();
        notes.push(format!(
            "{} calls failed, the first with: {first}",
            account.errors
        ));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}
