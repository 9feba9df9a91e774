use std::pin::Pin;

use lock_core::{LockError, distributed_lock};

#[distributed_lock(key = "order:{id}")]
fn work(id: u64) -> Pin<Box<dyn Future<Output = Result<(), LockError>>>> {
    make(id)
}

fn make(_: u64) -> Pin<Box<dyn Future<Output = Result<(), LockError>>>> {
    Box::pin(async { Ok(()) })
}

fn main() {
    let _ = work(1);
}
