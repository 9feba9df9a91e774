//! Who leads an election.

use std::time::Duration;

use super::Engine;
use super::announcements::{Announcements, ReadFailures};
use crate::base::claim::PLAIN;
use crate::base::election::LeaderSnapshot;
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::refusal::Refusal;

impl Engine {
    /// Who leads an election.
    pub(crate) async fn leader(&self, key: &LockKey) -> Result<LeaderSnapshot, LockError> {
        let leader = self.shared.store.leader(key).await;
        self.told(leader, key, &PLAIN)
    }
}

impl Announcements {
    /// Reads the leader of the election. A server that does not answer is asked again for this long; `None` for no limit.
    pub(crate) async fn leader(
        &mut self,
        patience: Option<Duration>,
    ) -> Result<Result<LeaderSnapshot, Refusal>, LockError> {
        let mut failures = ReadFailures::new(self.shared.clock.now(), patience);
        loop {
            self.ready().await?;
            // The caller may take up the answer much later.
            self.read_at = Some(self.shared.clock.now());
            match self.shared.store.leader(&self.cell.key).await {
                Ok(leader) => return Ok(leader),
                Err(error) => self.failed(error, &mut failures).await?,
            }
        }
    }
}
