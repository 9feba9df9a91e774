//! What the server tells us unasked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::contender::Contender;
use super::wait::Wait;
use crate::key::LockKey;
use crate::store::{Events, Grant};
use crate::sync::lock;

impl Shared {
    fn contender_of(&self, token: &str) -> Option<Arc<Contender>> {
        let sequence = self.client.sequence_of(token)?;
        lock(&self.registry).contenders.get(&sequence).cloned()
    }
}

impl Events for Shared {
    fn granted(&self, token: &str, grant: Grant, name: &str) {
        let Some(sequence) = self.client.sequence_of(token) else {
            return;
        };
        match self.contender_of(token) {
            Some(contender) if !contender.is_over() => {
                if grant.contended {
                    contender.contended.store(true, Ordering::SeqCst);
                }
                contender.tell(|wait| wait.pushed(grant));
            }
            // Given up, and being watched for requests that come late: this is one.
            Some(contender) => self.undo_again(&contender),
            // Forgotten. Where the lock is kept for `at_least`, it is a message that came twice.
            None if lock(&self.registry).is_kept(sequence, self.now()) => {}
            None => self.decline(sequence, name, grant.ttl),
        }
    }

    fn contended(&self, token: &str) {
        let Some(contender) = self.contender_of(token) else {
            return;
        };
        // First for who takes the grant, then for who has taken it: so it is seen whichever comes first.
        contender.contended.store(true, Ordering::SeqCst);
        if let Some(line) = contender.line() {
            line.contended(&contender, self.now());
        }
    }

    fn revoked(&self, token: &str) {
        if let Some(contender) = self.contender_of(token)
            && contender.revoke()
        {
            self.lease_due_at(self.now());
        }
    }

    fn freed(&self, token: &str) {
        if let Some(contender) = self.contender_of(token) {
            contender.tell(Wait::interrupted);
        }
    }

    fn unlocked(&self, name: &str) {
        let key = LockKey::reentrant_named(name);
        let line = lock(&self.registry).existing_line(&key).cloned();
        if let Some(line) = line {
            line.announced();
        }
    }

    fn interrupted(&self) {
        let registry = lock(&self.registry);
        for line in registry.lines() {
            line.interrupted();
        }
        for contender in registry.contenders.values() {
            lock(&contender.wait).interrupted();
        }
    }

    /// Waiters have been told when the connection broke. A holder may have missed that its lock was taken away, or that another
    /// process waits: every lease is confirmed, and every turn is bounded as if another process waited.
    fn reconnected(&self) {
        let now = self.now();
        let registry = lock(&self.registry);
        for contender in registry.contenders.values() {
            contender.contended.store(true, Ordering::SeqCst);
            if let Some(lease) = contender.lease() {
                lease.confirm_at(now);
            }
            if let Some(line) = contender.line() {
                line.contended(contender, now);
            }
        }
        for line in registry.lines() {
            line.reconnected();
        }
        drop(registry);
        self.lease_due_at(now);
    }

    fn is_in_use(&self) -> bool {
        !lock(&self.registry).contenders.is_empty()
    }
}

impl Shared {
    /// Nothing is acquired any more: whatever is not held yet waits, or its request is still under way.
    pub(super) fn close(&self) {
        let mut registry = lock(&self.registry);
        registry.closing = true;
        for contender in registry.contenders.values() {
            contender.tell(Wait::shut_down);
        }
        for line in registry.lines() {
            line.shut_down();
        }
    }
}
