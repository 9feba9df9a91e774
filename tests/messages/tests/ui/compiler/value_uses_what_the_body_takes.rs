use lock_core::distributed_lock;

#[distributed_lock(key = "order:{id}", wait = "0s", on_busy = return = name)]
async fn work(id: u64, name: String) -> String {
    name + "!"
}

fn main() {
    let _ = work(1, String::new());
}
