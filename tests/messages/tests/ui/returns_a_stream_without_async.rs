use futures_util::Stream;
use lock_core::distributed_lock;

#[distributed_lock(key = "orders")]
fn work() -> impl Stream<Item = u64> {
    futures_util::stream::empty()
}

fn main() {
    let _ = work();
}
