use lock_core::{LockError, distributed_lock};

trait Work {
    #[distributed_lock(key = "order")]
    async fn work(&self) -> Result<(), LockError>;
}

fn main() {}
