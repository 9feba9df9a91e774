//! The common part of the handles of all kinds of lock: a key, the options, and the operations.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::base::claim::{Claim, PLAIN};
use crate::base::config::{check_at_least, check_max_hold, check_unavailable_after};
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::observe::AcquiredHow;
use crate::base::owner::Owner;
use crate::base::place::Place;
use crate::base::time::Span;
use crate::engine::{Engine, Limit, LockRequest, acquire, together};
use crate::face::guard::LockGuard;
use crate::face::inspect::LockInfo;
use crate::face::scope::Scope;

#[derive(Clone)]
pub(crate) struct LockHandle {
    pub(crate) engine: Arc<Engine>,
    key: Result<Arc<LockKey>, Arc<Refused>>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Duration,
    pub(crate) default_wait: Option<Duration>,
    pub(crate) unavailable_after: Option<Duration>,
    pub(crate) renew: bool,
    pub(crate) label: &'static str,
    pub(crate) claim: Claim,
    /// Whether its server has answered an earlier request of the same call.
    pub(crate) is_answered: bool,
}

/// A name that no lock can have, and why. The first call that needs the lock reports it.
struct Refused {
    name: String,
    error: LockError,
}

impl LockHandle {
    pub(crate) fn new(engine: Arc<Engine>, name: &str, key: Result<LockKey, LockError>) -> Self {
        Self {
            engine,
            key: checked(name, key),
            ttl: None,
            max_hold: None,
            at_least: Duration::ZERO,
            default_wait: None,
            unavailable_after: None,
            renew: true,
            label: "",
            claim: PLAIN.clone(),
            is_answered: false,
        }
    }

    /// The name as it was given.
    pub(crate) fn name(&self) -> &str {
        match &self.key {
            Ok(key) => key.name(),
            Err(refused) => &refused.name,
        }
    }

    /// The same handle, for this claim.
    pub(crate) fn claiming(&self, claim: Claim) -> Self {
        Self {
            claim,
            ..self.clone()
        }
    }

    /// Host and port of the server, if known.
    pub(crate) fn server(&self) -> Option<Arc<str>> {
        let key = self.key.as_ref().ok()?;
        self.engine.server_of(key)
    }

    pub(crate) fn key(&self) -> Result<&Arc<LockKey>, LockError> {
        self.key.as_ref().map_err(|refused| refused.error.clone())
    }

    /// The future owns what it needs: the handle may be gone.
    pub(crate) fn take(
        &self,
        limit: Limit,
        owner: Option<Owner>,
        at: &'static Location<'static>,
    ) -> impl Future<Output = Result<LockGuard, LockError>> + use<> {
        let request = self.request(owner, at);
        let (engine, default) = (Arc::clone(&self.engine), self.default_wait());
        async move {
            let request = request?;
            let limit = limit.or(default.filter(|_| request.key.traits().named_in.is_none()));
            let request = entered(&engine, request, limit, at)?;
            let hold = acquire(&engine.shared, request, limit).await?;
            Ok(LockGuard::new(engine, hold))
        }
    }

    /// Whether a request for this lock could be made now.
    pub(crate) fn check(
        &self,
        owner: Option<Owner>,
        limit: Limit,
        at: &'static Location<'static>,
    ) -> Result<(), LockError> {
        entered(&self.engine, self.request(owner, at)?, limit, at).map(drop)
    }

    /// Whether this process has the lock, or waits for it.
    pub(crate) fn is_used_here(&self) -> bool {
        let key = self.key.as_ref();
        key.is_ok_and(|key| self.engine.shared.uses(key))
    }

    /// Whether this process has the lock.
    pub(crate) fn is_held_here(&self) -> bool {
        let key = self.key.as_ref();
        key.is_ok_and(|key| self.engine.shared.holds(key))
    }

    /// Whether one request can take both locks.
    pub(crate) fn is_taken_with(&self, other: &Self) -> Result<bool, LockError> {
        Ok(self.engine.takes_together(self.key()?, other.key()?))
    }

    /// Makes one try for all of these locks, in one request.
    pub(crate) async fn take_together(
        locks: &[&Self],
        how: AcquiredHow,
        at: &'static Location<'static>,
    ) -> Result<Vec<LockGuard>, LockError> {
        let engine = &locks[0].engine;
        let requests = locks.iter().map(|lock| {
            let request = lock.request(None, at)?;
            entered(engine, request, Limit::Try, at)
        });
        let requests = requests.collect::<Result<_, _>>()?;
        let holds = together(&engine.shared, requests, how).await?;
        let guards = holds.into_iter();
        let guards = guards.map(|hold| LockGuard::untraced(Arc::clone(engine), hold));
        let mut guards: Vec<_> = guards.collect();
        guards.iter_mut().for_each(LockGuard::trace);
        Ok(guards)
    }

    pub(crate) async fn inspect(&self) -> Result<LockInfo, LockError> {
        let snapshot = self.engine.inspect(self.key()?).await?;
        Ok(LockInfo::new(snapshot))
    }

    pub(crate) async fn force_release(&self) -> Result<bool, LockError> {
        self.engine.force_release(self.key()?).await
    }

    /// The limit of a wait for which the caller names none.
    pub(crate) fn default_wait(&self) -> Option<Duration> {
        self.default_wait.or(self.engine.shared.config.default_wait)
    }

    /// The time after which a call gives up if the server does not answer. A candidate does not: it would only campaign again.
    pub(crate) fn unavailable_after(&self) -> Option<Duration> {
        let after = self.unavailable_after;
        let after = after.or(self.engine.shared.config.unavailable_after);
        let is_named = |key: &Arc<LockKey>| key.traits().named_in.is_some();
        after.filter(|_| !self.key.as_ref().is_ok_and(is_named))
    }

    pub(crate) fn request(
        &self,
        owner: Option<Owner>,
        at: &'static Location<'static>,
    ) -> Result<LockRequest, LockError> {
        let config = &self.engine.shared.config;
        let max_hold = self.max_hold.or(config.max_hold);
        if let Some(most) = max_hold {
            check_max_hold(most)?;
        }
        if let Some(after) = self.unavailable_after {
            check_unavailable_after(after)?;
        }
        let ttl = self.ttl.unwrap_or(config.default_ttl);
        check_at_least(self.at_least, max_hold, (!self.renew).then_some(ttl))?;
        config.check_longest("at_least", self.at_least)?;
        self.claim.check(self.name())?;
        Ok(LockRequest {
            key: Arc::clone(self.key()?),
            terms: config.terms(ttl)?,
            renew: self.renew,
            max_hold: max_hold.map_or(Span::ENDLESS, Span::from),
            at_least: self.at_least.into(),
            unavailable_after: self.unavailable_after().map_or(Span::ENDLESS, Span::from),
            claim: Claim {
                owner,
                ..self.claim.clone()
            },
            is_answered: self.is_answered,
            place: Place::in_no_task(at),
            label: self.label,
            observed: config.observed.clone(),
        })
    }
}

/// Notes the task that waits, which may not be the task that made the future. Fails inside a scope that holds the lock.
fn entered(
    engine: &Arc<Engine>,
    mut request: LockRequest,
    limit: Limit,
    at: &'static Location<'static>,
) -> Result<LockRequest, LockError> {
    request.place = Place::of(at);
    if Scope::excludes(engine, &request, !matches!(limit, Limit::Try)) {
        return Err(LockError::Deadlock {
            key: request.key.name().to_owned(),
        });
    }
    Ok(request)
}

fn checked(name: &str, key: Result<LockKey, LockError>) -> Result<Arc<LockKey>, Arc<Refused>> {
    key.map(Arc::new).map_err(|error| {
        Arc::new(Refused {
            name: name.to_owned(),
            error,
        })
    })
}
