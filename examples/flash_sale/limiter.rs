//! In front of the sale: a user who sends too many requests is refused before the stock is touched.

use lock_examples::Outcome;
use redis::Script;

use crate::shop::Till;

/// So many requests of one user are let through ..
const REQUESTS: u32 = 2;
/// .. in this time.
const WINDOW_MS: u32 = 30_000;

#[derive(Debug)]
pub(crate) struct Limiter {
    script: Script,
}

impl Limiter {
    /// Makes the script known to the server: else all who come at first would have to send it.
    pub(crate) async fn open(till: &Till) -> Outcome<Self> {
        let script = Script::new(include_str!("scripts/limit.lua"));
        script.load_async(&mut till.redis.clone()).await?;
        Ok(Self { script })
    }

    pub(crate) async fn lets_through(&self, till: &Till, user: &str) -> Outcome<bool> {
        let mut call = self.script.prepare_invoke();
        call.key(till.keys.requests_of(user))
            .arg(REQUESTS)
            .arg(WINDOW_MS);
        // By its SHA; sent as a whole only where the server does not know it.
        let passed: u8 = call.invoke_async(&mut till.redis.clone()).await?;
        Ok(passed == 1)
    }
}
