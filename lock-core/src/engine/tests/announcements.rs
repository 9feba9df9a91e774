//! When a reader of announcements reads again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::super::announcements::Announcements;
use super::Rig;
use crate::base::clocks::ManualClock;
use crate::base::election::LEADER;
use crate::base::key::LockKey;

/// The end of a lease that nothing announces.
#[tokio::test(start_paused = true)]
async fn an_observer_taken_up_late_reads_when_the_lease_ends() {
    let clock = ManualClock::new();
    let rig = Rig::new("late observer", &clock);
    let key = Arc::new(LockKey::new("lock:", "a").unwrap());
    let mut announcements = Announcements::new(&rig.engine.shared, &key, LEADER);
    assert!(announcements.leader(None).await.unwrap().is_ok());
    let rest = Duration::from_secs(9);
    clock.advance(rest);
    let read_again = announcements.news(rest, rest);
    let soon = timeout(Duration::from_secs(1), read_again).await;
    assert!(soon.is_ok(), "the time counts from the read");
}
