//! Taking back what an acquisition left on the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Shared;
use super::entry::Entry;
use super::lease::Status;
use crate::LockError;
use crate::store::{Released, Renewal, Store, StoreError};

/// Cleans up behind a request of an entry that was over, and perhaps forgotten, when the request was answered.
pub(super) async fn again(shared: Arc<Shared>, entry: Arc<Entry>) {
    shared.remember(&entry);
    until_confirmed(shared, entry).await;
}

/// Releases until the server has confirmed it, or until the ttl has done the work.
pub(super) async fn until_confirmed(shared: Arc<Shared>, entry: Arc<Entry>) {
    let give_up = Instant::now() + entry.terms.ttl;
    let mut pause = Duration::from_millis(10);
    loop {
        match let_go(&shared, &entry).await {
            // An acquire that nobody saw answered may still be under way on a connection that broke.
            Ok(Released::NotHeld) if entry.ambiguous.swap(false, Ordering::Relaxed) => {
                sleep(shared.config.command_deadline.min(entry.terms.ttl)).await;
            }
            Ok(released) => {
                tracing::debug!(key = entry.key.name(), ?released, "released");
                break;
            }
            Err(error) if Instant::now() + pause >= give_up => {
                tracing::warn!(
                    key = entry.key.name(),
                    ?error,
                    "the lock could not be released: it was left to its ttl"
                );
                break;
            }
            Err(_) => {
                sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
        }
    }
    shared.forget(&entry);
}

/// The holder releases and waits for the answer.
///
/// A call whose reply was lost is repeated, and a refresh that was under way may release as well; that the token is
/// gone then is success, as long as the lease was not over. On an error the session goes on trying in the background.
pub(crate) async fn confirmed(
    session: &super::Session,
    entry: Arc<Entry>,
    most_tries: u32,
) -> Result<(), LockError> {
    let shared = &session.shared;
    let before = entry.lease.release(shared.now());
    let lost = |reason| LockError::Lost {
        key: entry.key.name().to_owned(),
        reason,
    };
    if let Status::Lost(reason) = before {
        // The session cleans up after a loss; nothing is left to confirm.
        return Err(lost(reason));
    }
    let handover = Handover {
        session,
        entry: Some(Arc::clone(&entry)),
    };
    let (mut tries, mut perhaps_done) = (0, false);
    loop {
        tries += 1;
        match let_go(shared, &entry).await {
            Ok(
                Released::Free | Released::HandedOver | Released::StillHeld { .. } | Released::Kept,
            ) => break,
            Ok(Released::NotHeld)
                if (perhaps_done || entry.released_by_refresh.load(Ordering::SeqCst))
                    && shared.now() < entry.lease.end() =>
            {
                break;
            }
            Ok(Released::NotHeld) => {
                handover.done();
                return Err(lost(crate::LossReason::Taken));
            }
            Err(error @ StoreError::Misconfigured(_)) => return Err(error.into_lock_error()),
            Err(error) if tries >= most_tries || shared.now() >= entry.lease.end() => {
                return Err(error.into_lock_error());
            }
            Err(error) => {
                perhaps_done |= matches!(error, StoreError::Ambiguous(_));
                sleep(Duration::from_millis(10 * u64::from(tries))).await;
            }
        }
    }
    handover.done();
    Ok(())
}

/// Releases the lock, or leaves it to its ttl where it has to be kept for a while.
async fn let_go(shared: &Shared, entry: &Entry) -> Result<Released, StoreError> {
    let Some(left) = entry.keep_for(shared.now()) else {
        return shared.store.release(&entry.key, &entry.token, None).await;
    };
    let keep = Renewal {
        key: &entry.key,
        token: &entry.token,
        ttl: left,
        owner: None,
    };
    let kept = shared.store.extend(&[keep]).await?;
    Ok(if kept == [true] {
        Released::Kept
    } else {
        Released::NotHeld
    })
}

/// Gives an unfinished release to the session, also when the releasing future is dropped.
struct Handover<'a> {
    session: &'a super::Session,
    entry: Option<Arc<Entry>>,
}

impl Handover<'_> {
    fn done(mut self) {
        // A request that was never answered may still land: then the background releases once more.
        if let Some(entry) = self.entry.take_if(|e| !e.ambiguous.load(Ordering::Relaxed)) {
            self.session.shared.forget(&entry);
        }
    }
}

impl Drop for Handover<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.session.undo_later(entry);
        }
    }
}
