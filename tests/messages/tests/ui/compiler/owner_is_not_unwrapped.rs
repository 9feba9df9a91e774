use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", reentrant, owner = lock_core::Owner::parse(id))]
async fn work(id: &str) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {
    let _ = work("a");
}
