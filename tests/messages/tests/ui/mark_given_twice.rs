use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order")]
async fn work(#[key] #[key] order: u64) -> Result<(), LockError> {
    let _ = order;
    Ok(())
}

fn main() {
    let _ = work(1);
}
