//! The kinds of lock, behind one interface. A latch is not held, and has cases of its own.

use std::time::Duration;

use lock_core::{
    FencingToken, Leadership, LockError, LockGuard, LockInfo, LockManager, LossReason, MultiGuard,
    Owner, ReadGuard, WriteGuard,
};
use lock_tests::{LIMIT, eventually};

/// The name of each lock. Of several, two are in one slot of a cluster.
const NAME: &str = "{k}";
const SEVERAL: [&str; 3] = ["{k}b", "other", "{k}"];

const NOT_HELD: &str = "a latch is not held";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Exclusive,
    Reentrant,
    /// A semaphore of one permit.
    Semaphore,
    Reader,
    Writer,
    Election,
    Several,
    Latch,
}

/// One caller of a manager, and the ttl that it asks for.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) kind: Kind,
    pub(crate) locks: LockManager,
    pub(crate) ttl: Duration,
    owner: Owner,
}

#[derive(Debug)]
pub(crate) enum Held {
    One(LockGuard),
    Reader(ReadGuard),
    Writer(WriteGuard),
    Leader(Leadership),
    Several(MultiGuard),
}

impl Caller {
    pub(crate) fn new(kind: Kind, locks: LockManager, ttl: Duration) -> Self {
        let owner = Owner::new();
        Self {
            kind,
            locks,
            ttl,
            owner,
        }
    }

    /// What excludes a lock of this kind: for a reader a writer, and the other way round.
    pub(crate) fn rival(&self) -> Self {
        let kind = match self.kind {
            Kind::Reader => Kind::Writer,
            Kind::Writer => Kind::Reader,
            kind => kind,
        };
        Self {
            kind,
            owner: Owner::new(),
            ..self.clone()
        }
    }

    pub(crate) fn with_ttl(&self, ttl: Duration) -> Self {
        Self {
            ttl,
            ..self.clone()
        }
    }

    pub(crate) fn take(&self) -> impl Future<Output = Result<Held, LockError>> + Send + use<> {
        let Self {
            kind,
            locks,
            ttl,
            owner,
        } = self.clone();
        async move {
            // On the heap: the future has room for each kind.
            Ok(match kind {
                Kind::Exclusive => Held::One(Box::pin(locks.lock(NAME).ttl(ttl).acquire()).await?),
                Kind::Reentrant => {
                    let lock = locks.reentrant_lock(NAME).owner(&owner).ttl(ttl);
                    Held::One(Box::pin(lock.acquire()).await?)
                }
                Kind::Semaphore => {
                    let semaphore = locks.semaphore(NAME, 1).ttl(ttl);
                    Held::One(Box::pin(semaphore.acquire()).await?)
                }
                Kind::Reader => Held::Reader(Box::pin(locks.rw_lock(NAME).ttl(ttl).read()).await?),
                Kind::Writer => Held::Writer(Box::pin(locks.rw_lock(NAME).ttl(ttl).write()).await?),
                Kind::Election => {
                    let election = locks.election(NAME).ttl(ttl);
                    let leader = Box::pin(election.campaign("a copy")).await?;
                    // Its next request is then its own, and not the announcement.
                    while election.leader().await?.map(|now| now.term()) != Some(leader.term()) {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                    Held::Leader(leader)
                }
                Kind::Latch => panic!("{NOT_HELD}"),
                Kind::Several => {
                    Held::Several(Box::pin(locks.all(SEVERAL).ttl(ttl).acquire()).await?)
                }
            })
        }
    }

    /// What the server knows, and this manager. The lock that is waited for first stands for several.
    pub(crate) async fn seen(&self) -> LockInfo {
        let locks = &self.locks;
        let seen = match self.kind {
            Kind::Exclusive | Kind::Election => locks.lock(NAME).inspect().await,
            Kind::Several => locks.lock(SEVERAL[1]).inspect().await,
            Kind::Reentrant => {
                locks
                    .reentrant_lock(NAME)
                    .owner(&self.owner)
                    .inspect()
                    .await
            }
            Kind::Semaphore => locks.semaphore(NAME, 1).inspect().await,
            Kind::Reader | Kind::Writer => locks.rw_lock(NAME).inspect().await,
            Kind::Latch => panic!("{NOT_HELD}"),
        };
        seen.unwrap()
    }

    /// Waits until this number of waiters is known: those of this manager, and one for each other one.
    pub(crate) async fn until_waiting(&self, count: u64) {
        eventually(&format!("{count} wait"), LIMIT, async || {
            self.seen().await.waiters() >= count
        })
        .await;
    }

    pub(crate) async fn until_free(&self) {
        eventually("it is free", LIMIT, async || !self.seen().await.is_held()).await;
    }

    /// The key on the server, where something else may be.
    pub(crate) fn key(&self) -> String {
        match self.kind {
            Kind::Reentrant => NAME.to_owned(),
            _ => format!("lock:{NAME}"),
        }
    }
}

impl Held {
    /// The token of the first lock.
    pub(crate) fn fence(&self) -> FencingToken {
        match self {
            Self::One(guard) => guard.fencing_token(),
            Self::Reader(guard) => guard.fencing_token(),
            Self::Writer(guard) => guard.fencing_token(),
            Self::Leader(guard) => guard.term(),
            Self::Several(guard) => guard.guards()[0].fencing_token(),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::One(guard) => guard.is_held(),
            Self::Reader(guard) => guard.is_held(),
            Self::Writer(guard) => guard.is_held(),
            Self::Leader(guard) => guard.is_held(),
            Self::Several(guard) => guard.is_held(),
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self {
            Self::One(guard) => guard.remaining(),
            Self::Reader(guard) => guard.remaining(),
            Self::Writer(guard) => guard.remaining(),
            Self::Leader(guard) => guard.remaining(),
            Self::Several(guard) => guard.remaining(),
        }
    }

    pub(crate) async fn lost(&self) -> LossReason {
        match self {
            Self::One(guard) => guard.lost().await,
            Self::Reader(guard) => guard.lost().await,
            Self::Writer(guard) => guard.lost().await,
            Self::Leader(guard) => guard.lost().await,
            Self::Several(guard) => guard.lost().await,
        }
    }

    pub(crate) async fn release(self) -> Result<(), LockError> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Reader(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
            Self::Leader(guard) => guard.resign().await,
            Self::Several(guard) => guard.release().await,
        }
    }
}
