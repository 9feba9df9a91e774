use lock_core::{LockError, distributed_lock};

async fn later(_: LockError) -> Option<u64> {
    None
}

#[distributed_lock(key = "order:{id}", wait = "0s", on_busy = call = later)]
async fn work(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {
    let _ = work(1);
}
