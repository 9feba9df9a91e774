//! Locks on Redis or Valkey: on one master, or on the masters of a cluster.

mod authenticate;
mod batch;
mod call;
mod channels;
mod cluster;
mod connecting;
mod dial;
mod error;
mod examine;
mod floor;
mod format;
mod guarded;
pub(super) mod kinds;
mod latch;
mod link;
mod list;
mod look;
mod named;

mod reply;
mod script;
mod sentinel_watch;
mod sentinels;
mod servers;
mod settings;
mod silence;
mod socket;
mod source;
mod stranger;
mod subscriptions;
mod target;
#[cfg(feature = "tls-rustls")]
mod tls;
mod url;
mod user;
mod wire;

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};

pub(super) use self::error::{classify, garbled};
use self::error::{no_reply, over_users};
pub(super) use self::examine::unreachable;
pub(super) use self::format::{FORMAT, differs};
pub(crate) use self::guarded::ReplyOfUser;
use self::kinds::of_kind;
pub(super) use self::latch::count_down;
pub(super) use self::link::Link;
pub(super) use self::list::scanned;
pub(super) use self::reply::{extended, forced, inspected, millis, name, text, word};
pub(super) use self::script::{Script, script, unless_lost};
pub(crate) use self::servers::RedisStore;
use self::servers::Servers;
#[cfg(feature = "tls-rustls")]
pub(crate) use self::settings::SentinelTls;
pub(crate) use self::settings::{ClusterAddresses, RedisConfig};
pub(super) use self::url::Url;
pub(crate) use self::user::UserConnection;
pub(super) use self::wire::{Arg, Name, queue, renewed, waiters};
use super::{
    Answer, Attempt, Cursor, Mode, OrRefused, Released, Renewal, Scanned, Snapshot, StoreError,
    Subscription, to_each,
};
use crate::base::beside::Beside;
use crate::base::finding::Finding;
use crate::base::key::{LockKey, Prefix};
use crate::base::token::Token;

/// The operations, by the file of each kind.
impl RedisStore {
    pub(super) fn connecting(
        &self,
        key: &LockKey,
    ) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        let link = self.link(key)?;
        if link.generation().is_some() {
            return None;
        }
        let name = key.lock().to_owned();
        Some(Box::pin(async move {
            match &self.servers {
                Servers::Cluster(cluster) => cluster.connected(&name).await,
                _ => link.ready().await,
            }
        }))
    }

    pub(super) async fn acquire(&self, attempt: Attempt<'_>) -> Result<Answer, StoreError> {
        if attempt.mode == Mode::Wait
            && let Some(link) = self.link(attempt.key)
            && !link.pushes()
        {
            link.subscribe_again();
        }
        of_kind!(attempt.key.kind(), kind => kind::acquire(self, attempt).await)
    }

    pub(super) async fn release(
        &self,
        key: &Arc<LockKey>,
        token: &Token,
        owner: Option<&str>,
        is_alone: bool,
    ) -> Result<Released, StoreError> {
        of_kind!(key.kind(), kind => kind::release(self, key, token, owner, is_alone).await)
    }

    pub(super) fn part_of(&self, key: &LockKey) -> usize {
        match &self.servers {
            Servers::Cluster(cluster) => {
                let owner = cluster.owner(key.lock());
                owner.map_or(0, |node| Arc::as_ptr(&node).addr())
            }
            Servers::One(_) | Servers::User(_) => 0,
        }
    }

    pub(super) async fn extend(&self, renewals: &[Renewal<'_>]) -> Vec<Result<bool, StoreError>> {
        if let Servers::Cluster(_) = &self.servers {
            // One call each: they may be of different masters, and a slot that moves refuses calls for several keys.
            let each = renewals.iter().map(async |renewal| {
                let held = Box::pin(extend_together(self, std::slice::from_ref(renewal))).await?;
                Ok(held == [true])
            });
            return join_all(each).await;
        }
        to_each(extend_together(self, renewals).await, renewals.len())
    }

    pub(super) async fn inspect(&self, key: &LockKey) -> Result<Snapshot, StoreError> {
        of_kind!(key.kind(), kind => kind::inspect(self, key).await)
    }

    pub(super) async fn scan(
        &self,
        prefix: Prefix<'_>,
        cursor: Cursor,
    ) -> Result<Scanned, StoreError> {
        let page = |at| of_kind!(cursor.kind, kind => kind::page(prefix, at));
        let (names, next) = match &self.servers {
            Servers::Cluster(cluster) => cluster.scan(page, cursor).await?,
            Servers::One(link) => list::read(link.ask(page(cursor.on_node)).await?, cursor)?,
            Servers::User(connection) => {
                let request = connection.request(page(cursor.on_node));
                let answer = connection.timers().timeout(self.limit, request).await;
                let answer = answer.map_err(|_| StoreError::NotNow(no_reply(self.limit)))?;
                list::read(answer.map_err(over_users)?, cursor)?
            }
        };
        let keys = names.iter();
        let keys = keys.filter_map(
            |name| of_kind!(cursor.kind, kind => kind::listed(cursor.kind, prefix, name)),
        );
        let of_next_kind = || {
            let kind = cursor.kind.next()?;
            Some(Cursor {
                kind,
                ..Cursor::default()
            })
        };
        Ok(Scanned {
            keys: keys.collect(),
            next: next.or_else(of_next_kind),
        })
    }

    pub(super) async fn examine(&self) -> Vec<Finding> {
        match &self.servers {
            Servers::One(link) => link.examine().await,
            Servers::Cluster(cluster) => cluster.examine().await,
            Servers::User(_) => Vec::new(),
        }
    }

    pub(super) async fn force_release(&self, key: &LockKey) -> OrRefused<bool> {
        of_kind!(key.kind(), kind => kind::force_release(self, key).await)
    }

    pub(super) async fn subscribe(
        &self,
        key: &LockKey,
    ) -> Result<Option<Subscription>, StoreError> {
        match (
            of_kind!(key.kind(), kind => kind::channel(key)),
            self.link(key),
        ) {
            (Some(channel), Some(link)) if link.pushes() => {
                let channel = channel.to_string();
                link.listen(&channel, key.lock(), true).await
            }
            _ => Ok(None),
        }
    }

    /// Subscribes to what is announced beside a lock, under its name.
    pub(super) async fn watch(
        &self,
        key: &LockKey,
        what: Beside,
    ) -> Result<Option<Subscription>, StoreError> {
        match self.link(key) {
            Some(link) if link.pushes() => {
                let name = key.name_of(what);
                link.listen(&name, &name, false).await
            }
            _ => Ok(None),
        }
    }
}

/// Renewals of one kind.
async fn extend_together(
    store: &RedisStore,
    renewals: &[Renewal<'_>],
) -> Result<Vec<bool>, StoreError> {
    match renewals.first() {
        Some(first) => of_kind!(first.key.kind(), kind => kind::extend(store, renewals).await),
        None => Ok(Vec::new()),
    }
}
