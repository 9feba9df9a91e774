use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:{}", id)]
async fn work(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(key = "order:{}:{:02}", order.id, order.part, ttl = "10s")]
async fn fields(order: Order) -> Result<(), LockError> {
    let _ = order;
    Ok(())
}

struct Order {
    id: u64,
    part: u8,
}

fn main() {
    let _ = (work(1), fields(Order { id: 1, part: 1 }));
}
