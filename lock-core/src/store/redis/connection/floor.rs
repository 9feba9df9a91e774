//! Where the counters of fencing tokens are known to be at the clock of their server, or above.
//!
//! Most scripts mint by the clock of the server: so tokens grow also if the server has lost its counter, was started again with an old
//! copy, or is a replica that lags and was promoted. The brief form of a request only counts on, which is cheaper. It goes out only on
//! a connection on which such a script has granted a moment ago: whatever loses data also ends the connection. If an operator puts an
//! older copy under an open connection, tokens may be smaller until the moment is over.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::base::sync::lock;
use crate::base::time::Moment;

/// How long a client counts on after a grant by the clock.
const LASTS: Duration = Duration::from_secs(5);

/// The counters behind one connection, by the slot of a cluster, and until when each counts on.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct Floors(Mutex<BTreeMap<u16, Moment>>);

impl Floors {
    /// A script has minted by the clock.
    pub(in crate::store::redis) fn laid(&self, slot: u16, now: Moment) {
        lock(&self.0).insert(slot, now + LASTS);
    }

    pub(in crate::store::redis) fn holds(&self, slot: u16, now: Moment) -> bool {
        let until = lock(&self.0).get(&slot).copied();
        until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_of_one_slot_and_holds_for_five_seconds() {
        let (floors, now) = (Floors::default(), Moment(1));
        assert!(!floors.holds(7, now));
        floors.laid(7, now);
        assert!(floors.holds(7, now + LASTS / 2) && !floors.holds(8, now));
        assert!(!floors.holds(7, now + Duration::from_secs(5)));
    }
}
