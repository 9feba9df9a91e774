use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
fn work(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {
    let _ = work(1);
}
