use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "a", guard = held)]
async fn released() -> Result<(), LockError> {
    held.release().await
}

#[distributed_lock(key = "a", guard = held)]
async fn spawned() -> Result<(), LockError> {
    std::thread::spawn(move || held.is_held());
    Ok(())
}

fn main() {
    let _ = (released(), spawned());
}
