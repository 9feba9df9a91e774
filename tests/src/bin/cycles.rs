//! Helper: takes and releases one free lock, so many times, on a runtime of one thread.
//!
//! `cycles URL COUNT`. How many instructions a cycle costs is the difference of two runs:
//!
//! ```text
//! cargo build -p lock-tests --release --features callgrind --bin cycles
//! valgrind --tool=callgrind target/release/cycles memory:// 1000
//! valgrind --tool=callgrind target/release/cycles memory:// 3000
//! ```
//!
//! "Collected" of the second, less that of the first, by 2,000.

use lock_core::{LockError, LockManager};

fn main() -> Result<(), LockError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, count] = &args[..] else {
        panic!("cycles URL COUNT");
    };
    let count: u32 = count.parse().expect("a number");
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(async {
            let lock = LockManager::connect(url).await?.lock("cycles");
            for _ in 0..count {
                lock.acquire().await?.release().await?;
            }
            Ok(())
        })
}
