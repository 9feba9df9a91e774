//! The kinds of lock that the cases run on, behind one interface.

use std::ops::Deref;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lock_core::blocking::{Blocking, BlockingGuard};
use lock_core::{
    LockError, LockGuard, LockInfo, LockManager, Owner, ReentrantLock, RwLock, Semaphore,
    WriteGuard,
};

/// What the locks of a rig are. Each kind excludes as the others do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Exclusive,
    /// A semaphore of one permit.
    Semaphore,
    /// The writers of a read-write lock.
    Writer,
    /// A reentrant lock, each acquisition of which has an owner of its own.
    Reentrant,
    /// An exclusive lock through the blocking face: each call waits on a thread that blocks.
    Blocking,
}

/// The acquisitions of reentrant locks that are under way in a rig. These locks have no queue on the server, so each manager
/// knows its own waiters alone.
pub(crate) type UnderWay = Arc<Mutex<Vec<Weak<Acquisition>>>>;

/// Lives until its end. The first part tells its manager from others.
type Acquisition = (Arc<()>, ReentrantLock);

/// A manager whose locks are of one kind.
#[derive(Clone)]
pub(crate) struct Manager {
    of: Of,
    locks: LockManager,
    identity: Arc<()>,
    under_way: UnderWay,
}

#[derive(Clone)]
pub(crate) enum Lock {
    Exclusive(lock_core::Lock),
    Semaphore(Semaphore),
    Writer(RwLock),
    Reentrant(ReentrantLock, Arc<()>, UnderWay),
    Blocking(Blocking<lock_core::Lock>),
}

#[derive(Debug)]
pub(crate) enum Guard {
    Lock(LockGuard),
    Writer(WriteGuard),
    Blocking(BlockingGuard<LockGuard>),
}

/// On a thread that may block.
async fn blocks<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(call).await.unwrap()
}

impl Manager {
    pub(crate) fn new(of: Of, locks: LockManager, under_way: &UnderWay) -> Self {
        Self {
            of,
            locks,
            identity: Arc::default(),
            under_way: Arc::clone(under_way),
        }
    }

    pub(crate) fn lock(&self, key: impl AsRef<str>) -> Lock {
        match self.of {
            Of::Exclusive => Lock::Exclusive(self.locks.lock(key)),
            Of::Semaphore => Lock::Semaphore(self.locks.semaphore(key, 1)),
            Of::Writer => Lock::Writer(self.locks.rw_lock(key)),
            Of::Reentrant => Lock::Reentrant(
                self.locks.reentrant_lock(key),
                Arc::clone(&self.identity),
                Arc::clone(&self.under_way),
            ),
            Of::Blocking => {
                let locks = Blocking::of(self.locks.clone()).expect("a thread of its own");
                Lock::Blocking(locks.lock(key))
            }
        }
    }
}

impl Deref for Manager {
    type Target = LockManager;

    fn deref(&self) -> &LockManager {
        &self.locks
    }
}

/// The options that all kinds have.
macro_rules! options {
    ($($option:ident: $type:ty),+ $(,)?) => {
        $(pub(crate) fn $option(self, value: $type) -> Self {
            match self {
                Self::Exclusive(lock) => Self::Exclusive(lock.$option(value)),
                Self::Semaphore(lock) => Self::Semaphore(lock.$option(value)),
                Self::Writer(lock) => Self::Writer(lock.$option(value)),
                Self::Reentrant(lock, manager, under_way) => {
                    Self::Reentrant(lock.$option(value), manager, under_way)
                }
                Self::Blocking(lock) => Self::Blocking(lock.$option(value)),
            }
        })+
    };
}

impl Lock {
    options! { ttl: Duration, renew: bool, max_hold: Duration }

    pub(crate) fn at_least(self, least: Duration) -> Self {
        match self {
            Self::Exclusive(lock) => Self::Exclusive(lock.at_least(least)),
            Self::Blocking(lock) => Self::Blocking(lock.at_least(least)),
            Self::Semaphore(_) | Self::Writer(_) | Self::Reentrant(..) => {
                panic!("this case needs an exclusive lock")
            }
        }
    }

    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Exclusive(lock) => lock.key(),
            Self::Semaphore(lock) => lock.key(),
            Self::Writer(lock) => lock.key(),
            Self::Reentrant(lock, ..) => lock.key(),
            Self::Blocking(lock) => lock.face().key(),
        }
    }

    pub(crate) fn acquire(&self) -> impl Future<Output = Result<Guard, LockError>> + use<> {
        let lock = self.clone();
        async move {
            let _under_way = lock.under_way();
            Ok(match lock {
                Self::Exclusive(lock) => Guard::Lock(lock.acquire().await?),
                Self::Semaphore(lock) => Guard::Lock(lock.acquire().await?),
                Self::Writer(lock) => Guard::Writer(lock.write().await?),
                Self::Reentrant(lock, ..) => Guard::Lock(apart(&lock).acquire().await?),
                Self::Blocking(lock) => Guard::Blocking(blocks(move || lock.acquire()).await?),
            })
        }
    }

    pub(crate) async fn acquire_within(&self, limit: Duration) -> Result<Guard, LockError> {
        let _under_way = self.under_way();
        Ok(match self {
            Self::Exclusive(lock) => Guard::Lock(lock.acquire_within(limit).await?),
            Self::Semaphore(lock) => Guard::Lock(lock.acquire_within(limit).await?),
            Self::Writer(lock) => Guard::Writer(lock.write_within(limit).await?),
            Self::Reentrant(lock, ..) => Guard::Lock(apart(lock).acquire_within(limit).await?),
            Self::Blocking(lock) => {
                let lock = lock.clone();
                Guard::Blocking(blocks(move || lock.acquire_within(limit)).await?)
            }
        })
    }

    pub(crate) async fn try_acquire(&self) -> Result<Option<Guard>, LockError> {
        Ok(match self {
            Self::Exclusive(lock) => lock.try_acquire().await?.map(Guard::Lock),
            Self::Semaphore(lock) => lock.try_acquire().await?.map(Guard::Lock),
            Self::Writer(lock) => lock.try_write().await?.map(Guard::Writer),
            Self::Reentrant(lock, ..) => apart(lock).try_acquire().await?.map(Guard::Lock),
            Self::Blocking(lock) => {
                let lock = lock.clone();
                let tried = blocks(move || lock.try_acquire()).await?;
                tried.map(Guard::Blocking)
            }
        })
    }

    pub(crate) async fn with<T>(
        &self,
        body: impl AsyncFnOnce(&LockGuard) -> T,
    ) -> Result<T, LockError> {
        // On the heap: the future has room for each kind.
        match self {
            Self::Exclusive(lock) => Box::pin(lock.with(body)).await,
            Self::Semaphore(lock) => Box::pin(lock.with(body)).await,
            Self::Writer(lock) => Box::pin(lock.with_write(async |guard| body(guard).await)).await,
            Self::Reentrant(lock, ..) => Box::pin(lock.with(body)).await,
            // There is no blocking form.
            Self::Blocking(lock) => Box::pin(lock.face().with(body)).await,
        }
    }

    pub(crate) async fn inspect(&self) -> Result<LockInfo, LockError> {
        match self {
            Self::Exclusive(lock) => lock.inspect().await,
            Self::Semaphore(lock) => lock.inspect().await,
            Self::Writer(lock) => lock.inspect().await,
            Self::Reentrant(lock, ..) => lock.inspect().await,
            Self::Blocking(lock) => {
                let lock = lock.clone();
                blocks(move || lock.inspect()).await
            }
        }
    }

    /// Lists an acquisition until the result is dropped.
    fn under_way(&self) -> Option<Arc<Acquisition>> {
        let Self::Reentrant(lock, manager, under_way) = self else {
            return None;
        };
        let acquisition = Arc::new((Arc::clone(manager), lock.clone()));
        let mut all = under_way.lock().unwrap();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&acquisition));
        Some(acquisition)
    }

    /// How many wait for the lock.
    pub(crate) async fn waiters(&self) -> u64 {
        let Self::Reentrant(lock, _, under_way) = self else {
            return self.inspect().await.unwrap().waiters();
        };
        let all = under_way.lock().unwrap().clone();
        let mut managers: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        managers.retain(|acquisition| acquisition.1.key() == lock.key());
        managers.sort_by_key(|acquisition| Arc::as_ptr(&acquisition.0));
        managers.dedup_by_key(|acquisition| Arc::as_ptr(&acquisition.0));
        let mut waiters = 0;
        for acquisition in managers {
            waiters += acquisition.1.inspect().await.unwrap().waiters();
        }
        waiters
    }

    pub(crate) async fn force_release(&self) -> Result<bool, LockError> {
        match self {
            Self::Exclusive(lock) => lock.force_release().await,
            Self::Semaphore(lock) => lock.force_release().await,
            Self::Writer(lock) => lock.force_release().await,
            Self::Reentrant(lock, ..) => lock.force_release().await,
            Self::Blocking(lock) => {
                let lock = lock.clone();
                blocks(move || lock.force_release()).await
            }
        }
    }
}

fn apart(lock: &ReentrantLock) -> ReentrantLock {
    lock.clone().owner(&Owner::new())
}

impl Guard {
    pub(crate) async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
            Self::Blocking(guard) => blocks(move || guard.release()).await,
        }
    }
}

impl Deref for Guard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        match self {
            Self::Lock(guard) => guard,
            Self::Writer(guard) => guard,
            Self::Blocking(guard) => guard,
        }
    }
}
