//! Tries several locks in one request: all or none.
//!
//! Each lock has an acquisition and a waiter of its own, as in a single try; they share only the request. So the remains of a failed
//! request, or of a dropped future, are cleaned up as after a single try.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::{Unclaimed, Waiter, blamed};
use super::acquisition::Acquisition;
use super::hold::{Hold, LockRequest};
use super::observed::ObservedCall;
use super::outstanding::Outstanding;
use super::patience::{Limit, Patience};
use super::shared::Shared;
use super::state::Asker;
use crate::base::error::LockError;
use crate::base::observe::AcquiredHow;
use crate::base::sync::lock;
use crate::store::{Answer, Mode, StoreError, Together};

/// Takes all of these locks, or none. The store must take each two of them together. The task watches the returned holds; the caller
/// must release them.
///
/// Cancel-safe at every await: dropping the future undoes what it did.
pub(crate) async fn together(
    shared: &Arc<Shared>,
    requests: Vec<LockRequest>,
    how: AcquiredHow,
) -> Result<Vec<Arc<Hold>>, LockError> {
    let calls: Vec<_> = requests.iter().map(ObservedCall::begin).collect();
    let result = until_tried(shared, &requests).await;
    for (n, call) in calls.into_iter().enumerate() {
        if let Some(call) = call {
            let outcome = result.as_ref().map(|holds| (holds[n].get(), how));
            call.ended(shared, outcome);
        }
    }
    Ok(result?.into_iter().map(Unclaimed::claim).collect())
}

async fn until_tried<'a>(
    shared: &'a Arc<Shared>,
    requests: &[LockRequest],
) -> Result<Vec<Unclaimed<'a>>, LockError> {
    loop {
        match once(shared, requests).await {
            Ok(Some(holds)) => return Ok(holds),
            Ok(None) => {}
            Err(error) => return Err(blamed(shared, error)),
        }
    }
}

/// Returns `None` if a lease was over before its caller ran.
async fn once<'a>(
    shared: &'a Arc<Shared>,
    requests: &[LockRequest],
) -> Result<Option<Vec<Unclaimed<'a>>>, LockError> {
    let patience = Patience::new(&shared.timers, Limit::Try);
    for request in requests {
        shared.after_own_releases(&request.key, None).await?;
    }
    let waiters = requests.iter();
    let waiters = waiters.map(|request| Waiter::without_line(shared, request, patience));
    let mut waiters = waiters.collect::<Result<Vec<_>, _>>()?;
    while !ask(shared, &mut waiters).await? {}
    let mut holds = Vec::with_capacity(waiters.len());
    for mut waiter in waiters {
        match waiter.run().await? {
            Some((hold, _)) => holds.push(Unclaimed::new(shared, hold)),
            None => return Ok(None),
        }
    }
    Ok(Some(holds))
}

/// Sends one request for all locks. Returns whether they are granted; otherwise the caller sends it again.
async fn ask(shared: &Arc<Shared>, waiters: &mut [Waiter<'_>]) -> Result<bool, LockError> {
    let asked: Vec<Arc<Acquisition>> = waiters.iter().filter_map(Waiter::asks).collect();
    if let Some(connected) = waiters[0].connect(&asked[0]).await {
        return connected.map(|()| false);
    }
    if asked.iter().any(|acquisition| acquisition.is_over()) {
        return Err(LockError::ShutDown);
    }
    let requests: Vec<_> = asked
        .iter()
        .zip(&*waiters)
        .map(|(acquisition, waiter)| {
            let (now, terms) = (shared.clock.now(), waiter.hold.request.terms);
            lock(&acquisition.life)
                .state
                .asks(Asker::Waiter, now, terms);
            Outstanding::begin(shared, acquisition, Asker::Waiter, terms, 0)
        })
        .collect();
    let (began, until) = (shared.clock.now(), waiters[0].until(Some(&asked[0])));
    let answer = {
        let tokens: Vec<_> = asked.iter().map(|asked| shared.token(asked)).collect();
        let attempts = requests.iter().zip(&tokens);
        let attempts = attempts.map(|(request, token)| request.attempt(token, Mode::Try));
        let attempts: Vec<_> = attempts.collect();
        let answer = shared.store.acquire_all(&attempts);
        shared.timers.within(until, answer).await
    };
    let Some(answer) = answer else {
        return Err(waiters[0].no_answer(&asked[0], began));
    };
    for (n, request) in requests.into_iter().enumerate() {
        let (waiter, acquisition) = (&mut waiters[n], &asked[n]);
        let is_read = waiter.read(acquisition, request, &of_one(&answer, n));
        acquisition.asked_for(&waiter.hold);
        if is_read && matches!(answer, Ok(Together::Refused(..))) {
            lock(&acquisition.life).state.refused();
        }
    }
    match answer {
        Ok(Together::Granted(_)) => Ok(true),
        Ok(Together::Refused(at, answer)) => {
            let refused = waiters[at].answered(&asked[at], Ok(answer), None).await;
            refused.map(|_| false)
        }
        // One waiter decides, and pauses, for all.
        Err(error) => waiters[0].after(&asked[0], error).await.map(|()| false),
    }
}

/// The answer for one of the locks. A refusal tells it only that nothing was taken.
fn of_one(answer: &Result<Together, StoreError>, n: usize) -> Result<Answer, StoreError> {
    match answer {
        Ok(Together::Granted(fences)) => Ok(Answer::Granted {
            fence: fences[n],
            reserve: 0,
        }),
        Ok(Together::Refused(..)) => Ok(Answer::Busy {
            remaining: Duration::ZERO,
            holder: None,
        }),
        Err(error) => Err(error.clone()),
    }
}
