//! The world itself: time, processes and traces.
#![cfg(lock_sim)]

use std::time::{Duration, Instant};

use lock_core::{LockError, LockGuard, LockManager, LossReason};
use lock_simulation::meter::Limits;
use lock_simulation::network::{Delay, Target};
use lock_simulation::process::{Process, Sockets};
use lock_simulation::world::{Outcome, Settings, World};
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(9);

fn kept(seed: u64) -> Settings {
    Settings {
        seed,
        keep_trace: true,
        ..Settings::default()
    }
}

async fn locks(process: &Process) -> LockManager {
    process.connect(LockManager::builder()).await.unwrap()
}

/// Takes a lock in a process, and keeps the guard.
async fn hold(process: &Process, locks: &LockManager) -> LockGuard {
    let lock = locks.lock("a").ttl(TTL);
    let taken = process.spawn(async move { lock.acquire().await });
    taken.await.unwrap().unwrap()
}

/// Runs without a finding to its end.
fn ran<T>(outcome: Outcome<T>) -> T {
    assert_eq!(outcome.findings, [], "{}", outcome.lines.join("\n"));
    outcome.value.unwrap()
}

/// Processes that take and release two locks, with delays.
fn busy(settings: Settings) -> Outcome<()> {
    World::run(settings, async |world| {
        let delay = Delay::between(1, 30).or_none(50);
        world.network().delay(Target::All, delay);
        world.network().split(20);
        let mut tasks = Vec::new();
        for index in 0..3 {
            let process = world.process(index);
            let locks = locks(&process).await;
            for task in 0..3 {
                let (world, locks) = (world.clone(), locks.clone());
                let mut rng = world.rng(index as u64 * 10 + task);
                tasks.push(process.spawn(async move {
                    for _ in 0..20 {
                        let key = if rng.bool() { "a" } else { "b" };
                        let guard = locks.lock(key).ttl(TTL).acquire().await.unwrap();
                        world.note(format_args!("p{index}.{task}"), format_args!("has {key}"));
                        sleep(Duration::from_millis(rng.u64(..20))).await;
                        guard.release().await.unwrap();
                    }
                }));
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
    })
}

#[test]
fn one_seed_is_one_trace_and_another_seed_another() {
    let (one, again, other) = (busy(kept(1)), busy(kept(1)), busy(kept(2)));
    assert!(one.lines.len() > 500, "{}", one.lines.len());
    for (number, (one, again)) in one.lines.iter().zip(&again.lines).enumerate() {
        assert_eq!(one, again, "line {number}");
    }
    assert_eq!((one.hash, one.lines.len()), (again.hash, again.lines.len()));
    assert_ne!(one.hash, other.hash);
    let unkept = busy(Settings::from(1));
    assert_eq!((one.hash, 0), (unkept.hash, unkept.lines.len()));
}

#[test]
fn hours_of_a_lease_cost_no_time() {
    let began = Instant::now();
    let scripts = ran(World::run(kept(1), async |world| {
        world.network().delay(Target::All, Delay::between(1, 5));
        let process = world.process(0);
        let guard = hold(&process, &locks(&process).await).await;
        sleep(Duration::from_secs(10 * 3600)).await;
        assert!(guard.is_held());
        let left = world.server().with(|master| master.ttl_micros(b"lock:a"));
        assert!(left.unwrap() >= guard.remaining().as_micros() as i64);
        process
            .spawn(async move { guard.release().await })
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            world.server().with(|master| master.keys().len()),
            2,
            "the counter, and the number of the format"
        );
        world.server().scripts()
    }));
    assert!((10_000..20_000).contains(&scripts["extend"]), "{scripts:?}");
    assert_eq!(
        (scripts["acquire"], scripts["release"]),
        (2, 2),
        "with their texts"
    );
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_waiter_has_the_lock_when_the_holder_lets_go() {
    for resp2 in [false, true] {
        let waited = ran(World::run(kept(1), async |world| {
            world.network().delay(Target::All, Delay::between(1, 5));
            let (one, other) = (world.process(1), world.process(2));
            let guard = hold(&one, &locks(&one).await).await;
            let builder = LockManager::builder();
            let others = if resp2 {
                other.connect_resp2(builder).await.unwrap()
            } else {
                other.connect(builder).await.unwrap()
            };
            let waiter = other.spawn({
                let other = other.clone();
                async move { hold(&other, &others).await }
            });
            // Between two refreshes, which come every 3 s: a grant that crosses a refresh is confirmed by one more request.
            sleep(Duration::from_millis(61_500)).await;
            assert!(!waiter.is_finished());
            let released = world.now();
            one.spawn(async move { guard.release().await })
                .await
                .unwrap()
                .unwrap();
            assert!(waiter.await.unwrap().is_held());
            world.now().saturating_sub(released)
        }));
        let most = if resp2 { 200 } else { 20 };
        assert!(
            waited < Duration::from_millis(most),
            "{waited:?}, resp2: {resp2}"
        );
    }
}

#[test]
fn a_connection_of_the_user_serves_and_is_made_again() {
    ran(World::run(kept(1), async |world| {
        let process = world.process(0);
        let locks = process.connect_over(LockManager::builder()).unwrap();
        assert!(hold(&process, &locks).await.is_held());
        assert_eq!(world.network().reset(Target::Process(0)), 1);
        sleep(Duration::from_secs(20)).await;
        assert!(hold(&process, &locks).await.is_held());
        assert_eq!(world.network().counts(0).made, 2);
    }));
}

#[test]
fn a_paused_process_does_nothing_and_its_time_goes_on() {
    ran(World::run(kept(1), async |world| {
        let process = world.process(0);
        let guard = hold(&process, &locks(&process).await).await;
        process.pause();
        let commands = world.server().commands();
        sleep(TTL * 2).await;
        assert_eq!(world.server().commands(), commands);
        assert!(!guard.is_held());
        process.resume();
        let lost = process.spawn(async move { guard.lost().await });
        assert_eq!(lost.await.unwrap(), LossReason::Expired);
    }));
}

#[test]
fn a_crashed_process_says_nothing_and_its_lock_stays_for_its_ttl() {
    for sockets in [Sockets::Closed, Sockets::Silent] {
        ran(World::run(kept(1), async |world| {
            let (one, other) = (world.process(1), world.process(2));
            let locks_of_one = locks(&one).await;
            let held = one.spawn(async move {
                let _guard = locks_of_one.lock("a").ttl(TTL).acquire().await.unwrap();
                std::future::pending::<()>().await;
            });
            sleep(Duration::from_secs(1)).await;
            let releases = world.server().scripts().get("release").copied();
            one.crash(sockets);
            assert!(held.await.unwrap_err().is_cancelled());
            assert_eq!(world.network().counts(1).open, 0);
            sleep(Duration::from_millis(100)).await;
            let silent = usize::from(sockets == Sockets::Silent);
            assert_eq!(world.network().known_to_server().len(), silent);
            let crashed = world.now();
            assert!(hold(&other, &locks(&other).await).await.is_held());
            let waited = world.now().saturating_sub(crashed);
            assert!(waited > TTL / 2 && waited < TTL, "{waited:?}");
            assert_eq!(world.server().scripts().get("release").copied(), releases);
            one.restart();
            assert!(locks(&one).await.lock("b").try_acquire().await.is_ok());
        }));
    }
}

#[test]
fn nothing_is_spawned_in_a_runtime_that_has_ended() {
    ran(World::run(kept(1), async |world| {
        let process = world.process(0);
        let locks = locks(&process).await;
        let old = process.runtime();
        let task = old.spawn(std::future::pending::<()>());
        process.end_runtime();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(old.spawn(async {}).await.unwrap_err().is_cancelled());
        assert!(!process.runtime().has_ended());
        let refused = process.spawn(async move { locks.lock("a").acquire().await });
        assert!(matches!(
            refused.await.unwrap(),
            Err(LockError::InvalidConfig { .. })
        ));
    }));
}

#[test]
fn what_never_waits_for_time_is_found() {
    let limits = Limits {
        polls_per_instant: 10_000,
        ..Limits::default()
    };
    let settings = Settings { limits, ..kept(1) };
    let outcome = World::run(settings, async |world| {
        let spinning = world.process(0).spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        spinning.await.unwrap_or(());
    });
    assert_eq!(outcome.findings[0].rule, "livelock");
    assert_eq!(outcome.value, None);
}

#[test]
fn a_run_that_does_not_end_is_found() {
    let limits = Limits {
        time: Duration::from_secs(100),
        commands: 50,
        ..Limits::default()
    };
    let settings = Settings { limits, ..kept(1) };
    let endless = World::run(settings, async |_| std::future::pending::<()>().await);
    assert_eq!(endless.findings[0].rule, "time");
    assert_eq!(endless.lasted, limits.time);
    let chatty = World::run(settings, async |world| {
        let process = world.process(0);
        let locks = locks(&process).await;
        loop {
            drop(hold(&process, &locks).await);
            sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(chatty.findings[0].rule, "commands");
    assert_eq!(chatty.value, None);
}

#[test]
fn two_processes_of_the_machine_have_the_same_trace() {
    let hash = || {
        let mut seeds = std::process::Command::new(env!("CARGO_BIN_EXE_lock-simulation"));
        let output = seeds.args(["--hash", "--seeds", "20"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (one, other) = (hash(), hash());
    assert_eq!(one.lines().count(), 20, "{one}");
    assert_eq!(one, other);
}
