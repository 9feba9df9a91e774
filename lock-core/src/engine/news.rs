//! The clients that wait for an announcement: cells by name, each of which keeps one notification.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio::sync::Notify;

use crate::base::beside::Beside;
use crate::base::key::LockKey;
use crate::base::sync::lock;
use crate::base::time::Moment;
use crate::base::timers::Timers;
use crate::store::OrRefused;

/// A read of a latch for all of its waiters here: any waiter that runs drives it.
pub(super) type LatchRead = Shared<BoxFuture<'static, OrRefused<u32>>>;

/// When the last read of a latch began, for which number of counts, and the read.
type LastRead = Mutex<Option<(Moment, u32, LatchRead)>>;

/// The cell of one waiting client.
#[derive(Debug)]
pub(super) struct NewsCell {
    pub(super) key: Arc<LockKey>,
    pub(super) name: Box<str>,
    /// Keeps one notification until the client waits.
    news: Notify,
    /// The subscription may be gone.
    interrupted: AtomicBool,
    last_read: Arc<LastRead>,
}

impl NewsCell {
    /// Waits for news, at most this long. Returns whether there are any.
    pub(super) async fn wait(&self, timers: &Timers, most: Duration) -> bool {
        timers.timeout(most, self.news.notified()).await.is_ok()
    }

    /// The last read and when it began, if that was since then or if it still runs; else a new one, which begins now.
    pub(super) fn read(
        &self,
        (since, now): (Moment, Moment),
        count: u32,
        read: impl FnOnce() -> BoxFuture<'static, OrRefused<u32>>,
    ) -> (Moment, LatchRead) {
        let mut last = lock(&self.last_read);
        match &*last {
            Some((began, of, read))
                if *of == count && (*began >= since || read.peek().is_none()) =>
            {
                (*began, read.clone())
            }
            _ => {
                let (_, _, read) = last.insert((now, count, read().shared()));
                (now, read.clone())
            }
        }
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
    pub(super) fn add(&self, key: &Arc<LockKey>, what: Beside) -> Arc<NewsCell> {
        let name: Box<str> = key.name_of(what).into();
        let mut beside = self.all().filter(|cell| cell.name == name);
        let last_read = beside.next().map(|cell| Arc::clone(&cell.last_read));
        let cell = Arc::new(NewsCell {
            key: Arc::clone(key),
            name,
            news: Notify::new(),
            interrupted: AtomicBool::new(false),
            last_read: last_read.unwrap_or_default(),
        });
        let mut all = lock(&self.0);
        all.retain(|cell| cell.strong_count() > 0);
        all.push(Arc::downgrade(&cell));
        cell
    }

    /// Notifies the clients of something with this name.
    pub(super) fn announced(&self, name: &str) {
        for cell in self.all().filter(|cell| *cell.name == *name) {
            cell.news.notify_one();
        }
    }

    /// Notes that announcements beside these locks may have been lost, with the subscriptions.
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
