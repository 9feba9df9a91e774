//! Which master serves which slot, as far as is known. No I/O.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::slots::{Address, Range, tag_of};
use crate::base::slot::SLOTS;
use crate::store::redis::server::Server;

/// Two nodes may disagree about a slot for hours, after a move that was interrupted. The slot follows this number of changes within
/// this time at once, and then rests until the time is over. From then on one request is sent in this time, whatever the number of
/// locks, until one is answered.
const CHANGES: u32 = 5;
const REST: Duration = Duration::from_secs(1);

/// Which master serves which slot.
pub(super) struct Table {
    owners: Vec<Option<Arc<Server>>>,
    /// The masters that serve slots, always in the same order.
    masters: Vec<Arc<Server>>,
    pub(super) nodes: HashMap<Address, Arc<Server>>,
    /// The ids of all nodes, as the last answer gave them.
    ids: HashSet<Box<str>>,
    /// Slots with a new master, whose counter may be behind the tokens of this client.
    behind: Vec<bool>,
    changes: HashMap<usize, SlotChanges>,
    /// Number of answers that have changed the master of a slot.
    version: u64,
}

/// What an answer has changed.
pub(super) struct Applied {
    /// For each slot, whether it has another master.
    pub(super) moved: Vec<bool>,
    /// Nodes that serve no slot any more.
    pub(super) gone: Vec<Arc<Server>>,
    /// The masters before. They are dropped without the lock of the table: the end of a connection wakes its waiters.
    _before: Vec<Option<Arc<Server>>>,
}

impl Applied {
    pub(super) fn is_news(&self) -> bool {
        self.moved.contains(&true)
    }
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            owners: vec![None; SLOTS],
            masters: Vec::new(),
            nodes: HashMap::new(),
            ids: HashSet::new(),
            behind: vec![false; SLOTS],
            changes: HashMap::new(),
            version: 0,
        }
    }

    pub(super) fn owner(&self, slot: usize) -> Option<&Arc<Server>> {
        self.owners[slot].as_ref()
    }

    pub(super) fn is_served_by(&self, slot: usize, address: &Address) -> bool {
        self.owner(slot)
            .is_some_and(|node| node.named() == Some(address))
    }

    pub(super) fn masters(&self) -> &[Arc<Server>] {
        &self.masters
    }

    /// A tag in a slot of each master, or a slot that has none.
    pub(super) fn tags(&self) -> Result<Vec<&'static str>, usize> {
        let mut seen: Vec<&Arc<Server>> = Vec::new();
        let mut tags = Vec::new();
        for (slot, owner) in self.owners.iter().enumerate() {
            let owner = owner.as_ref().ok_or(slot)?;
            if !seen.iter().any(|node| Arc::ptr_eq(node, owner)) {
                seen.push(owner);
                tags.push(tag_of(slot));
            }
        }
        Ok(tags)
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// True once for a slot with a new master, whose counter may be behind.
    pub(super) fn is_behind(&mut self, slot: usize) -> bool {
        std::mem::take(&mut self.behind[slot])
    }

    /// Whether this is an answer of our cluster: a node may have been given to another one. It names nodes that are known.
    pub(super) fn is_ours(&self, ranges: &[Range]) -> bool {
        let named = ids_of(ranges);
        let shared = named.iter().filter(|id| self.ids.contains(**id)).count();
        shared >= self.ids.len().min(2)
    }

    pub(super) fn knows_ids(&self) -> bool {
        !self.ids.is_empty()
    }

    /// A node says that this one serves the slot. `None` if the slot rests; else whether that is news.
    pub(super) fn moves(&mut self, slot: usize, to: &Arc<Server>, now: Instant) -> Option<bool> {
        if self.owner(slot).is_some_and(|node| Arc::ptr_eq(node, to)) {
            return Some(false);
        }
        self.changes.retain(|_, changes| changes.go_on(now));
        if !self.may_change(slot, now) {
            return None;
        }
        let is_news = self.owners[slot].replace(Arc::clone(to)).is_some();
        self.behind[slot] |= is_news;
        self.masters = masters_of(&self.owners);
        self.version += 1;
        Some(is_news)
    }

    /// The slots are as in this answer, and these are its nodes.
    pub(super) fn apply(
        &mut self,
        ranges: &[Range],
        nodes: &[Arc<Server>],
        now: Instant,
    ) -> Applied {
        self.ids = ids_of(ranges).into_iter().map(Box::from).collect();
        self.changes.retain(|_, changes| changes.go_on(now));
        let mut owners = vec![None; SLOTS];
        for (range, node) in ranges.iter().zip(nodes) {
            owners[range.first..=range.last].fill(Some(Arc::clone(node)));
        }
        let mut moved = vec![false; SLOTS];
        for (slot, moved) in moved.iter_mut().enumerate() {
            *moved = match (&self.owners[slot], &owners[slot]) {
                (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
                _ => false,
            };
            // A slot without a master will have one again.
            let stays = owners[slot].is_none() || (*moved && !self.may_change(slot, now));
            if stays {
                *moved = false;
                owners[slot].clone_from(&self.owners[slot]);
            }
            self.behind[slot] |= *moved;
        }
        let before = std::mem::replace(&mut self.owners, owners);
        let serve = masters_of(&self.owners);
        let served = std::mem::replace(&mut self.masters, serve.clone());
        // A node that never served may be about to: it stays while it is asked.
        let goes = |_: &Address, node: &mut Arc<Server>| {
            !is_in(&serve, node) && (is_in(&served, node) || !node.is_asked())
        };
        let gone = self.nodes.extract_if(goes).map(|(_, node)| node).collect();
        self.version += u64::from(moved.contains(&true));
        Applied {
            moved,
            gone,
            _before: before,
        }
    }

    /// Whether a request for the slot may be sent now, and whether it is the one that tries a slot about which nodes disagree. Else
    /// the time to ask again.
    pub(super) fn admits(&mut self, slot: usize, now: Instant) -> Result<bool, Instant> {
        let changes = self.changes.get_mut(&slot);
        match changes.and_then(|changes| changes.tried.as_mut()) {
            Some(tried) if now < *tried + REST => Err(*tried + REST),
            Some(tried) => {
                *tried = now;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// A node has answered for the slot.
    pub(super) fn is_settled(&mut self, slot: usize) {
        self.changes.remove(&slot);
    }

    /// Counts a change of the slot.
    fn may_change(&mut self, slot: usize, now: Instant) -> bool {
        let first = SlotChanges {
            since: now,
            count: 0,
            tried: None,
        };
        let changes = self.changes.entry(slot).or_insert(first);
        changes.count += 1;
        if changes.count > CHANGES {
            changes.tried.get_or_insert(now);
        }
        changes.count <= CHANGES
    }
}

/// Changes of a slot within [`REST`].
struct SlotChanges {
    since: Instant,
    count: u32,
    /// If nodes disagree about the slot: when the last request was sent.
    tried: Option<Instant>,
}

impl SlotChanges {
    /// Counts anew after [`REST`]. False if nothing is left to know.
    fn go_on(&mut self, now: Instant) -> bool {
        let is_over = now.saturating_duration_since(self.since) >= REST;
        if is_over {
            (self.since, self.count) = (now, 0);
        }
        !is_over || self.tried.is_some()
    }
}

fn is_in(masters: &[Arc<Server>], node: &Arc<Server>) -> bool {
    masters.iter().any(|one| Arc::ptr_eq(one, node))
}

fn masters_of(owners: &[Option<Arc<Server>>]) -> Vec<Arc<Server>> {
    let mut masters: Vec<Arc<Server>> = Vec::new();
    for owner in owners.iter().flatten() {
        // Slots of one master are mostly next to each other.
        if !is_in(&masters, owner) {
            masters.push(Arc::clone(owner));
        }
    }
    masters.sort_by(|one, other| one.named().cmp(&other.named()));
    masters
}

/// The ids of all nodes that an answer names.
pub(super) fn ids_of(ranges: &[Range]) -> HashSet<&str> {
    let ids = ranges.iter().flat_map(|range| &range.ids);
    ids.map(|id| &**id).collect()
}
