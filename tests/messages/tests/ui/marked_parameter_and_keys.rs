use lock_core::{LockError, distributed_lock};

#[distributed_lock(keys = ["order"])]
async fn work(#[key] id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {
    let _ = work(1);
}
