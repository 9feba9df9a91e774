use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}", name = pay)]
async fn work(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    let _ = work(1);
}
