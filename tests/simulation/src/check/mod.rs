//! What must hold in every run, checked in exact virtual time.
//!
//! A belief begins when a guard is returned and ends when it is let go or told of its loss. What happens to a lock without the
//! knowledge of its holder (a flush, a foreign client, a forced release) excuses the beliefs of that moment, for as long as
//! they can last without a renewal, and no longer.

mod all;
mod beliefs;
mod effects;
mod elections;
mod errors;
mod keys;
mod order;
mod permits;
mod turns;
mod weather;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use self::all::All;
use self::beliefs::Beliefs;
pub use self::beliefs::{Belief, BeliefId, Grant, Share};
use self::effects::Effects;
pub use self::effects::effects;
use self::elections::Elections;
pub use self::elections::ObserverId;
pub use self::errors::{Asked, is_short};
use self::keys::Keys;
pub use self::keys::{WaiterId, idle_limit, idle_segment_limit};
pub use self::order::COUNTER;
use self::order::Order;
use self::permits::Permits;
pub use self::turns::Sharing;
use self::turns::Turns;
pub use self::weather::Weather;
use crate::world::World;

/// The checkers of one run. Cheap to clone; clones are the same.
#[derive(Clone)]
pub struct Checks(Rc<Inner>);

struct Inner {
    world: World,
    weather: Weather,
    beliefs: RefCell<Beliefs>,
    keys: RefCell<Keys>,
    effects: RefCell<Effects>,
    elections: RefCell<Elections>,
    turns: RefCell<Turns>,
    order: Rc<RefCell<Order>>,
    /// The longest that a request is under way, when nothing is wrong.
    delay: Duration,
    /// Locks that scripts are about to take from their holders.
    forced: RefCell<Vec<Forced>>,
}

impl std::fmt::Debug for Checks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checks").finish_non_exhaustive()
    }
}

/// A lock, its token when a script was seen that takes it from its holder, and when that was.
struct Forced {
    name: String,
    token: Option<Vec<u8>>,
    at: Duration,
    /// Whether the server refused to tell anybody.
    is_mute: bool,
}

/// A caller that does not run.
#[derive(Debug)]
pub struct Asleep(Checks);

impl Drop for Asleep {
    fn drop(&mut self) {
        let now = self.0.0.world.now();
        self.0.0.keys.borrow_mut().wakes(now);
    }
}

/// What happened to locks behind the back of their holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excuse<'a> {
    /// To one lock, by a forced release, which tells the holder.
    Forced(&'a str),
    /// To one lock, by a foreign client.
    Foreign(&'a str),
    /// To one lock, by a foreign client that leaves less of its lease: the next renewal mends it.
    Shortened(&'a str),
    /// To all: the server has lost its data.
    DataLoss,
}

impl Checks {
    /// The checkers of a world with these processes, in which a request is under way for `delay` at the most when nothing is wrong.
    #[must_use]
    pub fn new(
        world: &World,
        longest_ttl: Duration,
        delay: Duration,
        processes: Vec<Sharing>,
    ) -> Self {
        let order = Rc::<RefCell<Order>>::default();
        let turns = Turns::new(processes);
        let checks = Self(Rc::new(Inner {
            world: world.clone(),
            weather: Weather::default(),
            beliefs: RefCell::default(),
            keys: RefCell::new(Keys::new(longest_ttl, turns.none_vanishes())),
            effects: RefCell::default(),
            elections: RefCell::default(),
            turns: RefCell::new(turns),
            order: Rc::clone(&order),
            delay,
            forced: RefCell::default(),
        }));
        let (mut permits, mut all, looking) = (Permits::default(), All::default(), world.clone());
        world
            .server()
            .observe(Box::new(move |master, words, reply| {
                permits.look(&looking, master, words, reply);
                all.look(&looking, master, words, reply);
                let mut order = order.borrow_mut();
                order.look(looking.now(), master, words, reply.is_some());
            }));
        let watching = checks.clone();
        world.server().watch(move |command| {
            watching.look();
            if command.script() == Some("guarded")
                && let Some(name) = command.keys().next()
            {
                watching.guarded_arrives(&String::from_utf8_lossy(name));
            }
            if matches!(
                command.script(),
                Some("force_release" | "permits force_release")
            ) && let Some(name) = command.keys().next()
            {
                let name = String::from_utf8_lossy(name).into_owned();
                let forced = Forced {
                    token: watching.token(&name),
                    at: watching.0.world.now(),
                    is_mute: watching.0.world.server().with(|master| {
                        let faults = master.faults();
                        faults.no_channels || faults.denied.contains("PUBLISH")
                    }),
                    name,
                };
                watching.0.forced.borrow_mut().push(forced);
            }
        });
        checks
    }

    /// What is wrong with the world at the moment.
    #[must_use]
    pub fn weather(&self) -> &Weather {
        &self.0.weather
    }

    /// Looks at all that can be seen at any moment: called with each command, and now and then.
    pub fn look(&self) {
        let now = self.0.world.now();
        self.find_forced(now);
        self.0
            .beliefs
            .borrow_mut()
            .look(&self.0.world, &self.0.weather, now);
        let (turns, keys) = (self.0.turns.borrow(), self.0.keys.borrow());
        let mut beliefs = self.0.beliefs.borrow_mut();
        beliefs.check_subscribed(
            &self.0.world,
            &self.0.weather,
            turns.pushed(),
            |process, held_at| keys.waits_since(process, held_at, now),
            now,
        );
        drop((turns, keys, beliefs));
        let believed = |key: &str| self.0.beliefs.borrow().is_believed(key);
        self.0
            .keys
            .borrow_mut()
            .look(&self.0.world, &self.0.weather, now, believed);
        self.0.effects.borrow_mut().look(&self.0.world);
        let (beliefs, world) = (self.0.beliefs.borrow(), &self.0.world);
        let mut elections = self.0.elections.borrow_mut();
        elections.look(world, &self.0.weather, beliefs.data_loss(), now, |name| {
            beliefs.leads(world, &self.0.weather, name)
        });
    }

    fn guarded_arrives(&self, name: &str) {
        let beliefs = self.0.beliefs.borrow();
        let mut effects = self.0.effects.borrow_mut();
        effects.arrives(
            &self.0.world,
            name,
            beliefs.newest(name),
            beliefs.excused_up_to(&self.0.world, name),
        );
    }

    /// A lock that the run uses, by its name on the server.
    pub fn uses(&self, name: &str, idle: Duration) {
        self.0.keys.borrow_mut().uses(name, idle);
    }

    /// A guard was returned. `None` where it was lost by then.
    #[must_use]
    pub fn granted(&self, grant: Grant) -> Option<BeliefId> {
        self.look();
        let now = self.0.world.now();
        let mut beliefs = self.0.beliefs.borrow_mut();
        let (name, process) = (grant.name.clone(), grant.process);
        let is_held = grant.view.is_held();
        if let Some(value) = &grant.value {
            let is_excused = beliefs.was_taken_since(&name, grant.asked) || !is_held;
            let began = (&*name, grant.view.fencing_token().get(), &**value);
            let mut elections = self.0.elections.borrow_mut();
            elections.begins(&self.0.world, began, is_excused, beliefs.data_loss());
        }
        let token = grant.view.token().filter(|_| grant.share.is_none());
        let granted_at = token.and_then(|token| {
            let fence = grant.view.fencing_token().get();
            let known_to = grant.reconnects.then_some(process);
            let mut order = self.0.order.borrow_mut();
            order.told(&self.0.world, (&name, &token), fence, known_to)
        });
        let id = beliefs.begin(&self.0.world, grant, granted_at, now);
        // What was granted before the lock was taken away says nothing about those who have it since.
        let excused = id.is_some_and(|id| beliefs.is_excused(id));
        let mut keys = self.0.keys.borrow_mut();
        if !excused {
            keys.granted(&self.0.world, &name, is_held, now);
        }
        let mut turns = self.0.turns.borrow_mut();
        let waits = |other| {
            other != process
                && turns.queues(other)
                && self.0.weather.is_there(other)
                && !turns.had_lately(&name, other, now)
        };
        // Those behind a holder that has not heard of its loss do not ask.
        let is_awaited = !excused
            && !permits::is_shared(&name)
            && !elections::is_election(&name)
            && keys.is_awaited_by(&name, waits, self.0.weather.calm(now), now)
            && !beliefs.is_believed_elsewhere(&name, process);
        turns.granted(&self.0.world, &name, process, is_awaited, now);
        id
    }

    /// A writer is about to become a reader.
    pub fn downgrades(&self, belief: BeliefId) {
        self.0.beliefs.borrow_mut().downgrades(belief);
    }

    /// A guard is let go from now on.
    pub fn ended(&self, belief: BeliefId) {
        self.0.beliefs.borrow_mut().end(belief);
    }

    /// The lock is kept until then, though its guard has gone, and nobody else may have it.
    pub fn at_least(&self, name: &str, until: Duration) {
        self.0.keys.borrow_mut().at_least(name, until);
    }

    /// Whether losing this guard has an excuse.
    #[must_use]
    pub fn is_excused(&self, belief: BeliefId) -> bool {
        self.look();
        self.0.beliefs.borrow().is_excused(belief)
    }

    /// Something happens to locks behind the back of their holders.
    pub fn excuse(&self, excuse: Excuse<'_>) {
        self.look();
        self.excused(excuse, self.0.world.now());
    }

    /// Finds out which locks were taken from their holders. A script may run a little after it was seen, with others that came
    /// at the same moment; or not at all.
    fn find_forced(&self, now: Duration) {
        let forced = std::mem::take(&mut *self.0.forced.borrow_mut());
        for forced in forced {
            if self.token(&forced.name) == forced.token {
                // It may have been granted and taken away in between, or will be at this same moment.
                self.0.beliefs.borrow_mut().doubt(&forced.name, forced.at);
                if forced.at == now {
                    self.0.forced.borrow_mut().push(forced);
                }
            } else {
                // What the server refuses to tell, the next renewal finds out.
                let excuse = if forced.is_mute {
                    Excuse::Foreign(&forced.name)
                } else {
                    Excuse::Forced(&forced.name)
                };
                self.excused(excuse, now);
            }
        }
    }

    fn token(&self, name: &str) -> Option<Vec<u8>> {
        let server = self.0.world.server();
        server.with(|master| permits::holders(master, name))
    }

    fn excused(&self, excuse: Excuse<'_>, now: Duration) {
        let world = &self.0.world;
        self.0.beliefs.borrow_mut().excuse(world, excuse, now);
        let mut keys = self.0.keys.borrow_mut();
        keys.excuse(excuse, now);
        if excuse == Excuse::DataLoss {
            self.0.order.borrow_mut().loses_counter(world);
            self.0.effects.borrow_mut().forget();
        }
    }

    /// The server has older data from now on, in which others may have each lock.
    pub fn went_back(&self) {
        let world = &self.0.world;
        self.loses_counter();
        self.0.order.borrow_mut().goes_back(world);
        self.0.keys.borrow_mut().went_back(world.now());
    }

    /// The connections that are there do not know of the older data.
    pub fn is_replaced(&self) {
        let now = self.0.world.now();
        self.0.order.borrow_mut().is_replaced(now, self.0.delay);
        self.0.beliefs.borrow_mut().is_replaced(now);
    }

    /// The data that were lost are those of another server.
    pub fn reconnects(&self) {
        self.0.order.borrow_mut().reconnects(self.0.world.now());
    }

    /// The counter of fencing tokens is lost, or set back, from now on.
    pub fn loses_counter(&self) {
        self.0.order.borrow_mut().loses_counter(&self.0.world);
        self.0.beliefs.borrow_mut().loses_counter(&self.0.world);
    }

    /// A foreign client has the lock until then.
    pub fn foreign(&self, name: &str, until: Duration) {
        self.0.keys.borrow_mut().kept(name, until);
    }

    /// A process has gone without a word, and its guards with it: their locks stay for a ttl.
    pub fn crashed(&self, process: usize) {
        let now = self.0.world.now();
        self.0.beliefs.borrow_mut().crashed(process);
        self.0.order.borrow_mut().forgets(process);
        self.0.keys.borrow_mut().crashed(process, now);
        self.0.elections.borrow_mut().crashed(process);
    }

    /// The server has refused a command for a moment, and with it perhaps the clean-up of a process.
    pub fn hindered(&self) {
        self.0.keys.borrow_mut().hindered(self.0.world.now());
    }

    /// A caller begins to wait for one of these locks.
    #[must_use]
    pub fn waits(&self, names: Vec<String>, process: usize) -> WaiterId {
        let now = self.0.world.now();
        self.0.keys.borrow_mut().waits(names, process, false, now)
    }

    /// A caller begins to wait for all of these locks, and holds some meanwhile.
    #[must_use]
    pub fn waits_for_all(&self, names: Vec<String>, process: usize) -> WaiterId {
        let now = self.0.world.now();
        self.0.keys.borrow_mut().waits(names, process, true, now)
    }

    /// Whether this caller is polled when it wants to be.
    pub fn is_polled(&self, waiter: WaiterId, polled: bool) {
        let now = self.0.world.now();
        self.0.keys.borrow_mut().is_polled(waiter, polled, now);
    }

    /// A caller does not run from now on; it does again, or has ended, when what is returned is dropped.
    #[must_use]
    pub fn asleep(&self) -> Asleep {
        self.0.keys.borrow_mut().falls_asleep();
        Asleep(self.clone())
    }

    /// A caller does not wait any more.
    pub fn waited(&self, waiter: WaiterId) {
        self.0.keys.borrow_mut().waited(waiter);
    }

    /// An election that the run uses, by the name of its lock on the server.
    pub fn uses_election(&self, name: &str, ttl: Duration) {
        self.0.elections.borrow_mut().uses(name, ttl);
    }

    /// One begins to observe an election.
    #[must_use]
    pub fn observes(&self, name: &str, process: usize) -> ObserverId {
        let now = self.0.world.now();
        self.0.elections.borrow_mut().observes(name, process, now)
    }

    /// Whether this observer is polled when it wants to be.
    pub fn is_observing(&self, observer: ObserverId, polled: bool) {
        let runs = polled.then(|| self.0.world.now());
        self.0.elections.borrow_mut().is_observing(observer, runs);
    }

    /// An observer shows who leads: a term, and a value.
    pub fn shows(&self, observer: ObserverId, leader: Option<(u64, &str)>) {
        let mut elections = self.0.elections.borrow_mut();
        elections.shows(&self.0.world, observer, leader);
    }

    /// A caller was told the leader.
    pub fn sees_leader(&self, name: &str, term: u64, value: &str) {
        let mut elections = self.0.elections.borrow_mut();
        elections.sees(&self.0.world, name, term, value);
    }

    /// An observer shows nothing any more, by itself.
    pub fn stream_ended(&self, asked: &Asked) {
        if !asked.may_end && self.0.weather.was_calm_since(asked.at) {
            let Asked { name, process, .. } = asked;
            let what = format!("{name}: p{process} observes no more, in a calm");
            self.0.world.find("observed", what);
        }
    }

    /// One does not observe any more.
    pub fn observed(&self, observer: ObserverId) {
        self.0.elections.borrow_mut().observed(observer);
    }

    /// The result of an acquisition that gave no guard.
    pub fn refused(&self, asked: &Asked, error: &lock_core::LockError) {
        let now = self.0.world.now();
        let is_held_up = self.0.keys.borrow().is_held_up_since(asked.at);
        errors::refused(
            &self.0.world,
            &self.0.weather,
            asked,
            error,
            is_held_up,
            now,
        );
    }

    /// A guard was told of its loss, or was found lost.
    pub fn lost(&self, belief: BeliefId, asked: &Asked, reason: lock_core::LossReason) {
        self.look();
        let now = self.0.world.now();
        if reason == lock_core::LossReason::Gone {
            self.0.beliefs.borrow().check_taken(&self.0.world, belief);
        }
        let excused = self.is_excused(belief);
        if !excused {
            errors::lost(&self.0.world, &self.0.weather, asked, reason, now);
        }
    }

    /// Everything is over: what is left on the server?
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        keys::leftovers(&self.0.world)
    }
}
