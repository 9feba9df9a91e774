use lock_core::{LockError, distributed_lock};

struct Order;

#[distributed_lock(key = "order:{order}")]
async fn work(order: Order) -> Result<(), LockError> {
    let _ = order;
    Ok(())
}

fn main() {
    let _ = work(Order);
}
