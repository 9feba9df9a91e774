use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = name, escape = false)]
async fn work(name: &str) -> Result<(), LockError> {
    let _ = name;
    Ok(())
}

fn main() {
    let _ = work("");
}
