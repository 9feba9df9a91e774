//! The last releases. A server that takes the place of another one may not have received them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::acquisition::Acquisition;
use crate::base::claim::Claim;
use crate::base::key::LockKey;
use crate::base::terms::Terms;
use crate::base::time::Moment;

/// Maximum number of releases that are kept. For a busy client they cover the last milliseconds before a failover, and a failover
/// loses mostly those.
const MAX_RELEASES: usize = 1024;

/// How much later than here a lease may end on a server.
const LATER: Duration = Duration::from_secs(1);

/// An acquisition that was released and forgotten.
#[derive(Debug, Clone)]
pub(super) struct ReleasedLately {
    pub(super) key: Arc<LockKey>,
    pub(super) sequence: u64,
    pub(super) terms: Terms,
    pub(super) claim: Claim,
    /// The end of its lease on a server that has not received the release.
    until: Moment,
}

/// The last releases, in their order.
#[derive(Debug, Default)]
pub(super) struct LastReleases(VecDeque<ReleasedLately>);

impl LastReleases {
    /// Keeps the release of this acquisition, if it had the lock.
    pub(super) fn add(&mut self, acquisition: &Acquisition) {
        let Some(lease) = acquisition.lease() else {
            return;
        };
        if self.0.len() == MAX_RELEASES {
            self.0.pop_front();
        }
        self.0.push_back(ReleasedLately {
            key: Arc::clone(&acquisition.key),
            sequence: acquisition.sequence,
            terms: lease.terms(),
            claim: acquisition.claim.clone(),
            until: lease.end() + LATER,
        });
    }

    /// The releases whose leases may still last.
    pub(super) fn lasting(&self, now: Moment) -> impl Iterator<Item = &ReleasedLately> {
        self.0.iter().filter(move |released| released.until > now)
    }
}
