use std::sync::Arc;

use tokio::sync::watch;

use super::request::Request;
use crate::wait::in_time;

/// Which requests a rule is for.
pub(super) type Predicate = Box<dyn FnMut(&Request) -> bool + Send>;

/// How a client loses a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropMode {
    /// The reply never comes, nor anything after it on that connection, which
    /// stays open: a stream cannot lose its middle and go on.
    Silent,
    /// The connection is closed in place of the reply.
    Close,
}

/// What became of the request a rule waited for.
#[derive(Debug)]
pub(super) struct Slot {
    id: u64,
    caught: watch::Sender<Option<Request>>,
    delivered: watch::Sender<bool>,
}

impl Slot {
    pub(super) fn catch(&self, request: Request) {
        self.caught.send_replace(Some(request));
    }

    pub(super) async fn until_delivered(&self) {
        // The sender lives as long as this slot, so there is no error.
        let _ = self.delivered.subscribe().wait_for(|done| *done).await;
    }

    async fn caught(&self, what: &str) -> Request {
        let mut caught = self.caught.subscribe();
        let caught = in_time(what, caught.wait_for(Option::is_some)).await;
        caught
            .ok()
            .and_then(|request| request.clone())
            .expect("waited until it was there")
    }
}

struct Rule {
    applies: Predicate,
    mode: Option<DropMode>,
    slot: Arc<Slot>,
}

/// The rules that still wait for their request. Each one is used once.
#[derive(Default)]
pub(super) struct Rules {
    waiting: Vec<Rule>,
    count: u64,
}

/// What the rules want done with a request.
#[derive(Default)]
pub(super) struct Verdict {
    pub(super) hold: Option<Arc<Slot>>,
    pub(super) drop_reply: Option<(DropMode, Arc<Slot>)>,
}

impl Rules {
    pub(super) fn add(&mut self, applies: Predicate, mode: Option<DropMode>) -> Arc<Slot> {
        self.count += 1;
        let slot = Arc::new(Slot {
            id: self.count,
            caught: watch::Sender::new(None),
            delivered: watch::Sender::new(false),
        });
        self.waiting.push(Rule {
            applies,
            mode,
            slot: Arc::clone(&slot),
        });
        slot
    }

    pub(super) fn remove(&mut self, slot: &Slot) {
        self.waiting.retain(|rule| rule.slot.id != slot.id);
    }

    /// Uses up at most one rule of each sort, so that two equal rules catch
    /// two requests.
    pub(super) fn judge(&mut self, request: &Request) -> Verdict {
        let mut verdict = Verdict::default();
        self.waiting.retain_mut(|rule| {
            // Asked even if not needed any more: a rule may be counting.
            if !(rule.applies)(request) {
                return true;
            }
            match rule.mode {
                None if verdict.hold.is_none() => {
                    rule.slot.catch(request.clone());
                    verdict.hold = Some(Arc::clone(&rule.slot));
                    false
                }
                Some(mode) if verdict.drop_reply.is_none() => {
                    verdict.drop_reply = Some((mode, Arc::clone(&rule.slot)));
                    false
                }
                _ => true,
            }
        });
        verdict
    }
}

/// A request the proxy catches and keeps from the server. Dropping this
/// before one was caught calls the rule off; dropping it afterwards leaves
/// the request undelivered for good.
#[must_use = "a held request is only delivered through this"]
pub struct Held {
    pub(super) slot: Arc<Slot>,
    pub(super) disarm: Box<dyn Fn(&Slot) + Send + Sync>,
}

impl Held {
    /// Waits until a request has been caught.
    ///
    /// # Panics
    ///
    /// When none is within [`LIMIT`](crate::LIMIT).
    pub async fn wait(&self) -> Request {
        self.slot.caught("a request to hold").await
    }

    /// Lets the caught request go on to the server, and what the client sent
    /// after it on the same connection.
    pub fn deliver(&self) {
        self.slot.delivered.send_replace(true);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        (self.disarm)(&self.slot);
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held")
            .field(&*self.slot.caught.borrow())
            .finish()
    }
}

/// A reply the proxy swallows. Dropping this changes nothing.
#[derive(Debug)]
pub struct Dropped {
    pub(super) slot: Arc<Slot>,
}

impl Dropped {
    /// Waits until the reply has been swallowed, so the server has executed
    /// the request, which this answers.
    ///
    /// # Panics
    ///
    /// When that does not happen within [`LIMIT`](crate::LIMIT).
    pub async fn wait(&self) -> Request {
        self.slot.caught("a reply to drop").await
    }
}
