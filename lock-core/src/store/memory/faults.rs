//! What a test does to a server in memory: it is away, for all clients or for one, or answers late.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use crate::base::error::Cause;
use crate::base::sync::lock;
use crate::store::StoreError;

#[derive(Default)]
pub(crate) struct Faults(Mutex<Present>);

/// The present faults.
#[derive(Default)]
struct Present {
    is_away: bool,
    cut_off: HashSet<Box<str>>,
    delay: Option<Duration>,
}

impl Faults {
    /// Whether neither a request of this client nor a message to it arrives.
    pub(super) fn separate(&self, client: &str) -> bool {
        let present = lock(&self.0);
        present.is_away || present.cut_off.contains(client)
    }

    pub(super) fn delay(&self) -> Option<Duration> {
        lock(&self.0).delay
    }

    /// From now on no request and no message arrives.
    pub(crate) fn goes_away(&self) {
        lock(&self.0).is_away = true;
    }

    /// The same for this client alone.
    pub(crate) fn cuts_off(&self, client: &str) {
        lock(&self.0).cut_off.insert(client.into());
    }

    /// All clients reach the server again, with the locks that have not ended meanwhile.
    pub(crate) fn comes_back(&self) {
        let mut present = lock(&self.0);
        present.is_away = false;
        present.cut_off.clear();
    }

    /// The answer to each request for a lock takes this long.
    pub(crate) fn answers_after(&self, delay: Duration) {
        lock(&self.0).delay = (!delay.is_zero()).then_some(delay);
    }
}

/// The error of a request that does not arrive.
pub(super) fn away() -> StoreError {
    StoreError::NotNow(Cause::new("a test has cut the connection"))
}
