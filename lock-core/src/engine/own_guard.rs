//! A task that waits for a lock whose guard it has taken itself, perhaps through another manager.

use std::sync::{Arc, Mutex, Weak};

use once_cell::sync::Lazy;

use super::hold::LockRequest;
use super::shared::Shared;
use crate::base::key::LockKey;
use crate::base::place::Place;
use crate::base::sync::lock;

/// The managers of this process.
static MANAGERS: Lazy<Mutex<Vec<Weak<Shared>>>> = Lazy::new(Mutex::default);

/// A manager has started.
pub(super) fn started(shared: &Arc<Shared>) {
    let mut managers = lock(&MANAGERS);
    managers.retain(|manager| manager.strong_count() > 0);
    managers.push(Arc::downgrade(shared));
}

/// This manager, and the others of its process with the same server for this lock. A simulation runs several processes in one.
fn managers(shared: &Arc<Shared>, key: &LockKey) -> Vec<Arc<Shared>> {
    let server = shared.store.server_of(key).filter(|_| !cfg!(lock_sim));
    let Some(server) = server else {
        return vec![Arc::clone(shared)];
    };
    let managers = lock(&MANAGERS).clone().into_iter();
    let managers = managers.filter_map(|manager| manager.upgrade());
    let here = |manager: &Arc<Shared>| manager.store.server_of(key).as_ref() == Some(&server);
    managers.filter(here).collect()
}

/// Where the task of this request has taken what the request waits for.
pub(super) fn held_in_task_of(shared: &Arc<Shared>, request: &LockRequest) -> Option<Place> {
    let (mut kept, mut held_at) = (0, None);
    for manager in managers(shared, &request.key) {
        let twins = request.key.twins();
        for holder in twins.flat_map(|key| lock(&manager.registry).holders(&key)) {
            let at = holder.held_at();
            if let Some(at) = at.filter(|at| at.is_in_task_of(request.place)) {
                kept += u64::from(holder.claim.keeps());
                held_at = Some(at);
            }
        }
    }
    held_at.filter(|_| request.is_in_its_own_way(kept, true))
}

/// Whether this is the first wait at `place` for a guard of the same task taken at `held_at`.
pub(super) fn warns_of(shared: &Shared, held_at: Place, place: Place) -> bool {
    lock(&shared.registry)
        .warned_of
        .insert([held_at.at(), place.at()])
}
