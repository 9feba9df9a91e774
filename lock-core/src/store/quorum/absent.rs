//! Stands for this folder in a build without that feature: a store that no manager can have, and the error that says so.

use std::future::Ready;
use std::sync::Arc;
use std::time::Duration;

use super::redis::RedisConfig;
use super::{
    Answer, Attached, Attempt, Cursor, OrRefused, Passed, Released, Renewal, Scanned, Snapshot,
    StoreError,
};
use crate::base::election::LeaderSnapshot;
use crate::base::error::LockError;
use crate::base::finding::Finding;
use crate::base::key::{LockKey, Prefix};
use crate::base::quorum_config::QuorumConfig;
use crate::base::token::Token;

/// Without values, so that the compiler leaves out what is done with one.
#[derive(Debug)]
pub(crate) enum QuorumStore {}

impl QuorumStore {
    pub(crate) fn open(
        _urls: &[String],
        _config: &QuorumConfig,
        _servers: &RedisConfig,
        _limit: Duration,
    ) -> Result<Self, LockError> {
        Err(LockError::config(
            "this build has no quorum: enable the feature `quorum` of lock-core for `redis+quorum://`",
        ))
    }

    pub(super) fn attach(&self, _: &Attached) {
        match *self {}
    }

    pub(super) fn is_pushed_to(&self) -> bool {
        match *self {}
    }

    pub(super) fn cleaned_up(&self) -> Ready<()> {
        match *self {}
    }

    pub(super) fn ready(&self) -> Ready<Result<(), StoreError>> {
        match *self {}
    }

    pub(super) fn examined(&self) -> Ready<Vec<Finding>> {
        match *self {}
    }

    pub(super) fn acquire(&self, _: Attempt<'_>) -> Ready<Result<Answer, StoreError>> {
        match *self {}
    }

    pub(super) fn pass(&self, _: Attempt<'_>, _: &Token) -> Ready<Result<Passed, StoreError>> {
        match *self {}
    }

    pub(super) fn release(
        &self,
        _: &Arc<LockKey>,
        _: &Token,
    ) -> Ready<Result<Released, StoreError>> {
        match *self {}
    }

    pub(super) fn extend(&self, _: &[Renewal<'_>]) -> Ready<Vec<Result<bool, StoreError>>> {
        match *self {}
    }

    pub(super) fn force_release(&self, _: &LockKey) -> Ready<OrRefused<bool>> {
        match *self {}
    }

    pub(super) fn inspect(&self, _: &LockKey) -> Ready<Result<Snapshot, StoreError>> {
        match *self {}
    }

    pub(super) fn scan(&self, _: Prefix<'_>, _: Cursor) -> Ready<Result<Scanned, StoreError>> {
        match *self {}
    }

    pub(super) fn leader(&self, _: &LockKey) -> Ready<OrRefused<LeaderSnapshot>> {
        match *self {}
    }
}
