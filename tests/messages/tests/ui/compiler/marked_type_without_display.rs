use lock_core::{LockError, distributed_lock};

struct Order;

#[distributed_lock(key = "order")]
async fn work(#[key] order: Order) -> Result<(), LockError> {
    let _ = order;
    Ok(())
}

fn main() {
    let _ = work(Order);
}
