use lock_core::{LockError, distributed_lock};

#[distributed_lock(keys = accounts, escape = false)]
async fn work(accounts: &[String]) -> Result<(), LockError> {
    let _ = accounts;
    Ok(())
}

fn main() {
    let _ = work(&[]);
}
