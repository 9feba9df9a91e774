//! What the cases of elections have in common.

use std::time::Duration;

use lock_core::{Leader, Leaders};
use lock_tests::{LIMIT, in_time};

use crate::rig::Rig;

/// A lease whose end is waited for.
pub(crate) const TTL: Duration = Duration::from_millis(1500);

pub(crate) async fn on(rig: Rig, case: impl AsyncFn(&Rig)) {
    // The limit only ends a case that hangs.
    tokio::time::timeout(LIMIT * 2, case(&rig))
        .await
        .expect("the case ends");
}

/// The next leader that the stream shows, after any time without one.
pub(crate) async fn next_leader(leaders: &mut Leaders) -> Leader {
    in_time("the next leader", async {
        loop {
            if let Some(leader) = leaders.next().await.expect("the stream goes on") {
                return leader;
            }
        }
    })
    .await
}

/// Waits until the stream shows that there is no leader.
pub(crate) async fn no_leader(leaders: &mut Leaders) {
    in_time("the end of the leader", async {
        while leaders.next().await.expect("the stream goes on").is_some() {}
    })
    .await;
}
