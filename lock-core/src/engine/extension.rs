//! Extension of a lease by its holder: a new ttl, from the call until the server has confirmed it.
//!
//! A renewal with the new ttl is not sent while another one is under way. Otherwise the server could carry out the older one last
//! and keep the lock for a shorter time than the holder believes.

use crate::base::terms::Terms;
use crate::store::StoreError;

/// The calls of one lease. Numbers tell them apart: the last call decides the ttl, and an earlier one ends with it.
#[derive(Debug, Default)]
pub(super) struct Extension {
    asked: u64,
    /// The terms of the last call, until a renewal is sent with them.
    wanted: Option<Terms>,
    /// The last call that a renewal was sent for.
    sent: u64,
    confirmed: u64,
    failed: Option<(u64, StoreError)>,
}

impl Extension {
    /// A new call. Returns its number.
    pub(super) fn ask(&mut self, terms: Terms) -> u64 {
        self.asked += 1;
        self.wanted = Some(terms);
        self.asked
    }

    /// Whether a call waits for its renewal.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// A renewal is sent. Returns the terms that it must have, if they are new.
    pub(super) fn send(&mut self) -> Option<Terms> {
        let wanted = self.wanted.take()?;
        self.sent = self.asked;
        Some(wanted)
    }

    /// A renewal was confirmed. Returns whether a call ends with it.
    pub(super) fn confirm(&mut self) -> bool {
        let ends = self.confirmed < self.sent;
        self.confirmed = self.sent;
        ends
    }

    /// A renewal has failed. Returns whether a call ends with it.
    pub(super) fn fail(&mut self, error: &StoreError) -> bool {
        let ends = self.confirmed < self.sent;
        if ends {
            self.failed = Some((self.sent, error.clone()));
        }
        ends
    }

    /// How the call with this number ended, if it has.
    pub(super) fn outcome(&self, number: u64) -> Option<Result<(), StoreError>> {
        if self.confirmed >= number {
            return Some(Ok(()));
        }
        match &self.failed {
            Some((last, error)) if *last >= number => Some(Err(error.clone())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::base::error::Cause;

    fn terms(seconds: u64) -> Terms {
        let ttl = Duration::from_secs(seconds);
        Terms::new(ttl, ttl, Duration::from_millis(2))
    }

    fn error() -> StoreError {
        StoreError::Ambiguous(Cause::of(Arc::new(std::fmt::Error)))
    }

    #[test]
    fn a_call_ends_with_the_first_answer_to_a_renewal_with_its_terms() {
        let mut extension = Extension::default();
        let one = extension.ask(terms(5));
        // The answer to a renewal that was sent before.
        assert!(!extension.confirm() && !extension.fail(&error()));
        assert!(extension.outcome(one).is_none());
        assert_eq!(extension.send(), Some(terms(5)));
        assert!(extension.confirm());
        assert!(matches!(extension.outcome(one), Some(Ok(()))));
    }

    #[test]
    fn the_last_call_decides_and_an_earlier_one_ends_with_it() {
        let mut extension = Extension::default();
        let (one, two) = (extension.ask(terms(5)), extension.ask(terms(7)));
        assert_eq!(extension.send(), Some(terms(7)));
        assert!(extension.send().is_none() && !extension.is_wanted());
        let three = extension.ask(terms(9));
        assert!(extension.fail(&error()));
        assert!(matches!(extension.outcome(one), Some(Err(_))));
        assert!(matches!(extension.outcome(two), Some(Err(_))));
        assert!(extension.outcome(three).is_none());
        // The watchdog goes on with the terms of the last call.
        assert_eq!(extension.send(), Some(terms(9)));
        assert!(extension.confirm());
        assert!(matches!(extension.outcome(three), Some(Ok(()))));
    }
}
