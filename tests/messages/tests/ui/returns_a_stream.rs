use futures_util::Stream;
use lock_core::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "orders", client = locks)]
async fn work(locks: &LockManager) -> Result<impl Stream<Item = u64> + use<>, LockError> {
    let _ = locks;
    Ok(futures_util::stream::empty())
}

fn main() {
    let _ = work;
}
