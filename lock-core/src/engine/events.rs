//! Messages that the server sends unasked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::acquisition::Acquisition;
use super::lease::Status;
use super::shared::{Command, Shared};
use super::state::{Action, State};
use crate::base::key::LockKey;
use crate::base::observe::Event;
use crate::base::sync::lock;
use crate::store::{Concerned, Events, Grant};

impl Shared {
    fn acquisition_of(&self, token: &str) -> Option<Arc<Acquisition>> {
        self.acquisition_with(self.client.sequence_of(token)?)
    }

    fn acquisition_with(&self, sequence: u64) -> Option<Arc<Acquisition>> {
        lock(&self.registry).acquisitions.get(&sequence).cloned()
    }

    /// Passes a message on to the acquisition with this token.
    fn tell(&self, token: &str, message: impl FnOnce(&mut State) -> Action) {
        if let Some(acquisition) = self.acquisition_of(token) {
            let action = message(&mut lock(&acquisition.life).state);
            self.act(&acquisition, action);
        }
    }
}

impl Events for Shared {
    fn granted(&self, token: &str, grant: Grant, name: &str) {
        let Some(sequence) = self.client.sequence_of(token) else {
            return;
        };
        self.has_token(grant.fence.saturating_add(grant.reserve));
        match self.acquisition_with(sequence) {
            Some(acquisition) => {
                let action = lock(&acquisition.life).state.pushed(grant);
                self.act(&acquisition, action);
            }
            // The acquisition was forgotten. If the lock is kept for `at_least`, the message came twice.
            None if lock(&self.registry).is_kept(sequence, self.clock.now()) => {}
            None => {
                if let Some(key) = LockKey::named(self.config.prefix(), name, grant.kind) {
                    self.decline(sequence, Arc::new(key), grant.ttl);
                }
            }
        }
    }

    fn contended(&self, token: &str) {
        let Some(acquisition) = self.acquisition_of(token) else {
            return;
        };
        // Set the flag first, for a later take of the grant, then tell the line, for an earlier one: contention is seen in either
        // order.
        lock(&acquisition.life).state.contended();
        if let Some(line) = self.line_of(&acquisition) {
            line.contended(&acquisition, self.clock.now());
        }
    }

    fn revoked(&self, token: &str) {
        let now = self.clock.now();
        self.tell(token, |state| state.revoked(now));
    }

    fn freed(&self, token: &str) {
        self.tell(token, State::freed);
    }

    fn unlocked(&self, name: &str) {
        for key in LockKey::announced(name) {
            let line = lock(&self.registry).existing_line(&key).cloned();
            if let Some(line) = line {
                line.announced();
            }
        }
        self.news.announced(name);
    }

    fn interrupted(&self, of: Concerned<'_>) {
        let registry = lock(&self.registry);
        let acquisitions = registry.acquisitions.values();
        for acquisition in acquisitions.filter(|acquisition| of(&acquisition.key)) {
            lock(&acquisition.life).state.interrupted();
            acquisition.wake();
        }
        drop(registry);
        self.news.interrupted(of);
    }

    /// The waiters were told when the connection broke. A holder may have missed a revocation, or that another process waits:
    /// every lease is confirmed, and every turn is limited as if another process waited. The server may be another one, which has
    /// not heard of the last releases: they are repeated.
    fn reconnected(&self, of: Concerned<'_>) {
        let (now, is_back) = (self.clock.now(), self.outages.is_any());
        let registry = lock(&self.registry);
        for line in registry.lines().filter(|line| of(&line.key)) {
            line.reconnected();
        }
        let acquisitions = registry.acquisitions.values();
        for acquisition in acquisitions.filter(|acquisition| of(&acquisition.key)) {
            lock(&acquisition.life).state.contended();
            if let Some(lease) = acquisition.lease() {
                lease.confirm_at(now);
                if is_back {
                    lease.is_doubted();
                }
            }
            if let Some(line) = registry.existing_line(&acquisition.key) {
                line.contended(acquisition, now);
            }
            acquisition.wake();
        }
        let mut released = registry.last_releases(now);
        released.retain(|released| of(&released.key));
        drop(registry);
        self.reconnected.notify_waiters();
        self.news.interrupted(of);
        self.lease_due_at(now);
        self.outages_end(of);
        if !released.is_empty() {
            let _ = self.send(Command::RepeatReleases(released));
        }
    }

    #[cfg(feature = "quorum")]
    fn to_be_confirmed(&self, tokens: &[u64]) {
        let now = self.clock.now();
        for acquisition in tokens.iter().filter_map(|it| self.acquisition_with(*it)) {
            if let Some(bare) = acquisition.lease() {
                bare.confirm_at(now);
            }
        }
        self.lease_due_at(now);
    }

    fn is_in_use(&self) -> bool {
        !lock(&self.registry).acquisitions.is_empty() || !self.news.is_empty()
    }

    fn has_released_lately(&self) -> bool {
        lock(&self.registry).has_released_lately(self.clock.now())
    }

    fn observed(&self, event: &Event<'_>) {
        self.config.observed.tell(event);
    }

    fn largest_token(&self) -> u64 {
        self.largest_token.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// The server has given this client a fencing token.
    pub(super) fn has_token(&self, token: u64) {
        self.largest_token.fetch_max(token, Ordering::Relaxed);
    }

    /// The server says that a token of this client holds the lock that an acquisition waits for.
    pub(super) fn check_own_holder(&self, sequence: u64, key: &Arc<LockKey>, remaining: Duration) {
        let now = self.clock.now();
        let registry = lock(&self.registry);
        match registry.acquisitions.get(&sequence) {
            // Its grant message was lost, so it does not know yet that it has the lock.
            Some(holder) if holder.status(now) == Status::Pending => {
                let holder = Arc::clone(holder);
                drop(registry);
                let action = lock(&holder.life).state.freed();
                self.act(&holder, action);
            }
            Some(_) => {}
            None if registry.is_kept(sequence, now) => {}
            None => {
                drop(registry);
                self.decline(sequence, Arc::clone(key), remaining);
            }
        }
    }

    /// Ends all acquiring.
    pub(super) fn close(&self) {
        let mut registry = lock(&self.registry);
        registry.closing = true;
        for line in registry.lines() {
            line.shut_down();
        }
        let acquisitions = registry.acquisitions.values();
        let waiting = acquisitions.filter(|acquisition| acquisition.shut_down());
        let waiting: Vec<_> = waiting.cloned().collect();
        drop(registry);
        self.news.interrupted(|_| true);
        self.progress.notify_waiters();
        // A waiter that does not run would not release what it may have on the server.
        for acquisition in waiting {
            self.abandon(&acquisition);
        }
    }
}
