use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", label = order)]
async fn work(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:{id}", label = "")]
async fn unnamed(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    let _ = (work(1), unnamed(1));
}
