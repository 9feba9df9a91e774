//! `#[distributed_lock]` where lock-core has another name: `crate = ..` says which, and nothing else is needed.

use locks::{LockError, LockManager, distributed_lock};

/// Uses every argument that names something of lock-core in what it expands to.
///
/// # Errors
///
/// Where the lock can not be had.
#[distributed_lock(
    key = "renamed:{id}",
    ttl = "1s",
    wait = "1s",
    max_hold = "1m",
    at_least = "1ms",
    when = id > 0,
    on_busy = skip,
    client = manager,
    guard = held,
    crate = locks
)]
pub async fn one(manager: &LockManager, id: u32) -> Result<u64, LockError> {
    Ok(held.fencing_token().get())
}

/// Several keys, and a parameter in the default key's place.
///
/// # Errors
///
/// Where the locks can not be had.
#[distributed_lock(keys = ["renamed:a", "renamed:{id}"], on_lost = continue, client = manager, guard = held, crate = locks)]
pub async fn several(manager: &LockManager, id: u32) -> Result<usize, LockError> {
    Ok(held.len())
}

/// A parameter as the key.
#[distributed_lock(wait = "0s", on_busy = call = |_| None, client = manager, guard = held, crate = locks)]
pub async fn marked(manager: &LockManager, #[key] id: u32) -> Option<String> {
    Some(held.key().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_attribute_works_under_another_name() {
        let manager = LockManager::connect("memory://").await.unwrap();
        assert!(one(&manager, 1).await.unwrap() > 0);
        assert_eq!(one(&manager, 0).await.unwrap(), 0);
        assert_eq!(several(&manager, 7).await.unwrap(), 2);
        assert_eq!(marked(&manager, 7).await.unwrap(), "renamed::marked:7");
    }
}
