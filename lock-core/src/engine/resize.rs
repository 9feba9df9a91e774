//! Changes the number of permits of a semaphore.

use super::Engine;
use crate::base::claim::Claim;
use crate::base::error::LockError;
use crate::base::key::LockKey;
use crate::base::share::Share;

impl Engine {
    /// Changes the number of permits of a semaphore.
    pub(crate) async fn resize(&self, key: &LockKey, from: u32, to: u32) -> Result<(), LockError> {
        self.shared.check_open()?;
        for max in [from, to] {
            Share::of(max).check(key.name())?;
        }
        let resized = self.shared.store.resize(key, from, to).await;
        let from = Claim::of(Share::of(from));
        if self.told(resized, key, &from)? {
            return Ok(());
        }
        Err(LockError::config(format!(
            "no permit of semaphore `{}` is held, so there is no number to change, and the next one that a program names counts: \
             resize it while a permit is held, or check the key",
            key.name().escape_debug()
        )))
    }
}
