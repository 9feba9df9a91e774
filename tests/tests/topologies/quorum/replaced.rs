//! A server behind an address that is replaced while only some clients notice.

use std::time::Duration;

use lock_tests::{LIMIT, Proxy, TestServer, eventually};

use super::rig::{Quorum, behind};

const TTL: Duration = Duration::from_secs(2);

/// The busy client has noticed that the address of the second node leads to a new server, which votes by now. The idle one is
/// still connected to the old server. Proves P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_client_gets_no_vote_of_a_server_that_was_replaced() {
    let (quorum, standby) = (
        Quorum::start_with(3, TTL * 2).await,
        TestServer::start().await,
    );
    let nodes = &quorum.nodes;
    let (second, third) = (Proxy::start(&nodes[1]), Proxy::start(&nodes[2]));
    let by_second = behind(&second, &nodes[1]);
    let by_third = behind(&third, &nodes[2]);
    let manager = async |urls: [String; 3]| quorum.builder().connect_quorum(urls).await.unwrap();
    let busy = manager([nodes[0].url(), by_second.clone(), by_third]).await;
    let idle = manager([nodes[0].url(), by_second, nodes[2].url()]).await;
    for locks in [&busy, &idle] {
        let guard = locks.lock("used").acquire().await.unwrap();
        quorum.voted("used", &[0, 1, 2]).await;
        guard.release().await.unwrap();
        quorum.no_votes("used", &[0, 1, 2]).await;
    }
    second.retarget(standby.addr());
    eventually("the new server votes", LIMIT, async || {
        let guard = busy.lock("b").acquire().await.unwrap();
        // Its vote may come a little later.
        let voted = tokio::time::timeout(TTL / 10, async {
            while !standby.exists("lock:b").await {
                tokio::task::yield_now().await;
            }
        });
        let voted = voted.await.is_ok();
        guard.release().await.unwrap();
        voted
    })
    .await;
    // The busy one reaches the first and the new server.
    third.refuse(true);
    third.reset();
    let guard = busy.lock("a").acquire_within(LIMIT).await.unwrap();
    let second = idle.lock("a").try_acquire().await;
    if let Ok(Some(second)) = second {
        assert!(!(second.is_held() && guard.is_held()), "two believers");
    }
}
