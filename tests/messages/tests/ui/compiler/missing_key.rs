use lock_core::{LockError, distributed_lock};

#[distributed_lock(ttl = "30s")]
async fn work(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {
    let _ = work(1);
}
