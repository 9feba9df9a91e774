//! What a free lock costs in allocations. A binary of its own, since its allocator counts.

use std::alloc::System;

use lock_core::{Lock, LockError, LockManager};
use lock_tests::TestServer;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::Runtime;

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// On `memory://`.
const IN_MEMORY: usize = 7;
/// On a server: those, and two requests with their replies, most of it inside the `redis` crate.
const ON_A_SERVER: usize = 17;

const CYCLES: usize = 100;

/// One test for both stores: another test at the same time would be counted, too.
#[test]
fn a_free_lock_costs_no_more_allocations_than_it_did() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    assert_eq!(counted(&runtime, "memory://"), IN_MEMORY, "on memory://");
    let server = runtime.block_on(TestServer::start());
    assert_eq!(counted(&runtime, &server.url()), ON_A_SERVER, "on a server");
}

/// Allocations of one acquire and its release.
fn counted(runtime: &Runtime, url: &str) -> usize {
    runtime.block_on(async {
        let lock = LockManager::connect(url).await.unwrap().lock("allocations");
        cycles(&lock).await.unwrap();
        let mut least = usize::MAX;
        // The test harness has threads of its own, which may allocate meanwhile. They can only add.
        for _ in 0..20 {
            let region = Region::new(COUNTING);
            cycles(&lock).await.unwrap();
            let change = region.change();
            least = least.min(change.allocations + change.reallocations);
        }
        // What is allocated once in many cycles, such as a block of a channel, rounds away.
        least / CYCLES
    })
}

async fn cycles(lock: &Lock) -> Result<(), LockError> {
    for _ in 0..CYCLES {
        lock.acquire().await?.release().await?;
    }
    Ok(())
}
