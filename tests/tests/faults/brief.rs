//! Requests in their brief form: what is sent, and that tokens grow although the server does not look at its clock.

use lock_core::{LockGuard, LockManager};
use lock_tests::kit::{command, until_clean, warm_server};
use lock_tests::{LIMIT, Proxy, Request, TestServer, eventually};
use redis::Value;

use crate::support::{NAME, behind, direct, ms, until_waiting};

/// The brief forms.
const ACQUIRE: (&str, usize) = ("acquire", 7);
const RELEASE: (&str, usize) = ("release", 3);

/// A server, a proxy before it, and a client behind that.
struct Rig {
    server: TestServer,
    proxy: Proxy,
    locks: LockManager,
}

impl Rig {
    /// The client has acquired and released once.
    async fn start() -> Self {
        let server = warm_server().await;
        let proxy = Proxy::start(&server);
        let locks = behind(&proxy, LIMIT).await;
        let rig = Self {
            server,
            proxy,
            locks,
        };
        rig.used_once().await;
        rig
    }

    async fn acquire(&self) -> LockGuard {
        let lock = self.locks.lock(NAME).ttl(ms(60_000));
        lock.acquire().await.unwrap()
    }

    async fn held_by_another(&self) -> LockGuard {
        let lock = direct(&self.server).await.lock(NAME);
        lock.acquire().await.unwrap()
    }

    /// The fencing token of a hold that is over.
    async fn used_once(&self) -> u64 {
        let guard = self.acquire().await;
        let token = guard.fencing_token().get();
        guard.release().await.unwrap();
        token
    }

    /// The scripts for locks that are called from here on, with the number of their keys and arguments.
    fn calls(&self) -> impl Fn() -> Vec<(&'static str, usize)> + '_ {
        let before = self.proxy.requests().len();
        move || {
            let requests = self.proxy.requests();
            // The verb, the script and the number of keys come before them.
            let call = |request: &Request| Some((request.script()?, request.args().len() - 3));
            let calls = requests[before..].iter().filter_map(call);
            calls
                .filter(|(script, _)| ["acquire", "release"].contains(script))
                .collect()
        }
    }
}

#[tokio::test]
async fn a_lonely_lock_is_asked_for_and_released_in_brief() {
    let rig = Rig::start().await;
    let calls = rig.calls();
    let (first, second) = (rig.used_once().await, rig.used_once().await);
    assert!(second > first);
    assert_eq!(calls(), [ACQUIRE, RELEASE, ACQUIRE, RELEASE]);
    until_clean(&rig.server).await;
}

/// The new connection may lead to a server with an old copy of the data. Proves P10.
#[tokio::test]
async fn a_new_connection_looks_at_the_clock_before_it_counts_on() {
    let rig = Rig::start().await;
    let before = rig.used_once().await;
    let older = before - 1_000_000;
    rig.proxy.refuse(true);
    rig.proxy.reset();
    let () = command(&rig.server, &format!("SET lock-core:fence {older}")).await;
    rig.proxy.refuse(false);
    let calls = rig.calls();
    eventually("it is connected", LIMIT, async || {
        // The first call may still meet the end of the connection.
        rig.locks.lock(NAME).inspect().await.is_ok()
    })
    .await;
    let after = rig.acquire().await;
    assert!(after.fencing_token().get() > before);
    // A client that is still busy with the connection asks by a batch, which looks at the clock too.
    assert!(!calls().contains(&ACQUIRE));
}

/// Proves P10.
#[tokio::test]
async fn a_counter_that_is_lost_under_an_open_connection_costs_no_order() {
    let rig = Rig::start().await;
    let mut last = rig.used_once().await;
    for counter in ["SET 7", "SET -1", "SET none", "SET 0.5", "LPUSH 1", "DEL"] {
        let (verb, value) = counter.split_once(' ').unwrap_or((counter, ""));
        let _: u64 = command(&rig.server, "DEL lock-core:fence").await;
        let _: Value = command(&rig.server, &format!("{verb} lock-core:fence {value}")).await;
        let next = rig.used_once().await;
        assert!(next > last, "{counter}");
        last = next;
    }
}

/// Another client raises the counter to the largest token that it knows. Proves P10.
#[tokio::test]
async fn a_counter_that_another_client_has_raised_meanwhile_costs_no_order() {
    let rig = Rig::start().await;
    let proxy = Proxy::start(&rig.server);
    let other = behind(&proxy, LIMIT).await.lock("other");
    other.acquire().await.unwrap().release().await.unwrap();
    rig.used_once().await;
    let last = rig.used_once().await;
    let () = command(&rig.server, "FLUSHALL").await;
    proxy.reset();
    eventually("the counter is raised", LIMIT, async || {
        // It may still meet the end of the connection.
        let _ = other.inspect().await;
        rig.server.exists("lock-core:fence").await
    })
    .await;
    assert!(rig.used_once().await > last);
}

#[tokio::test]
async fn a_holder_that_was_told_of_a_waiter_hands_over_in_one_request() {
    let rig = Rig::start().await;
    let other = direct(&rig.server).await.lock(NAME);
    let held = rig.acquire().await;
    let waiting = tokio::spawn(async move { other.acquire().await });
    // Over the connection of the holder: the message came before the answer.
    until_waiting(&rig.locks.lock(NAME), 1).await;
    let calls = rig.calls();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_held());
    assert_eq!(calls(), [("release", 5)]);
}

/// Proves P4.
#[tokio::test]
async fn a_holder_that_was_not_told_of_a_waiter_hands_over_too() {
    let rig = Rig::start().await;
    let other = direct(&rig.server).await.lock(NAME);
    let held = rig.acquire().await;
    rig.proxy.drop_pushes(true);
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.acquire().await }
    });
    until_waiting(&other, 1).await;
    let calls = rig.calls();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_held());
    assert_eq!(calls(), [RELEASE, ("release", 5)]);
}

#[tokio::test]
async fn a_try_that_finds_the_lock_held_is_one_request() {
    let rig = Rig::start().await;
    let held = rig.held_by_another().await;
    let calls = rig.calls();
    assert!(rig.locks.lock(NAME).try_acquire().await.unwrap().is_none());
    assert_eq!(calls(), [ACQUIRE]);
    drop(held);
}

/// Proves P8.
#[tokio::test]
async fn a_waiter_has_its_place_from_its_first_request_on() {
    let rig = Rig::start().await;
    let held = rig.held_by_another().await;
    let calls = rig.calls();
    let waiting = tokio::spawn({
        let lock = rig.locks.lock(NAME);
        async move { lock.acquire().await }
    });
    until_waiting(&rig.locks.lock(NAME), 1).await;
    assert_eq!(calls(), [ACQUIRE]);
    held.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_held());
}
