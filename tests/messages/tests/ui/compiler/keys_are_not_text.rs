use lock_core::{LockError, distributed_lock};

#[distributed_lock(keys = ids)]
async fn work(ids: &[u64]) -> Result<(), LockError> {
    let _ = ids;
    Ok(())
}

fn main() {
    let _ = work(&[]);
}
