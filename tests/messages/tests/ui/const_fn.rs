use lock_core::distributed_lock;

#[distributed_lock(key = "order:{id}")]
const fn work(id: u64) -> u64 {
    id
}

fn main() {
    let _ = work(1);
}
