//! Helper: a program whose last act is to drop its guards.
//!
//! `last-act URL current|multi COUNT TTL_MS shutdown|leave` takes COUNT locks, says `took`, drops them, and ends,
//! with or without the shutdown that a careful program calls. Then it says `left N`.

use std::time::Duration;

use lock_core::{LockError, LockManager};

fn main() -> Result<(), LockError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, flavour, count, ttl, end] = &args[..] else {
        panic!("last-act URL current|multi COUNT TTL_MS shutdown|leave");
    };
    let mut runtime = match flavour.as_str() {
        "multi" => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    runtime
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(async {
            // Its test runs it under valgrind as well, beside others: a command then takes seconds.
            let builder = LockManager::builder().command_deadline(Duration::from_secs(20));
            let locks = builder.connect(url).await?;
            let ttl = Duration::from_millis(ttl.parse().expect("milliseconds"));
            let mut guards = Vec::new();
            for n in 0..count.parse().expect("a number") {
                guards.push(locks.lock(format!("act:{n}")).ttl(ttl).acquire().await?);
            }
            println!("took");
            drop(guards);
            if end == "shutdown" {
                println!("left {}", locks.shutdown(Duration::from_secs(20)).await);
            }
            Ok(())
        })
}
