use lock_core::{LockError, distributed_lock};

#[distributed_lock]
async fn work() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    let _ = work();
}
