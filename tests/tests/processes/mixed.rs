//! P1 and P10 where hand-overs inside processes and between them, cancelled callers, dropped guards, leases that run
//! out and killed processes come together.

use std::time::{Duration, Instant};

use lock_tests::TestServer;

use crate::contender::stamp;
use crate::crew::{Crew, TTL};

const PROCESSES: usize = 3;
const TIME: Duration = Duration::from_secs(10);

fn mix(name: &str, seed: usize) -> String {
    format!("mix {name} shared 6 {} {seed}", TTL.as_millis())
}

#[tokio::test]
async fn a_mixed_life_has_neither_an_overlap_nor_a_fencing_token_out_of_order() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let server = TestServer::start().await;
    let mut crew = Crew::start(&server, PROCESSES, mix).await;
    crew.each_goes_on().await;
    let start = Instant::now();
    let mut kills = 0;
    while start.elapsed() < TIME {
        crew.all_go_on().await;
        let victim = if random.bool() {
            crew.last_holder()
        } else {
            random.usize(..PROCESSES)
        };
        let now = stamp();
        crew.kill(victim).await;
        kills += 1;
        crew.others_go_on(victim, now).await;
    }
    crew.each_goes_on().await;
    let history = crew.stop().await;
    let mut holds: Vec<_> = history.holds().iter().collect();
    holds.sort_by_key(|hold| hold.fence);
    let process = |owner: &str| owner.split('.').next().map(str::to_owned);
    let rows = holds.chunk_by(|one, next| process(&one.owner) == process(&next.owner));
    let (all, rows) = (holds.len(), rows.count());
    println!("{all} holds in {rows} rows, {kills} kills");
    assert!(rows < all, "nothing was handed over inside a process");
    assert_eq!(history.violations(), []);
}
