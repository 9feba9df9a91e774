//! P8: first come, first served, whichever process asked.

use std::time::Duration;

use lock_tests::TestServer;

use crate::contender::{Contender, LONG, observer};

const WAITERS: usize = 12;

/// Proves P8.
#[tokio::test]
async fn waiters_of_different_processes_are_served_in_queue_order() {
    let server = TestServer::start().await;
    let lock = observer(&server, "k").await;
    // One place each: those who wait in one process have one between them.
    let mut processes: [Contender; WAITERS] = Contender::several(&server).await;
    let mut newcomer = Contender::start(&server.url(), "multi").await;
    let mut first = Contender::start(&server.url(), "current").await;
    first.acquire("f", "k", Duration::from_secs(3)).await;
    // Not in the order in which they were started.
    let order: Vec<usize> = (0..WAITERS).map(|n| n * 5 % WAITERS).collect();
    for (n, process) in order.iter().enumerate() {
        let place = n as u64 + 1;
        processes[*process]
            .queue(&format!("w{n}"), &lock, LONG, place)
            .await;
    }
    // From here on it takes the lock in any gap it finds.
    newcomer.order(&format!("hammer h k {}", LONG.as_millis()));
    newcomer.order(&format!("try t k {}", LONG.as_millis()));
    newcomer.answer("busy t").await;

    // The lease runs out, so for a moment nobody has the lock: the queue goes before who asks first.
    first.child.kill();
    let mut before = 0;
    let mut first_served = u64::MAX;
    for (n, process) in order.iter().enumerate() {
        let name = format!("w{n}");
        let grant = processes[*process].granted(&name).await;
        assert!(grant.fence > before, "{name} was served before another");
        assert_eq!(
            lock.inspect().await.unwrap().waiters(),
            (WAITERS - n - 1) as u64
        );
        before = grant.fence;
        first_served = first_served.min(grant.granted);
        processes[*process].release(&name).await;
    }
    let last = newcomer.granted("h").await;
    assert!(last.fence > before);
    assert!(last.asked < first_served, "it was there all the time");
}
