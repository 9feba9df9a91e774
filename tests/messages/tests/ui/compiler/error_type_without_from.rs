use lock_core::distributed_lock;

struct AppError;

#[distributed_lock(key = "order:{id}")]
async fn work(id: u64) -> Result<u64, AppError> {
    Ok(id)
}

fn main() {
    let _ = work(1);
}
