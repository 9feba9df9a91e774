//! Several requests of one caller that were never answered: each of them may still reach the server after the clean-up.

use lock_tests::{DropMode, LIMIT, Proxy, Request, eventually};

use crate::support::{KEY, LONG, NAME, Way, behind, direct, is_acquire, is_release, warm_server};
use crate::support::{until_clean, until_gone};

/// Holds for the second request of its kind.
fn second(kind: fn(&Request) -> bool) -> impl FnMut(&Request) -> bool + Send + 'static {
    let mut seen = 0;
    move |request| {
        let of_kind = kind(request);
        seen += u32::from(of_kind);
        of_kind && seen == 2
    }
}

/// A caller gives up with two requests unanswered: one took the lock, the other reaches the server behind the clean-up.
async fn give_up_with_two_requests_under_way(way: Way) {
    let server = warm_server().await;
    let proxy = Proxy::start(&server);
    let locks = behind(&proxy, LIMIT).await;
    let lock = locks.lock(NAME).ttl(LONG);
    let lost = proxy.drop_next_reply_matching(is_acquire, DropMode::Close);
    let late = proxy.hold_next_request_matching(second(is_acquire));
    // The clean-up looks again after a while. Here it does so once the late request is carried out, however long that takes.
    let again = proxy.hold_next_request_matching(second(is_release));
    let caller = tokio::spawn(async move { way.acquire(&lock).await });
    lost.wait().await;
    late.wait().await;
    assert!(server.exists(KEY).await);

    // The connection goes as well, so that the clean-up has to take another one and overtakes what hangs on this one.
    caller.abort();
    proxy.reset();
    assert!(caller.await.unwrap_err().is_cancelled());
    until_gone(&server, KEY).await;
    late.deliver();
    eventually("the late request takes the lock", LIMIT, async || {
        server.exists(KEY).await
    })
    .await;
    again.deliver();
    let lock = direct(&server).await.lock(NAME);
    eventually("the lock is free", LIMIT, async || {
        !lock.inspect().await.unwrap().is_held()
    })
    .await;
    assert_eq!(locks.shutdown(LIMIT).await, 0);
    until_clean(&server).await;
}

#[tokio::test]
async fn the_later_of_two_unanswered_requests_of_a_try_is_undone_too() {
    give_up_with_two_requests_under_way(Way::Try).await;
}

#[tokio::test]
async fn the_later_of_two_unanswered_requests_of_a_limited_wait_is_undone_too() {
    give_up_with_two_requests_under_way(Way::Within).await;
}

#[tokio::test]
async fn the_later_of_two_unanswered_requests_of_an_endless_wait_is_undone_too() {
    give_up_with_two_requests_under_way(Way::Forever).await;
}
