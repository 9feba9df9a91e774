use lock_core::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:{order.number}")]
async fn work(order: Order) -> Result<u64, LockError> {
    Ok(order.id)
}

fn main() {
    let _ = work(Order { id: 1 });
}
