//! Votes that are split.

use std::sync::Arc;

use tokio::sync::Barrier;

use super::rig::Quorum;

const CLIENTS: usize = 5;
const ROUNDS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_clients_at_once_somebody_wins_soon_and_nobody_keeps_a_minority() {
    let quorum = Quorum::start(5).await;
    let mut managers = Vec::new();
    for _ in 0..CLIENTS {
        managers.push(quorum.manager().await);
    }
    let mut needed = Vec::new();
    for round in 0..ROUNDS {
        let key = format!("round:{round}");
        let mut tries = 0;
        loop {
            tries += 1;
            let barrier = Arc::new(Barrier::new(CLIENTS));
            let attempts = managers.iter().map(|locks| {
                let (lock, barrier) = (locks.lock(&key), Arc::clone(&barrier));
                tokio::spawn(async move {
                    barrier.wait().await;
                    lock.try_acquire().await.unwrap()
                })
            });
            let attempts: Vec<_> = attempts.collect();
            let mut won = Vec::new();
            for attempt in attempts {
                won.extend(attempt.await.unwrap());
            }
            assert!(won.len() <= 1, "{} winners", won.len());
            if let Some(guard) = won.pop() {
                guard.release().await.unwrap();
                break;
            }
            assert!(tries < 100, "nobody ever wins");
        }
        needed.push(tries);
        quorum.no_votes(&key, &[0, 1, 2, 3, 4]).await;
    }
    needed.sort_unstable();
    assert!(
        needed[ROUNDS / 2] <= 3,
        "rounds that were needed: {needed:?}"
    );
}
