use lock_core::{LockError, distributed_lock};

struct Shop;

impl Shop {
    #[distributed_lock(key = "order")]
    async fn work(#[key] &self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {
    let _ = Shop.work();
}
