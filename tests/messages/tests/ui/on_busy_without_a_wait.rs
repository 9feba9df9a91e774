use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "a", on_busy = skip)]
async fn skips() {}

#[distributed_lock(key = "a", ttl = "5s", on_busy = return = 0)]
async fn returns() -> u32 {
    1
}

#[distributed_lock(key = "a", on_busy = call = handle)]
async fn calls() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
