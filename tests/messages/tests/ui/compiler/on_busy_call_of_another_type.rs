use lock_core::{LockError, distributed_lock};

fn text(error: LockError) -> String {
    error.to_string()
}

#[distributed_lock(key = "order:{id}", wait = "0s", on_busy = call = text)]
async fn work(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {
    let _ = work(1);
}
