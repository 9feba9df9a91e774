//! What locks cost in allocations. A binary of its own, since its allocator counts.

use std::alloc::System;
use std::sync::{Mutex, PoisonError};

use lock_core::{Lock, LockError, LockManager};
use lock_tests::{LIMIT, TestServer, eventually};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::Runtime;

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// On `memory://`.
const IN_MEMORY: usize = 7;
/// On a server: those, and two requests with their replies, most of it inside the `redis` crate.
const ON_A_SERVER: usize = 17;

const CYCLES: usize = 100;

/// Another test at the same time would be counted, too.
static ALONE: Mutex<()> = Mutex::new(());

fn runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap()
}

#[test]
fn a_free_lock_costs_no_more_allocations_than_it_did() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = runtime();
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

#[test]
fn a_set_that_waits_costs_the_same_for_each_of_its_keys() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (few, many) = runtime().block_on(async { (waiting(100).await, waiting(800).await) });
    assert!(many < few * 2, "of 100 keys {few} each, of 800 {many} each");
}

/// Allocations for each key of a set that waits for its last one.
async fn waiting(count: usize) -> usize {
    let url = format!("memory://set-of-{count}");
    let (locks, other) = (
        LockManager::connect(&url).await.unwrap(),
        LockManager::connect(&url).await.unwrap(),
    );
    let keys: Vec<_> = (0..count).map(|key| format!("{key:04}")).collect();
    let last = other.lock(keys.last().unwrap());
    let held = last.acquire().await.unwrap();
    let region = Region::new(COUNTING);
    let waits = tokio::spawn(locks.all(&keys).acquire());
    eventually("it waits for the last", LIMIT, async || {
        last.inspect().await.unwrap().waiters() == 1
    })
    .await;
    let change = region.change();
    held.release().await.unwrap();
    drop(waits.await.unwrap().unwrap());
    (change.allocations + change.reallocations) / count
}
