//! What must hold in every run over a quorum, checked in exact virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use lock_core::{LockError, LossReason};

use super::Plan;
use super::beliefs::{Belief, BeliefId, Beliefs};
use super::nodes::Nodes;
use super::votes::{CallId, Votes};
use crate::check::{Weather, is_short};
use crate::plan::{Call, Op};
use crate::world::World;

/// Nodes are vetted, and found again, within this time of a calm.
const VETTED: Duration = Duration::from_secs(5);

/// How much later than asked an end may come: the clean-up is waited for, for a moment.
const GRACE: Duration = Duration::from_millis(1_500);

/// The checkers of one run. Cheap to clone; clones are the same.
#[derive(Clone)]
pub(super) struct Checks(Rc<Inner>);

struct Inner {
    world: World,
    plan: Plan,
    weather: Weather,
    nodes: RefCell<Nodes>,
    /// When a node was last seen that does not vote.
    waited_at: Cell<Duration>,
    beliefs: RefCell<Beliefs>,
    votes: RefCell<Votes>,
}

/// Who asked for what.
pub(super) struct Asked<'a> {
    pub(super) op: &'a Op,
    pub(super) name: String,
    pub(super) process: usize,
    pub(super) at: Duration,
}

/// A caller that does not run.
pub(super) struct Asleep(Checks);

impl Drop for Asleep {
    fn drop(&mut self) {
        let now = self.0.0.world.now();
        self.0.0.votes.borrow_mut().wakes(now);
    }
}

/// A call for a lock, while it waits.
pub(super) struct Waiting {
    checks: Checks,
    call: CallId,
}

impl Waiting {
    pub(super) fn is_over(&self) {
        self.checks.0.votes.borrow_mut().waited(self.call);
    }
}

/// A belief that ends with its guard, however that ends.
pub(super) struct Held(Checks, BeliefId);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.beliefs.borrow_mut().end(self.1);
    }
}

impl Checks {
    pub(super) fn new(world: &World, plan: &Plan) -> Self {
        let ms = Duration::from_millis;
        let nodes = Nodes::new(plan.nodes, plan.servers(), ms(plan.wait), plan.is_prompt());
        let deadlines = plan.processes.iter();
        let deadlines = deadlines.map(|it| ms(it.command_deadline)).collect();
        let checks = Self(Rc::new(Inner {
            world: world.clone(),
            plan: plan.clone(),
            weather: Weather::default(),
            nodes: RefCell::new(nodes),
            waited_at: Cell::default(),
            beliefs: RefCell::default(),
            votes: RefCell::new(Votes::new(deadlines)),
        }));
        for (index, server) in world.servers().iter().enumerate() {
            let watching = checks.clone();
            server.watch(move |command| {
                watching.look();
                let Some(name) = command.keys().next() else {
                    return;
                };
                let now = watching.0.world.now();
                match command.script() {
                    Some("quorum acquire") => {
                        let token = command.args().next().unwrap_or_default();
                        let mut votes = watching.0.votes.borrow_mut();
                        votes.asks(command.process, token);
                        watching.0.beliefs.borrow_mut().asks(token, now);
                    }
                    Some("quorum force_release") => {
                        let name = String::from_utf8_lossy(name);
                        watching.0.beliefs.borrow_mut().forced(&name, now);
                    }
                    _ => {}
                }
            });
            let watching = checks.clone();
            server.observe(Box::new(move |_, words, reply| {
                if let Some(reply) = reply {
                    let nodes = watching.0.nodes.borrow();
                    nodes.answered(&watching.0.world, index, words, reply);
                }
            }));
        }
        checks
    }

    pub(super) fn weather(&self) -> &Weather {
        &self.0.weather
    }

    pub(super) fn nodes(&self) -> std::cell::RefMut<'_, Nodes> {
        self.0.nodes.borrow_mut()
    }

    /// For how long nothing has been wrong; and for how long all nodes have voted besides.
    fn calm(&self) -> (Duration, Duration) {
        let now = self.0.world.now();
        let calm = self.0.weather.calm(now);
        let voting_at = self.0.waited_at.get() + VETTED;
        (calm, calm.min(now.saturating_sub(voting_at)))
    }

    /// Looks at all that can be seen at any moment: called with each command, and now and then.
    pub(super) fn look(&self) {
        let Inner {
            world,
            nodes,
            beliefs,
            votes,
            ..
        } = &*self.0;
        let (nodes, beliefs) = (nodes.borrow(), beliefs.borrow());
        if !nodes.all_vote(world) {
            self.0.waited_at.set(world.now());
        }
        let (calm, voting) = self.calm();
        beliefs.look(world, &nodes, voting);
        votes.borrow_mut().look(
            world,
            &nodes,
            (calm, voting),
            |name, value| beliefs.has(name, value),
            |name| beliefs.is_believed(name),
        );
    }

    /// A caller asks for a lock from now on.
    pub(super) fn asks(&self, name: &str, process: usize) -> Waiting {
        let now = self.0.world.now();
        Waiting {
            call: self.0.votes.borrow_mut().begins(name, process, now),
            checks: self.clone(),
        }
    }

    /// A caller does not run until what is returned is dropped.
    pub(super) fn asleep(&self) -> Asleep {
        self.0.votes.borrow_mut().falls_asleep();
        Asleep(self.clone())
    }

    /// A guard was returned. `None` if it was lost by then.
    pub(super) fn granted(&self, belief: Belief) -> Option<Held> {
        let nodes = self.0.nodes.borrow();
        let mut beliefs = self.0.beliefs.borrow_mut();
        let id = beliefs.begin(&self.0.world, &nodes, belief)?;
        Some(Held(self.clone(), id))
    }

    /// A process has gone, or has ended without its clean-up.
    pub(super) fn leaves(&self, process: usize) {
        let until = self.0.world.now() + self.longest();
        self.0.beliefs.borrow_mut().crashed(process);
        self.0.votes.borrow_mut().leaves(process, until);
    }

    /// Requests may have arrived too late for the clean-up.
    pub(super) fn arrives_late(&self) {
        let until = self.0.world.now() + self.longest();
        self.0.votes.borrow_mut().excused(until);
    }

    /// The longest that a vote stays by itself.
    fn longest(&self) -> Duration {
        Duration::from_millis(self.0.plan.longest_ttl()) + Duration::from_secs(2)
    }

    /// Whether a lease is so short that some round trips take as long.
    fn is_brief(&self, op: &Op) -> bool {
        let slowest = Duration::from_millis(self.0.plan.slowest());
        is_short(Duration::from_millis(op.ttl), slowest)
    }

    /// The result of a call that gave no guard.
    pub(super) fn refused(&self, asked: &Asked<'_>, error: &LockError) {
        let Inner { world, plan, .. } = &*self.0;
        let Asked {
            op,
            name,
            process,
            at,
        } = asked;
        let waited = world.now().saturating_sub(*at);
        let calm = self.calm().1 > waited + Duration::from_secs(2);
        // What another caller of the process has asked for, and hears late, is told to all.
        let since = at.saturating_sub(Duration::from_secs(2));
        let is_held_up = self.0.votes.borrow().is_held_up_since(since);
        let ms = Duration::from_millis;
        let wrong = match (error, op.call) {
            (LockError::InvalidConfig { .. }, _) if plan.is_too_long(op) => None,
            (_, how) if plan.is_too_long(op) && how != Call::Force => {
                Some("though the ttl is too long")
            }
            (LockError::ShutDown | LockError::InvalidConfig { .. }, _) if plan.ends(*process) => {
                None
            }
            (LockError::Busy { .. }, Call::Try) | (LockError::Lost { .. }, Call::With) => None,
            (LockError::TimedOut { .. }, Call::Within(limit)) => {
                let late = waited > ms(limit) + GRACE + ms(plan.slowest() * 4);
                if waited < ms(limit) {
                    Some("before its limit")
                } else if late && calm && !is_held_up {
                    Some("long after its limit")
                } else {
                    None
                }
            }
            (LockError::Unavailable { .. }, _) if self.is_brief(op) || is_held_up => None,
            (LockError::Unavailable { .. }, Call::Within(limit))
                if limit <= plan.slowest() * 12 + 50 =>
            {
                None
            }
            (LockError::Unavailable { .. } | LockError::NotALock { .. }, _) => {
                calm.then_some("in a calm")
            }
            _ => Some("not of this call"),
        };
        if let Some(wrong) = wrong {
            let how = op.call;
            let what = format!("p{process} {name} {how:?} after {waited:?}: {wrong}: {error}");
            world.find("error", what);
        }
    }

    /// A guard was told of its loss.
    pub(super) fn lost(&self, held: &Held, asked: &Asked<'_>, reason: LossReason) {
        let Inner { world, plan, .. } = &*self.0;
        if reason == LossReason::Gone {
            let nodes = self.0.nodes.borrow();
            self.0.beliefs.borrow().check_gone(world, &nodes, held.1);
        }
        let ttl = Duration::from_millis(asked.op.ttl);
        let is_excused = self.0.beliefs.borrow().is_excused_by(held.1)
            || self.is_brief(asked.op)
            || !asked.op.renew
            || self.0.votes.borrow().is_held_up_since(asked.at)
            || plan.ends(asked.process) && reason == LossReason::ShutDown;
        if !is_excused && self.calm().1 > ttl + Duration::from_secs(1) {
            let Asked { name, process, .. } = asked;
            world.find("lost", format!("p{process} {name}: {reason} in a calm"));
        }
    }

    /// A guard was not released, whose lease would have lasted until then.
    pub(super) fn not_released(&self, asked: &Asked<'_>, until: Duration, error: &LockError) {
        let Inner { world, plan, .. } = &*self.0;
        let is_lost =
            matches!(error, LockError::Lost { reason, .. } if *reason != LossReason::ShutDown);
        if is_lost && world.now() < until && !plan.takes_locks() {
            let Asked { name, process, .. } = asked;
            let what = format!("p{process} {name}: a release says until {until:?}: {error}");
            world.find("lost", what);
        }
    }

    /// Everything is over: what is left on the nodes?
    pub(super) fn leftovers(&self) -> Vec<String> {
        let nodes = self.0.nodes.borrow();
        let on = |node| {
            let server = nodes.server(node);
            let keys = self.0.world.servers()[server].with(|master| master.keys());
            let names = keys.into_iter().map(move |key| {
                let name = String::from_utf8_lossy(&key).into_owned();
                (server, name)
            });
            names.filter(|(_, name)| {
                !name.starts_with("lock-core:quorum") && name != "lock-core:format"
            })
        };
        let left = (0..nodes.count()).flat_map(on);
        left.map(|(server, name)| format!("{name} on server {server}"))
            .collect()
    }
}
