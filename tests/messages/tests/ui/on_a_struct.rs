use lock_core::distributed_lock;

#[distributed_lock(key = "order")]
struct Order;

fn main() {
    let _ = Order;
}
