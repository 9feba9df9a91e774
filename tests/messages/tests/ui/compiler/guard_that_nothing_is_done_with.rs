#![deny(unused_must_use)]

use lock_core::{Lock, LockError};

async fn work(lock: Lock) -> Result<(), LockError> {
    lock.acquire().await?;
    lock.try_acquire().await?;
    lock.acquire();
    Ok(())
}

fn main() {}
