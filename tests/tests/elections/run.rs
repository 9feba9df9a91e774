//! A candidate that leads again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{FencingToken, LockError, LockGuard, LockManager};
use lock_tests::{LIMIT, TestServer, eventually, in_time};
use tokio::sync::mpsc::unbounded_channel;

use super::rig::{Rig, TTL, next_leader};

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

#[tokio::test]
async fn a_check_that_hangs_counts_as_a_reason_to_step_down() {
    let locks = LockManager::connect("memory://").await.unwrap();
    let checks = Arc::new(AtomicU32::new(0));
    let election = locks
        .election("e")
        .ttl(Duration::from_millis(90))
        .step_down_if(move || {
            let hangs = checks.fetch_add(1, Ordering::SeqCst) == 1;
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
