use lock_core::{LockError, distributed_lock};

struct OrderId(u64);

#[distributed_lock(key = "order:{id}")]
async fn option(id: Option<u64>) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[distributed_lock(key = "order:{id}")]
async fn newtype(id: OrderId) -> Result<(), LockError> {
    let _ = id.0;
    Ok(())
}

fn main() {
    let _ = (option(None), newtype(OrderId(1)));
}
