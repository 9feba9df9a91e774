//! Who waits for an announcement: cells by name, which keep one notification each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::base::key::{Announced, LockKey};
use crate::base::sync::lock;

/// What one client waits for.
#[derive(Debug)]
pub(super) struct NewsCell {
    pub(super) key: Arc<LockKey>,
    pub(super) name: Box<str>,
    /// Keeps one notification until the client waits.
    news: Notify,
    /// The subscription may be gone.
    interrupted: AtomicBool,
}

impl NewsCell {
    /// Waits for news, at most this long.
    pub(super) async fn wait(&self, most: Duration) {
        let _ = timeout(most, self.news.notified()).await;
    }

    /// Whether the subscription may be gone since the last call.
    pub(super) fn was_interrupted(&self) -> bool {
        self.interrupted.swap(false, Ordering::SeqCst)
    }
}

/// The cells of all clients.
#[derive(Debug, Default)]
pub(super) struct NewsCells(Mutex<Vec<Weak<NewsCell>>>);

impl NewsCells {
    pub(super) fn add(&self, key: &Arc<LockKey>, what: Announced) -> Arc<NewsCell> {
        let cell = Arc::new(NewsCell {
            key: Arc::clone(key),
            name: what.name(key).into(),
            news: Notify::new(),
            interrupted: AtomicBool::new(false),
        });
        let mut all = lock(&self.0);
        all.retain(|cell| cell.strong_count() > 0);
        all.push(Arc::downgrade(&cell));
        cell
    }

    /// Something with this name was announced.
    pub(super) fn announced(&self, name: &str) {
        for cell in self.all().filter(|cell| *cell.name == *name) {
            cell.news.notify_one();
        }
    }

    /// Announcements beside these locks may have been lost, with the subscriptions.
    pub(super) fn interrupted(&self, of: impl Fn(&LockKey) -> bool) {
        for cell in self.all().filter(|cell| of(&cell.key)) {
            cell.interrupted.store(true, Ordering::SeqCst);
            cell.news.notify_one();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    fn all(&self) -> impl Iterator<Item = Arc<NewsCell>> + use<> {
        let all: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        all.into_iter()
    }
}
