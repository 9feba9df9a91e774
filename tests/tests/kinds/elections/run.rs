//! A candidate that leads again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lock_core::{FencingToken, LockError, LockGuard, LockManager};
use lock_tests::{LIMIT, TestServer, eventually, in_time};
use tokio::sync::mpsc::unbounded_channel;

use super::rig::{TTL, next_leader};
use crate::rig::Rig;

pub(crate) async fn a_body_that_ends_ends_the_run(rig: &Rig) {
    let locks = rig.manager().await;
    let election = locks.election("e");
    let mut terms = Vec::new();
    let outcome = election.run("a", async |leadership| {
        assert_eq!(LockGuard::current().expect("in scope").key(), "e");
        terms.push(leadership.term());
        7
    });
    assert_eq!(in_time("the run", outcome).await.unwrap(), 7);
    assert_eq!(terms.len(), 1);
    let next = in_time("the next", election.campaign("b")).await.unwrap();
    assert!(next.term() > terms[0]);
}

pub(crate) async fn a_lost_leadership_drops_the_body_and_campaigns_again(rig: &Rig) {
    struct Dropped(tokio::sync::mpsc::UnboundedSender<Option<FencingToken>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send(None);
        }
    }
    let locks = rig.manager().await;
    // Over a connection of the user, the next renewal finds the loss.
    let election = locks.election("e").ttl(TTL / 2);
    let (sender, mut said) = unbounded_channel();
    let running = tokio::spawn(async move {
        let run = election.run("a", async move |leadership| {
            let _dropped = Dropped(sender.clone());
            sender.send(Some(leadership.term())).unwrap();
            std::future::pending::<()>().await;
        });
        run.await
    });
    let mut last = None;
    for _ in 0..3 {
        let term = in_time("it leads", said.recv()).await.unwrap();
        assert!(term > last);
        last = term;
        assert!(rig.manager().await.lock("e").force_release().await.unwrap());
        assert_eq!(in_time("it is dropped", said.recv()).await, Some(None));
    }
    in_time("it leads", said.recv()).await.unwrap();
    locks.shutdown(Duration::from_secs(1)).await;
    let ended = in_time("the run ends", running).await.unwrap();
    assert!(matches!(ended, Err(LockError::ShutDown)), "{ended:?}");
}

#[tokio::test]
async fn a_candidate_steps_down_while_it_must_not_lead() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let (sick, checks) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
    );
    let ttl = Duration::from_millis(90);
    let (is_sick, counted) = (Arc::clone(&sick), Arc::clone(&checks));
    let first = locks.election("e").ttl(ttl).step_down_if(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let sick = is_sick.load(Ordering::SeqCst);
        async move { sick }
    });
    let running = tokio::spawn(async move {
        first
            .run("first", async |_| std::future::pending::<()>().await)
            .await
    });
    let observer = locks.election("e");
    let mut leaders = observer.observe().await.unwrap();
    let term = next_leader(&mut leaders).await.term();
    sick.store(true, Ordering::SeqCst);
    let other = locks.election("e").campaign("other");
    let other = in_time("the other leads", other).await.unwrap();
    // The first is asked, and does not campaign.
    let before = checks.load(Ordering::SeqCst);
    eventually("it is asked", LIMIT, async || {
        checks.load(Ordering::SeqCst) > before + 2
    })
    .await;
    assert_eq!(locks.lock("e").inspect().await.unwrap().waiters(), 0);
    sick.store(false, Ordering::SeqCst);
    other.resign().await.unwrap();
    let again = async {
        loop {
            let leader = next_leader(&mut leaders).await;
            if leader.value() == "first" && leader.term() > term {
                break;
            }
        }
    };
    in_time("it leads again", again).await;
    running.abort();
}

/// Proves P19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_says_no_and_yes_in_turn_begins_no_terms_without_a_pause() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let ttl = Duration::from_millis(300);
    let checks = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&checks);
    let election = locks.election("e").ttl(ttl).step_down_if(move || {
        let sick = counted.fetch_add(1, Ordering::SeqCst) % 2 == 1;
        async move { sick }
    });
    let begun = Instant::now();
    let running = tokio::spawn(async move { election.run("a", async |_| ()).await });
    // Two checks a term, and one when it campaigns again.
    eventually("four terms", LIMIT, async || {
        checks.load(Ordering::SeqCst) > 8
    })
    .await;
    assert!(begun.elapsed() >= ttl / 3 * 4 && !running.is_finished());
    running.abort();
}

/// What it spawns may block: on the thread of the manager that would keep the renewals. Proves P19.
#[tokio::test]
async fn a_check_runs_in_the_runtime_of_its_caller() {
    let builder = LockManager::builder().own_thread();
    let locks = builder.connect("memory://").await.unwrap();
    let election = locks.election("e").step_down_if(|| async {
        let spawned = tokio::spawn(async { thread::current().name() == Some("lock-core") });
        spawned.await.unwrap()
    });
    let run = election.run("a", async |_| 7);
    assert_eq!(in_time("the body runs", run).await.unwrap(), 7);
}

#[tokio::test]
async fn a_check_that_hangs_counts_as_a_reason_to_step_down() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let checks = Arc::new(AtomicU32::new(0));
    let election = locks
        .election("e")
        .ttl(Duration::from_millis(90))
        .step_down_if(move || {
            // Before the campaign, before the body, and then while it leads.
            let hangs = checks.fetch_add(1, Ordering::SeqCst) == 2;
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                false
            }
        });
    let mut terms = Vec::new();
    let run = election.run("a", async |leadership| {
        terms.push(leadership.term());
        if terms.len() == 1 {
            std::future::pending::<()>().await;
        }
    });
    in_time("the second term", run).await.unwrap();
    assert_eq!(terms.len(), 2);
}

#[tokio::test]
async fn a_run_waits_for_a_server_that_is_away() {
    let server = TestServer::start().await;
    let builder = LockManager::builder().default_ttl(Duration::from_millis(600));
    let builder = builder.command_deadline(Duration::from_millis(200));
    let locks = builder.connect(&server.url()).await.unwrap();
    let (sender, mut said) = unbounded_channel();
    let election = locks.election("e");
    let running = tokio::spawn(async move {
        let run = election.run("a", async move |leadership| {
            sender.send(leadership.term()).unwrap();
            std::future::pending::<()>().await;
        });
        run.await
    });
    let first = in_time("it leads", said.recv()).await.unwrap();
    server.kill();
    let observer = locks.election("e").observe().await.unwrap_err();
    assert!(
        matches!(observer, LockError::Unavailable { .. }),
        "{observer}"
    );
    server.restart().await;
    let second = in_time("it leads again", said.recv()).await.unwrap();
    assert!(second > first && !running.is_finished());
}

#[tokio::test]
async fn a_candidate_that_must_not_lead_ends_with_its_manager() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let election = locks.election("e").step_down_if(|| async { true });
    let running = tokio::spawn(async move { election.run("a", async |_| ()).await });
    tokio::task::yield_now().await;
    locks.shutdown(LIMIT).await;
    let ended = in_time("the run ends", running).await.unwrap();
    assert!(matches!(ended, Err(LockError::ShutDown)), "{ended:?}");
}

#[tokio::test]
async fn a_candidate_that_must_not_lead_is_refused_what_is_wrong() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let sick = |key| locks.election(key).step_down_if(|| async { true });
    let no_ttl = sick("e").ttl(Duration::ZERO);
    let error = no_ttl.run("a", async |_| ()).await.unwrap_err();
    assert!(matches!(error, LockError::InvalidConfig { .. }), "{error}");
    let error = sick("").run("a", async |_| ()).await.unwrap_err();
    assert!(matches!(error, LockError::InvalidKey { .. }), "{error}");
}

#[tokio::test]
async fn a_campaign_inside_a_run_is_a_deadlock_whatever_its_value() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let election = locks.election("e");
    for value in ["a", "b"] {
        let inside = election.run("a", async |_| election.campaign(value).await.map(drop));
        let refused = in_time("it is refused", Box::pin(inside)).await.unwrap();
        let error = refused.unwrap_err();
        assert!(matches!(error, LockError::Deadlock { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_candidate_is_asked_once_more_when_its_wait_is_over() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let leader = locks.election("e").campaign("a").await.unwrap();
    let sick = Arc::new(AtomicBool::new(false));
    let is_sick = Arc::clone(&sick);
    let election = locks.election("e").step_down_if(move || {
        let sick = is_sick.load(Ordering::SeqCst);
        async move { sick }
    });
    let led = Arc::new(AtomicBool::new(false));
    let has_led = Arc::clone(&led);
    let running = tokio::spawn(async move {
        let run = election.run("b", async move |_| has_led.store(true, Ordering::SeqCst));
        run.await
    });
    let lock = locks.lock("e");
    eventually("it waits", LIMIT, async || {
        lock.inspect().await.unwrap().waiters() == 1
    })
    .await;
    sick.store(true, Ordering::SeqCst);
    leader.resign().await.unwrap();
    eventually("it has stepped down", LIMIT, async || {
        let info = lock.inspect().await.unwrap();
        !info.is_held() && info.waiters() == 0
    })
    .await;
    assert!(!led.load(Ordering::SeqCst));
    running.abort();
}

/// A manager with a thread of its own needs no runtime, and so no timers of one.
#[test]
fn a_manager_with_its_own_thread_brings_the_timers() {
    let locks = {
        let builder = LockManager::builder().own_thread();
        let connecting = builder.connect("memory://");
        let runtime = tokio::runtime::Builder::new_current_thread();
        { runtime }
            .enable_all()
            .build()
            .unwrap()
            .block_on(connecting)
    };
    let locks = locks.unwrap();
    let bare = tokio::runtime::Builder::new_current_thread().build();
    bare.unwrap().block_on(async {
        let limit = Duration::from_millis(10);
        let late = locks.latch("l", 1).wait_within(limit).await;
        assert!(matches!(late, Err(LockError::NotOpen { .. })), "{late:?}");
        let election = locks.election("e").ttl(limit * 3);
        let checks = AtomicU32::new(0);
        let checks = Arc::new(checks);
        let election = election.step_down_if(move || {
            let sick = checks.fetch_add(1, Ordering::SeqCst) == 0;
            async move { sick }
        });
        assert_eq!(election.run("a", async |_| 7).await.unwrap(), 7);
        let mut leaders = election.observe().await.unwrap();
        leaders.next().await.expect("the stream has begun");
    });
}
