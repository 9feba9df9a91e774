//! P1 and P10: four processes contend while some are paused and killed.

use lock_tests::TestServer;

use crate::contender::{nanos, stamp};
use crate::crew::{Crew, TTL};

const PROCESSES: usize = 4;
const FAULTS: usize = 9;

fn work(name: &str, _: usize) -> String {
    format!("work {name} shared 4 {}", TTL.as_millis())
}

/// Proves P1.
#[tokio::test]
async fn processes_that_are_paused_and_killed_never_hold_one_lock_at_one_time() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let server = TestServer::start().await;
    let mut crew = Crew::start(&server, PROCESSES, work).await;
    crew.each_goes_on().await;
    for fault in 0..FAULTS {
        // Now and then the next fault comes while all still recover from the last one.
        if random.u8(..4) > 0 {
            crew.all_go_on().await;
        }
        match fault % 3 {
            0 => {
                let victim = crew.pause_the_holder().await;
                // It is some time since the stop; only a grant after the end of its lease counts.
                crew.others_go_on(victim, stamp() + nanos(TTL)).await;
                crew.members[victim].child.cont();
            }
            1 => {
                let victim = random.usize(..PROCESSES);
                crew.members[victim].child.stop();
                crew.others_go_on(victim, stamp() + nanos(TTL)).await;
                crew.members[victim].child.cont();
            }
            _ => {
                let victim = crew.last_holder();
                let now = stamp();
                crew.kill(victim).await;
                crew.others_go_on(victim, now).await;
            }
        }
    }
    crew.each_goes_on().await;
    let history = crew.stop().await;
    println!("{} holds", history.holds().len());
    assert_eq!(history.violations(), []);
}
