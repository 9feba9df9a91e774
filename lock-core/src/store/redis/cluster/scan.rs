//! The locks of all masters, page by page.

use redis::Cmd;

use super::Cluster;
use crate::base::sync::lock;
use crate::store::redis::server::list::scanned;
use crate::store::{Cursor, StoreError};

/// Maximum walks through all masters in one list. Slots may move for hours.
const WALKS: u32 = 3;

impl Cluster {
    /// A page of names, as `page` asks for them from a cursor on. A lock that moves during the walk may be left out. So if slots have
    /// moved, there is another walk.
    pub(in crate::store::redis) async fn scan(
        &self,
        page: impl Fn(u64) -> Cmd,
        cursor: Cursor,
    ) -> Result<(Vec<String>, Option<Cursor>), StoreError> {
        let mut next = cursor;
        if next.walk == 0 {
            self.refreshed(None).await?;
            (next.walk, next.version) = (1, lock(&self.table).version());
        }
        let masters = self.masters();
        let mut keys = Vec::new();
        // There may have been more masters a moment ago.
        if let Some(node) = masters.get(next.node) {
            let answer = node.ask(page(next.on_node)).await?;
            (keys, next.on_node) = scanned(answer)?;
            next.node += usize::from(next.on_node == 0);
        }
        if next.node < masters.len() {
            return Ok((keys, Some(next)));
        }
        self.refreshed(None).await?;
        let version = lock(&self.table).version();
        let goes_on = version != next.version && next.walk < WALKS;
        let again = Cursor {
            kind: next.kind,
            walk: next.walk + 1,
            version,
            ..Cursor::default()
        };
        Ok((keys, goes_on.then_some(again)))
    }
}
