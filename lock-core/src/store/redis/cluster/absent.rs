//! Stands for this folder in a build without that feature: a cluster that no store can have, and the error that says so.

use std::future::Ready;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::connection::settings::RedisConfig;
use super::connection::url::Url;
use super::server::Server;
use super::server::call::Call;
use super::wire::Name;
use crate::base::error::LockError;
use crate::base::finding::Finding;
use crate::store::{Attached, Cursor, StoreError};

type Page = (Vec<String>, Option<Cursor>);

/// Without values, so that the compiler leaves out what is done with one.
pub(super) enum Cluster {}

impl Cluster {
    pub(super) fn open(
        _url: &Url<'_>,
        _config: &RedisConfig,
        _limit: Duration,
    ) -> Result<Arc<Self>, LockError> {
        Err(LockError::config(
            "this build has no cluster: enable the feature `cluster` of lock-core for `redis+cluster://`",
        ))
    }

    pub(super) fn attach(&self, _: Attached) {
        match *self {}
    }

    pub(super) fn ready(&self) -> Ready<Result<(), StoreError>> {
        match *self {}
    }

    pub(super) fn connected(&self, _: &str) -> Ready<Result<(), StoreError>> {
        match *self {}
    }

    pub(super) fn examine(&self) -> Ready<Vec<Finding>> {
        match *self {}
    }

    pub(super) fn parts(&self) -> Ready<Result<Vec<&'static str>, StoreError>> {
        match *self {}
    }

    pub(super) fn owner(&self, _: &str) -> Option<Arc<Server>> {
        match *self {}
    }

    pub(super) fn fence<'a>(&self, _: &'a str, _: &str) -> Name<'a> {
        match *self {}
    }

    pub(super) fn run(&self, _: Call<'_>) -> Ready<Result<Value, StoreError>> {
        match *self {}
    }

    pub(super) fn scan(
        &self,
        _: impl Fn(u64) -> Cmd,
        _: Cursor,
    ) -> Ready<Result<Page, StoreError>> {
        match *self {}
    }
}
