use lock_core::{LockError, distributed_lock};

struct AppError;

fn text(error: LockError) -> String {
    error.to_string()
}

#[distributed_lock(key = "order:{id}", map_err = text)]
async fn work(id: u64) -> Result<u64, AppError> {
    Ok(id)
}

fn main() {
    let _ = work(1);
}
