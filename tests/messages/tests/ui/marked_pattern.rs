use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order")]
async fn work(#[key] (id, _): (u64, u64)) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {
    let _ = work((1, 2));
}
