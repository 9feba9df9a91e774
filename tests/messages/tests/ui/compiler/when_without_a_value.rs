use lock_core::{LockError, distributed_lock};

struct Receipt;

#[distributed_lock(key = "order:{id}", when = id > 0)]
async fn work(id: u64) -> Result<Receipt, LockError> {
    let _ = id;
    Ok(Receipt)
}

fn main() {
    let _ = work(1);
}
