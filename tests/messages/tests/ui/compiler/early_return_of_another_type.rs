use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
async fn work(id: u64) -> Result<(), LockError> {
    if id == 0 {
        return Some(id);
    }
    Ok(())
}

fn main() {
    let _ = work(1);
}
