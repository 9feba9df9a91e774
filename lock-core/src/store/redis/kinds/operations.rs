//! The operations of a lock on a server, by the file of its kind.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};

use super::of_kind;
use crate::base::beside::Beside;
use crate::base::finding::Finding;
use crate::base::key::{LockKey, Prefix};
use crate::base::token::Token;
use crate::store::redis::error::{no_reply, over_users};
use crate::store::redis::route::{RedisStore, Route};
use crate::store::redis::server::list;
use crate::store::{
    Answer, Attempt, Cursor, Mode, OrRefused, Released, Renewal, Scanned, Snapshot, StoreError,
    Subscription, to_each,
};

impl RedisStore {
    pub(in crate::store) fn connecting(
        &self,
        key: &LockKey,
    ) -> Option<BoxFuture<'_, Result<(), StoreError>>> {
        let server = self.server(key)?;
        if server.generation().is_some() {
            return None;
        }
        let name = key.lock().to_owned();
        Some(Box::pin(async move {
            match &self.route {
                Route::Cluster(cluster) => cluster.connected(&name).await,
                _ => server.ready().await,
            }
        }))
    }

    pub(in crate::store) async fn acquire(
        &self,
        attempt: Attempt<'_>,
    ) -> Result<Answer, StoreError> {
        if attempt.mode == Mode::Wait
            && let Some(server) = self.server(attempt.key)
            && !server.pushes()
        {
            server.subscribe_again();
        }
        of_kind!(attempt.key.kind(), kind => kind::acquire(self, attempt).await)
    }

    pub(in crate::store) async fn release(
        &self,
        key: &Arc<LockKey>,
        token: &Token,
        owner: Option<&str>,
        is_alone: bool,
    ) -> Result<Released, StoreError> {
        of_kind!(key.kind(), kind => kind::release(self, key, token, owner, is_alone).await)
    }

    pub(in crate::store) fn part_of(&self, key: &LockKey) -> usize {
        match &self.route {
            Route::Cluster(cluster) => {
                let owner = cluster.owner(key.lock());
                owner.map_or(0, |node| Arc::as_ptr(&node).addr())
            }
            Route::One(_) | Route::User(_) => 0,
        }
    }

    pub(in crate::store) async fn extend(
        &self,
        renewals: &[Renewal<'_>],
    ) -> Vec<Result<bool, StoreError>> {
        if let Route::Cluster(_) = &self.route {
            // One call each: they may be of different masters, and a slot that moves refuses calls for several keys.
            let each = renewals.iter().map(async |renewal| {
                let held = Box::pin(extend_together(self, std::slice::from_ref(renewal))).await?;
                Ok(held == [true])
            });
            return join_all(each).await;
        }
        to_each(extend_together(self, renewals).await, renewals.len())
    }

    pub(in crate::store) async fn inspect(&self, key: &LockKey) -> Result<Snapshot, StoreError> {
        of_kind!(key.kind(), kind => kind::inspect(self, key).await)
    }

    pub(in crate::store) async fn scan(
        &self,
        prefix: Prefix<'_>,
        cursor: Cursor,
    ) -> Result<Scanned, StoreError> {
        let page = |at| of_kind!(cursor.kind, kind => kind::page(prefix, at));
        let (names, next) = match &self.route {
            Route::Cluster(cluster) => cluster.scan(page, cursor).await?,
            Route::One(server) => list::read(server.ask(page(cursor.on_node)).await?, cursor)?,
            Route::User(connection) => {
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

    pub(in crate::store) async fn examine(&self) -> Vec<Finding> {
        match &self.route {
            Route::One(server) => server.examine().await,
            Route::Cluster(cluster) => cluster.examine().await,
            Route::User(_) => Vec::new(),
        }
    }

    pub(in crate::store) async fn force_release(&self, key: &LockKey) -> OrRefused<bool> {
        of_kind!(key.kind(), kind => kind::force_release(self, key).await)
    }

    pub(in crate::store) async fn subscribe(
        &self,
        key: &LockKey,
    ) -> Result<Option<Subscription>, StoreError> {
        match (
            of_kind!(key.kind(), kind => kind::channel(key)),
            self.server(key),
        ) {
            (Some(channel), Some(server)) if server.pushes() => {
                let channel = channel.to_string();
                server.listen(&channel, key.lock(), true).await
            }
            _ => Ok(None),
        }
    }

    /// Subscribes to what is announced beside a lock, under its name.
    pub(in crate::store) async fn watch(
        &self,
        key: &LockKey,
        what: Beside,
    ) -> Result<Option<Subscription>, StoreError> {
        match self.server(key) {
            Some(server) if server.pushes() => {
                let name = key.name_of(what);
                server.listen(&name, &name, false).await
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
