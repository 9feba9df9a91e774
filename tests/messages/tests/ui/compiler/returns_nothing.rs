use lock_core::distributed_lock;

#[distributed_lock(key = "order:{id}")]
async fn work(id: u64) {
    let _ = id;
}

fn main() {
    let _ = work(1);
}
