//! A server whose master sentinels name.

use std::sync::Arc;

use super::Server;
use crate::store::EngineRef;
use crate::store::redis::sentinel::followed::{Followed, Follower};

impl Follower for Server {
    fn followed(&self) -> Option<&Followed> {
        self.source().followed.as_ref()
    }

    fn engine(&self) -> &EngineRef {
        &self.dialer.engine
    }

    fn is_connected(&self) -> bool {
        self.generation().is_some()
    }

    fn follows(self: Arc<Self>) {
        self.has_moved();
    }
}
