use lock_core::distributed_lock;

struct Receipt;

#[distributed_lock(key = "order")]
async fn pay() -> Receipt {
    Receipt
}

fn main() {
    let _ = pay();
}
