//! The address of the master: from the URL, or from its sentinels.
//!
//! Each configuration of a master has an epoch, which grows with each failover. Within one epoch the first address counts, until a
//! majority of the sentinels names another one. An older epoch is followed only if all sentinels were set up anew.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};

use redis::{ConnectionAddr, RedisResult};

use super::board::Sentinels;
use super::named::{Agreement, Named};
use crate::base::sync::lock;
use crate::store::EngineRef;
use crate::store::redis::connection::target::Target;
use crate::store::redis::error::advised;

const SENTINELS: &str = "see `SENTINEL MASTERS` at each sentinel, and correct what it monitors";

/// Who names a master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(in crate::store::redis) enum By {
    /// One sentinel.
    One,
    /// The majority in the newest epoch.
    Majority,
    /// All that answer, most of those in the URL, while the known master cannot be reached.
    All,
}

/// What a message says to a client.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum News {
    /// Nothing that is not known.
    None,
    /// The master is at this address, the first that is known.
    First,
    /// The master is at this address from now on.
    Moved,
    /// It contradicts what is known: an older epoch, or another address in the same one.
    Older,
}

/// What is known of the master.
#[derive(Debug, Default)]
struct KnownMaster {
    /// The name that the URL gives.
    name: Option<Box<str>>,
    master: Option<Named>,
}

impl KnownMaster {
    fn hear(&mut self, named: &Named, by: By) -> News {
        let name = self.name.as_deref();
        let Some(master) = &mut self.master else {
            if name.is_some_and(|name| name != &*named.name) {
                return News::None;
            }
            self.master = Some(named.clone());
            // Behind a plain URL, the first message names the server of the URL.
            return if name.is_some() {
                News::First
            } else {
                News::None
            };
        };
        if master.name != named.name {
            return News::None;
        }
        let moved = !master.is_at_address_of(named);
        let counts = match named.epoch.cmp(&master.epoch) {
            Ordering::Greater => true,
            Ordering::Equal => by >= By::Majority,
            Ordering::Less => by == By::All,
        };
        if counts {
            *master = named.clone();
            if moved { News::Moved } else { News::None }
        } else if moved {
            News::Older
        } else {
            News::None
        }
    }
}

/// The server that follows the master.
pub(in crate::store::redis) trait Follower: Send + Sync {
    fn followed(&self) -> Option<&Followed>;
    fn engine(&self) -> &EngineRef;
    fn is_connected(&self) -> bool;
    /// The master is at another address from now on.
    fn follows(self: Arc<Self>);
}

/// A master that sentinels name: those of the URL, or those that announce it on the server of the URL.
pub(in crate::store::redis) struct Followed {
    /// As in the URL. With sentinels, its host is a sentinel's.
    url: Arc<Target>,
    state: Mutex<Course>,
    pub(in crate::store::redis) sentinels: Option<Arc<Sentinels>>,
}

struct Course {
    known: KnownMaster,
    /// The master that the sentinels name, once they have named another server than the URL.
    followed: Option<Arc<Target>>,
    /// Whether the next connection goes to the server of the URL all the same.
    to_url: bool,
}

impl Course {
    fn target<'a>(&'a self, url: &'a Arc<Target>) -> &'a Arc<Target> {
        let followed = self.followed.as_ref().filter(|_| !self.to_url);
        followed.unwrap_or(url)
    }
}

impl Followed {
    /// The master behind a plain URL, which is that server until a message of a sentinel names another one. `None` for a socket.
    pub(in crate::store::redis) fn behind(url: &Arc<Target>) -> Option<Self> {
        let is_in_network = matches!(url.info.addr(), ConnectionAddr::Tcp(..));
        is_in_network.then(|| Self::new(Arc::clone(url), None))
    }

    pub(super) fn new(url: Arc<Target>, sentinels: Option<Arc<Sentinels>>) -> Self {
        let name = sentinels.as_ref().map(|sentinels| sentinels.name.clone());
        let state = Course {
            known: KnownMaster { name, master: None },
            followed: None,
            to_url: false,
        };
        Self {
            url,
            state: Mutex::new(state),
            sentinels,
        }
    }

    pub(in crate::store::redis) fn url(&self) -> &Arc<Target> {
        &self.url
    }

    /// Begins to watch the sentinels of the URL.
    pub(in crate::store::redis) fn watch<F: Follower + 'static>(&self, follower: &Arc<F>) {
        if let Some(sentinels) = &self.sentinels {
            sentinels.watch(&(Arc::clone(follower) as _));
        }
    }

    /// The channel on which each sentinel names the master, on every server of that master.
    #[expect(clippy::unused_self, reason = "only what is followed has one")]
    pub(in crate::store::redis) fn channel(&self) -> &'static str {
        "__sentinel__:hello"
    }

    /// Handles a message on that channel. True if it names another master than before.
    pub(in crate::store::redis) fn heard(&self, message: &str) -> bool {
        Named::in_hello(message).is_some_and(|named| self.follow(&named, By::One))
    }

    /// Host and port of the master, as far as they are known.
    pub(in crate::store::redis) fn address(&self) -> Arc<str> {
        let state = lock(&self.state);
        match &self.sentinels {
            Some(sentinels) if state.followed.is_none() => Arc::clone(&sentinels.shown),
            _ => Arc::clone(&state.target(&self.url).address),
        }
    }

    /// The target of the next connection. Asks the sentinels first, if there are any.
    pub(in crate::store::redis) async fn target(&self) -> RedisResult<Arc<Target>> {
        if let Some(sentinels) = &self.sentinels {
            let is_known = self.is_known();
            let answer = sentinels.ask(is_known).await;
            // Without any sentinel, the last master is tried.
            if !is_known {
                answer?;
                match sentinels.agreement() {
                    Agreement::On(named) => drop(self.hear(&named, By::Majority)),
                    Agreement::Split(why) => {
                        let why = format!("the sentinels contradict each other: {why}");
                        return Err(advised(why, SENTINELS));
                    }
                    Agreement::None => {}
                }
            }
        }
        let state = lock(&self.state);
        if self.sentinels.is_some() && state.followed.is_none() {
            let why = "the sentinels name no master that can be used";
            return Err(advised(why.to_owned(), SENTINELS));
        }
        Ok(Arc::clone(state.target(&self.url)))
    }

    /// Whether the sentinels have named a master.
    pub(in crate::store::redis) fn is_known(&self) -> bool {
        lock(&self.state).followed.is_some()
    }

    /// Whether this master has been replaced, as far as is known.
    pub(in crate::store::redis) fn is_replaced(&self, named: &Named) -> bool {
        let state = lock(&self.state);
        let known = state.known.master.as_ref();
        known.is_some_and(|known| {
            named.epoch < known.epoch
                || (named.epoch == known.epoch && !named.is_at_address_of(known))
        })
    }

    fn hear(&self, named: &Named, by: By) -> News {
        let mut state = lock(&self.state);
        let news = state.known.hear(named, by);
        if matches!(news, News::First | News::Moved) {
            match self.url.at(&named.host, named.port) {
                Ok(target) => {
                    state.followed = Some(Arc::new(target));
                    state.to_url = false;
                }
                Err(error) => {
                    let master = named.address();
                    tracing::warn!(master, %error, "the sentinels name a master that cannot be used");
                    return News::None;
                }
            }
        }
        news
    }

    /// A master is named. True if that is another one than before.
    pub(in crate::store::redis) fn follow(&self, named: &Named, by: By) -> bool {
        let moved = self.hear(named, by) == News::Moved;
        let (master, epoch) = (named.address(), named.epoch);
        if moved && self.sentinels.is_some() {
            tracing::info!(
                master,
                epoch,
                "the sentinels name another master: following it"
            );
        } else if moved {
            tracing::warn!(
                master,
                epoch,
                "the server announces another master: following it"
            );
        }
        moved
    }

    /// Weighs the answers of the sentinels. True if they name another master together. The attempt to connect chooses the first one.
    pub(in crate::store::redis) fn weigh(&self, sentinels: &Sentinels, is_connected: bool) -> bool {
        let Agreement::On(named) = sentinels.agreement() else {
            return false;
        };
        let by = if !is_connected && sentinels.are_at_one() {
            By::All
        } else if is_connected && !sentinels.most_name(&named) {
            By::One
        } else {
            By::Majority
        };
        self.is_known() && self.follow(&named, by)
    }

    /// The server in use says that it is a replica.
    pub(in crate::store::redis) fn is_no_master(&self) {
        let mut state = lock(&self.state);
        if self.sentinels.is_none() && state.followed.is_some() {
            state.to_url = !state.to_url;
        }
    }

    /// This target has no master for us. Behind a plain URL, the sentinels may have named an address of their own network, so the
    /// server of the URL is tried in turns with it.
    pub(in crate::store::redis) fn failed(&self, target: &Arc<Target>) {
        let mut state = lock(&self.state);
        if self.sentinels.is_none() && Arc::ptr_eq(state.target(&self.url), target) {
            state.to_url = !state.to_url;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(epoch: u64, port: u16) -> Named {
        let hello = format!("10.0.0.9,26379,5f0c,{epoch},orders,10.0.0.1,{port},{epoch}");
        Named::in_hello(&hello).unwrap()
    }

    fn behind_sentinels() -> KnownMaster {
        KnownMaster {
            name: Some("orders".into()),
            master: None,
        }
    }

    #[test]
    fn a_lower_epoch_is_never_followed_and_an_epoch_has_one_master() {
        let mut known = behind_sentinels();
        assert_eq!(known.hear(&named(3, 1), By::One), News::First);
        assert_eq!(known.hear(&named(3, 1), By::One), News::None);
        assert_eq!(known.hear(&named(3, 2), By::One), News::Older);
        assert_eq!(known.hear(&named(2, 2), By::One), News::Older);
        assert_eq!(known.hear(&named(2, 1), By::One), News::None);
        assert_eq!(known.hear(&named(4, 2), By::One), News::Moved);
        // The same server in a new epoch, then what an old sentinel says.
        assert_eq!(known.hear(&named(5, 2), By::One), News::None);
        assert_eq!(known.hear(&named(4, 1), By::One), News::Older);
        assert_eq!(known.master, Some(named(5, 2)));
    }

    #[test]
    fn a_majority_and_all_together_count_for_more() {
        let mut known = behind_sentinels();
        assert_eq!(known.hear(&named(3, 1), By::Majority), News::First);
        assert_eq!(known.hear(&named(3, 2), By::Majority), News::Moved);
        assert_eq!(known.hear(&named(3, 2), By::Majority), News::None);
        assert_eq!(known.hear(&named(2, 1), By::Majority), News::Older);
        assert_eq!(known.hear(&named(2, 1), By::All), News::Moved);
        // From now on that is the epoch.
        assert_eq!(known.hear(&named(3, 2), By::One), News::Moved);
    }

    #[test]
    fn the_first_message_behind_a_plain_url_names_the_server_of_the_url() {
        let mut known = KnownMaster::default();
        assert_eq!(known.hear(&named(3, 1), By::One), News::None);
        assert_eq!(known.hear(&named(3, 2), By::One), News::Older);
        assert_eq!(known.hear(&named(4, 2), By::One), News::Moved);
    }

    #[test]
    fn a_master_of_another_name_says_nothing() {
        let mut known = behind_sentinels();
        let mut other = named(9, 9);
        other.name = "carts".into();
        assert_eq!(known.hear(&other, By::One), News::None);
        assert_eq!(known.hear(&named(1, 1), By::One), News::First);
        assert_eq!(known.hear(&other, By::One), News::None);
    }
}
