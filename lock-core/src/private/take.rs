//! Acquires the lock, or the locks, of one call.

use std::panic::Location;

use super::{Boxed, Guards, KeyText, Options, Sharing};
use crate::base::claim::Claim;
use crate::base::error::LockError;
use crate::base::owner::Owner;
use crate::base::share::Share;
use crate::engine::Limit;
use crate::face::all::{acquire_all, distinct};
use crate::face::handle::LockHandle;
use crate::face::manager::LockManager;

/// Acquires the lock: the reentrant one for an owner, otherwise what the options name.
#[track_caller]
pub fn enter<'a>(
    client: Option<&LockManager>,
    options: &'a Options,
    owner: Option<Owner>,
    key: impl AsRef<str>,
) -> Boxed<'a, Result<Guards, LockError>> {
    let at = Location::caller();
    let lock = manager(client).map(|manager| options.lock(&manager, owner.is_some(), key.as_ref()));
    Box::pin(async move {
        let guard = lock?.take(Limit::of(options.wait), owner, at).await?;
        Ok(Guards::from([guard]))
    })
}

/// Acquires several locks: all or none.
#[must_use]
#[track_caller]
pub fn enter_all<'a>(
    client: Option<&LockManager>,
    options: &'a Options,
    owner: Option<Owner>,
    keys: Vec<String>,
) -> Boxed<'a, Result<Guards, LockError>> {
    let at = Location::caller();
    let manager = manager(client);
    Box::pin(async move {
        let manager = manager?;
        let keys = distinct(&keys).into_iter();
        let locks = keys.map(|key| options.lock(&manager, owner.is_some(), key));
        acquire_all(locks.collect(), owner, Limit::of(options.wait), at).await
    })
}

/// The keys of a list that the program makes.
pub fn listed(keys: impl IntoIterator<Item = impl KeyText>) -> Vec<String> {
    let keys = keys.into_iter();
    keys.map(|key| key.to_key()).collect()
}

pub(super) fn manager(client: Option<&LockManager>) -> Result<LockManager, LockError> {
    client.map_or_else(crate::default_manager, |manager| Ok(manager.clone()))
}

impl Options {
    fn lock(&self, manager: &LockManager, reentrant: bool, key: &str) -> LockHandle {
        let mut handle = if reentrant {
            manager.reentrant_lock(key).handle
        } else {
            match self.sharing {
                Sharing::None => manager.lock(key).handle,
                Sharing::Read => manager.rw_lock(key).handle.claiming(Claim::of(Share::READ)),
                Sharing::Write => manager
                    .rw_lock(key)
                    .handle
                    .claiming(Claim::of(Share::WRITE)),
                Sharing::Permits { permits, max } => {
                    manager.semaphore(key, max).permits(permits).handle
                }
            }
        };
        handle.ttl = self.ttl;
        handle.max_hold = self.max_hold;
        handle.at_least = self.at_least.unwrap_or_default();
        handle.unavailable_after = self.unavailable_after;
        handle.renew = self.renew;
        handle.label = self.label;
        handle
    }
}
