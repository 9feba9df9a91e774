//! Guards that believe in their lock: P1, P2, P10, P12.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lock_core::LockView;

use super::{Excuse, Weather, permits};
use crate::plan::WRITER;
use crate::server::Deafness;
use crate::world::World;

/// A guard, by its number in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BeliefId(u64);

/// What a guard has of a lock that several may hold.
#[derive(Debug)]
pub struct Share {
    /// What the server knows it by.
    pub token: String,
    /// How many permits it has.
    pub permits: u32,
    /// How many there are.
    pub max: u32,
}

/// A guard that was returned.
#[derive(Debug)]
pub struct Grant {
    /// The lock on the server.
    pub name: String,
    /// Who has it.
    pub process: usize,
    /// The guards of one owner may be there at the same time.
    pub owner: Option<String>,
    /// Where several may hold it.
    pub share: Option<Share>,
    /// What a leader has campaigned with.
    pub value: Option<String>,
    /// How it sees the lock.
    pub view: LockView,
    /// When its call began.
    pub asked: Duration,
    /// With the jitter.
    pub ttl: Duration,
    /// The limit of the hold.
    pub max_hold: Option<Duration>,
    /// Whether messages tell it what happens.
    pub is_told: bool,
    /// Whether its manager connects by itself, and lives as long as the run.
    pub reconnects: bool,
}

/// A guard that is there.
#[derive(Debug)]
pub struct Belief {
    grant: Grant,
    fence: u64,
    /// The value of the lock when the guard was returned, for an exclusive lock.
    value: Option<Vec<u8>>,
    begun: Duration,
    /// Until when it may be wrong, and since when; only since when, where it is not sure that the lock was taken from it.
    excused: Option<(Option<Duration>, Duration)>,
    forced: bool,
}

/// Who leads an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    NoLeader,
    In(u64),
}

impl Leads {
    pub(super) fn of(term: Option<u64>) -> Self {
        term.map_or(Self::NoLeader, Self::In)
    }
}

/// A process that the server pushes nothing to.
#[derive(Debug)]
struct Deaf {
    since: Duration,
    /// When it held each lock last.
    held_at: BTreeMap<String, Duration>,
}

/// Fencing tokens that were granted before a counter was lost, and say nothing about those behind it.
#[derive(Debug)]
struct Lost {
    at: Duration,
    /// The least of them.
    from: u64,
}

/// All guards that are there, and what is known of those before.
#[derive(Debug, Default)]
pub(super) struct Beliefs {
    all: BTreeMap<BeliefId, Belief>,
    /// When a process that has guards was seen the last time without messages.
    deaf_at: BTreeMap<usize, Duration>,
    next: u64,
    /// The largest fencing token of a lock, and its owner.
    fences: BTreeMap<String, (u64, Option<String>)>,
    /// When something last happened to a lock behind the back of its holder.
    excuses: BTreeMap<String, (Duration, bool)>,
    data_loss: Option<Duration>,
    lost: Option<Lost>,
    /// Holders without a connection.
    alone_since: BTreeMap<usize, Duration>,
    /// Processes that are connected without a channel.
    deaf: BTreeMap<usize, Deaf>,
}

/// A holder that can be told of a forced release is told within this time of a calm.
const TOLD_WITHIN: Duration = Duration::from_secs(3);

/// A holder without a connection has one again within this time of a calm: P15.
const CONNECTED_WITHIN: Duration = Duration::from_millis(1_500);

/// A channel that was refused is asked for again every minute.
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(65);

/// A caller that waits without a channel asks within this time.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// A counter may run ahead of the clock by as much: by the reserved tokens, and one for each grant that a run has in a moment.
pub(super) const AHEAD: Duration = Duration::from_micros(1_500);

impl Beliefs {
    /// A guard was returned. Of an exclusive lock, `granted_at` says when the server has granted it.
    pub(super) fn begin(
        &mut self,
        world: &World,
        grant: Grant,
        granted_at: Option<Duration>,
        now: Duration,
    ) -> Option<BeliefId> {
        if !grant.view.is_held() {
            return None;
        }
        let fence = grant.view.fencing_token().get();
        // The lock may have been granted to its process before its caller asked, but not long before its number was made, unless that
        // is the next of a counter that stands still.
        let made = world.server().made(fence).saturating_sub(AHEAD);
        let since = match grant.share {
            None => grant.asked.min(granted_at.map_or(made, |at| at.max(made))),
            Some(_) => grant.asked,
        };
        let excuse = self.excuse_of(&grant.name).filter(|(at, _)| *at >= since);
        // It was under way by then: nobody knows which came first.
        let excused = excuse.map(|(at, _)| (None, at));
        let belief = Belief {
            fence,
            value: value(world, &grant.name),
            begun: now,
            excused,
            forced: false,
            grant,
        };
        if excused.is_none() {
            self.check_alone(world, &belief);
            self.check_fence(world, &belief);
        }
        check_lease(world, &belief);
        let is_stale =
            |lost: &Lost| granted_at.is_some_and(|at| at <= lost.at) && fence >= lost.from;
        if !self.lost.as_ref().is_some_and(is_stale) {
            let newest = self.fences.entry(belief.grant.name.clone()).or_default();
            if newest.0 <= fence {
                *newest = (fence, belief.grant.owner.clone());
            }
        }
        self.next += 1;
        let id = BeliefId(self.next);
        self.all.insert(id, belief);
        Some(id)
    }

    /// Whether a lock was taken from its holder since then: the order of what was under way by then is not known.
    pub(super) fn was_taken_since(&self, name: &str, moment: Duration) -> bool {
        self.excuse_of(name).is_some_and(|(at, _)| at >= moment)
    }

    /// When the server last lost its data.
    pub(super) fn data_loss(&self) -> Option<Duration> {
        self.data_loss
    }

    /// The term of the leader of an election, or that there is no leader. `None` where the server may not agree.
    pub(super) fn leads(&self, world: &World, weather: &Weather, name: &str) -> Option<Leads> {
        let all = self.all.values();
        let mut leaders = all.filter(|it| it.grant.name == name && it.grant.view.is_held());
        let Some(leader) = leaders.next() else {
            return Some(Leads::NoLeader);
        };
        let is_sure = leaders.next().is_none()
            && leader.excused.is_none()
            && weather.is_there(leader.grant.process)
            && has_it(world, leader);
        let term = leader.grant.value.as_ref().map(|_| leader.fence);
        is_sure.then(|| Leads::of(term))
    }

    pub(super) fn downgrades(&mut self, id: BeliefId) {
        if let Some(share) = self.all.get_mut(&id).and_then(|it| it.grant.share.as_mut()) {
            share.permits = 1;
        }
    }

    pub(super) fn end(&mut self, id: BeliefId) {
        self.all.remove(&id);
    }

    pub(super) fn crashed(&mut self, process: usize) {
        self.all.retain(|_, belief| belief.grant.process != process);
    }

    pub(super) fn is_excused(&self, id: BeliefId) -> bool {
        self.all
            .get(&id)
            .is_some_and(|belief| belief.excused.is_some())
    }

    pub(super) fn is_believed(&self, name: &str) -> bool {
        self.believers(name).next().is_some()
    }

    /// Whether a guard of another process believes in this lock, whatever the server has.
    pub(super) fn is_believed_elsewhere(&self, name: &str, process: usize) -> bool {
        self.believers(name).any(|grant| grant.process != process)
    }

    fn believers(&self, name: &str) -> impl Iterator<Item = &Grant> {
        let all = self.all.values().map(|belief| &belief.grant);
        all.filter(move |grant| grant.name == name && grant.view.is_held())
    }

    /// The largest fencing token that a guard of this lock was given.
    pub(super) fn newest(&self, name: &str) -> u64 {
        self.fences.get(name).map_or(0, |(fence, _)| *fence)
    }

    /// The largest fencing token that may be of a guard which this lock was taken from.
    pub(super) fn excused_up_to(&self, world: &World, name: &str) -> u64 {
        self.excuse_of(name)
            .map_or(0, |(at, _)| world.server().number(at))
    }

    fn excuse_of(&self, name: &str) -> Option<(Duration, bool)> {
        let one = self.excuses.get(name).copied();
        one.max(self.data_loss.map(|at| (at, false)))
    }

    /// A lock may have been taken from a holder whose guard is yet to be returned.
    pub(super) fn doubt(&mut self, name: &str, at: Duration) {
        self.excuses.insert(name.to_owned(), (at, false));
    }

    pub(super) fn excuse(&mut self, world: &World, excuse: Excuse<'_>, now: Duration) {
        let (name, forced) = match excuse {
            Excuse::Forced(name) => (Some(name), true),
            Excuse::Foreign(name) | Excuse::Shortened(name) => (Some(name), false),
            Excuse::DataLoss => (None, false),
        };
        for belief in self.all.values_mut() {
            // A lock that is lost already cannot be taken from this holder, and no message can tell it; unless it has it again.
            let is_lost = matches!(belief.excused, Some((Some(_), _))) && !has_it(world, belief);
            // The script may not have run: others come and go all the same.
            let is_there = forced && belief.grant.share.is_some() && has_it(world, belief);
            if !is_lost && !is_there && name.is_none_or(|name| name == belief.grant.name) {
                // A renewal that was done just before may be heard of just after.
                let until =
                    (!matches!(excuse, Excuse::Shortened(_))).then(|| now + belief.grant.ttl);
                // What another has had since was not taken from this one.
                let newest = self.fences.get(&belief.grant.name);
                let is_newest = newest.is_none_or(|(newest, _)| *newest <= belief.fence)
                    || belief.grant.share.is_some();
                belief.forced = forced && is_newest && belief.excused.is_none();
                belief.excused = Some((until, now));
            }
        }
        if let Some(name) = name {
            self.excuses.insert(name.to_owned(), (now, forced));
        } else {
            self.data_loss = Some(now);
            self.loses_counter(world);
        }
    }

    /// The counter starts again from the clock: what it was ahead of that says nothing any more.
    pub(super) fn loses_counter(&mut self, world: &World) {
        let clock = world.server().with(|master| master.now_micros());
        self.fences.retain(|_, (newest, _)| *newest < clock);
        self.lost = Some(Lost {
            at: world.now(),
            from: self.lost.as_ref().map_or(clock, |it| it.from.min(clock)),
        });
    }

    /// Exclusive locks may be granted smaller fencing tokens than before, for a while. How long, their order on the server says.
    pub(super) fn is_replaced(&mut self, now: Duration) {
        self.lost = Some(Lost { at: now, from: 0 });
        self.fences
            .retain(|name, _| !name.starts_with("lock:") || permits::is_shared(name));
    }

    /// A guard was told that another client has its lock.
    pub(super) fn check_taken(&self, world: &World, id: BeliefId) {
        if let Some(belief) = self.all.get(&id)
            && belief.excused.is_none()
            && has_it(world, belief)
        {
            let Grant { name, process, .. } = &belief.grant;
            world.find(
                "lost",
                format!("p{process} {name}: taken, and the server has it for this guard"),
            );
        }
    }

    /// Looks at every guard that is there.
    pub(super) fn look(&mut self, world: &World, weather: &Weather, now: Duration) {
        check_counter(world, now);
        let mut holders = BTreeSet::new();
        let mut again = Vec::new();
        for (id, belief) in &self.all {
            if !belief.grant.view.is_held() {
                continue;
            }
            check_lease(world, belief);
            let Grant { name, process, .. } = &belief.grant;
            if let Some(most) = belief.grant.max_hold
                && now > belief.begun + most + Duration::from_millis(1)
            {
                world.find("max_hold", format!("p{process} {name}: still held"));
            }
            if belief.grant.reconnects
                && weather.calm(now) > CONNECTED_WITHIN
                && weather.is_there(*process)
            {
                holders.insert(*process);
            }
            let Some((until, since)) = belief.excused else {
                continue;
            };
            if until.is_some_and(|until| now > until) {
                if self.has_it_again(world, belief) {
                    again.push((*id, since));
                } else {
                    let what =
                        format!("p{process} {name}: taken away at {since:?}, and still held");
                    world.find("told", what);
                }
            }
            let deafness = world.server().deafness(*process);
            if deafness.is_some() {
                self.deaf_at.insert(*process, now);
            }
            // What was said to one that did not hear is found when it hears again.
            let heard = self.deaf_at.get(process).map_or(since, |at| since.max(*at));
            let within = match deafness {
                None => TOLD_WITHIN,
                Some(Deafness::Unsubscribed) => SUBSCRIBED_WITHIN,
                Some(Deafness::LeftBehind) => Duration::MAX,
            };
            let from = if deafness.is_some() { since } else { heard };
            let calm = weather.calm(now).min(now.saturating_sub(from));
            if belief.forced && belief.grant.is_told && calm > within && weather.is_there(*process)
            {
                world.find("told", format!("p{process} {name}: taken away at {since:?}, and not told for {within:?} of calm"));
            }
        }
        for (id, since) in again {
            // It may be taken from it once more.
            let belief = self.all.get_mut(&id).expect("just looked at");
            belief.excused = Some((None, since));
        }
        self.check_connected(world, &holders, now);
    }

    /// The lock was taken away while a request for it was under way, and that request took it back for the same token before
    /// anybody else. The client cannot know: a repeated request is answered with a new fencing token, too.
    fn has_it_again(&self, world: &World, belief: &Belief) -> bool {
        let newest = self.newest(&belief.grant.name);
        (newest <= belief.fence || belief.grant.share.is_some())
            && is_on_server(world, belief).is_ok()
    }

    /// A process that was refused a channel and has callers that wait has it again, a minute after the refusal has ended.
    /// `waits` says for how long one of them has, by when the process held a lock last: behind its own holder a caller has nothing
    /// to ask.
    pub(super) fn check_subscribed(
        &mut self,
        world: &World,
        weather: &Weather,
        processes: impl Iterator<Item = usize>,
        waits: impl Fn(usize, &dyn Fn(&str) -> Option<Duration>) -> Duration,
        now: Duration,
    ) {
        for process in processes {
            let is_deaf = world.server().deafness(process) == Some(Deafness::Unsubscribed)
                && weather.is_there(process);
            if !is_deaf {
                self.deaf.remove(&process);
                continue;
            }
            let silence = self.deaf.entry(process).or_insert_with(|| Deaf {
                since: now,
                held_at: BTreeMap::new(),
            });
            for Belief { grant, .. } in self.all.values() {
                if grant.process == process && grant.view.is_held() {
                    silence.held_at.insert(grant.name.clone(), now);
                }
            }
            let since = silence.since;
            if now.saturating_sub(since).min(weather.calm(now)) > SUBSCRIBED_WITHIN
                && waits(process, &|name| silence.held_at.get(name).copied()) > ASKED_WITHIN
            {
                let what = format!("p{process} has no channel since {since:?}");
                world.find("subscribed", what);
            }
        }
    }

    /// P15: who holds a lock is connected.
    fn check_connected(&mut self, world: &World, holders: &BTreeSet<usize>, now: Duration) {
        self.alone_since
            .retain(|process, _| holders.contains(process));
        for process in holders {
            let sockets = world.network().counts(*process);
            if sockets.open + sockets.connecting > 0 {
                self.alone_since.remove(process);
                continue;
            }
            let since = *self.alone_since.entry(*process).or_insert(now);
            if now.saturating_sub(since) > CONNECTED_WITHIN {
                let what =
                    format!("p{process} holds a lock, and is without a connection since {since:?}");
                world.find("connected", what);
            }
        }
    }

    /// P1: nobody else believes at the same time.
    fn check_alone(&self, world: &World, new: &Belief) {
        if let Some(share) = &new.grant.share {
            self.check_share(world, new, share);
            return;
        }
        for other in self.all.values() {
            let same_owner = new.grant.owner.is_some() && new.grant.owner == other.grant.owner;
            if other.grant.name == new.grant.name
                && !same_owner
                && other.excused.is_none()
                && other.grant.view.is_held()
            {
                let what = format!(
                    "{}: p{} (fence {}, {:?} left) and p{} (fence {}, {:?} left)",
                    new.grant.name,
                    other.grant.process,
                    other.fence,
                    other.grant.view.remaining(),
                    new.grant.process,
                    new.fence,
                    new.grant.view.remaining(),
                );
                let rule = if new.grant.value.is_some() && other.grant.value.is_some() {
                    "one leader"
                } else {
                    "two believers"
                };
                world.find(rule, what);
            }
        }
    }

    /// The guards of a semaphore have together no more permits than there are, a writer is alone, and readers at the same time
    /// share their number.
    fn check_share(&self, world: &World, new: &Belief, share: &Share) {
        let others = self.all.values().filter(|other| {
            other.grant.name == new.grant.name
                && other.excused.is_none()
                && other.grant.view.is_held()
        });
        let (mut used, mut max) = (u64::from(share.permits), share.max);
        let mut all = vec![new];
        for (other, has) in others.filter_map(|it| Some((it, it.grant.share.as_ref()?))) {
            used += u64::from(has.permits);
            max = max.min(has.max);
            all.push(other);
        }
        let is_semaphore = max != WRITER;
        let show = |it: &Belief| {
            let permits = it.grant.share.as_ref().map_or(0, |share| share.permits);
            format!("p{} has {permits} (number {})", it.grant.process, it.fence)
        };
        let shown = || {
            let all: Vec<_> = all.iter().map(|it| show(it)).collect();
            format!("{}: {}", new.grant.name, all.join(", "))
        };
        if used > u64::from(max) {
            let rule = if is_semaphore { "permits" } else { "writer" };
            world.find(rule, shown());
        } else if !is_semaphore && all.iter().any(|other| other.fence != new.fence) {
            world.find("phase", shown());
        }
    }

    /// P10: its number is larger than any before it. Readers may share theirs, and that of a semaphore's permit is no fence.
    fn check_fence(&self, world: &World, new: &Belief) {
        let Some((before, owner)) = self.fences.get(&new.grant.name) else {
            return;
        };
        let (may_share, rule) = match &new.grant.share {
            None => (owner.is_some() && *owner == new.grant.owner, "fence"),
            Some(share) if share.max != WRITER => return,
            Some(share) => (share.permits == 1, "phase"),
        };
        if new.fence < *before || new.fence == *before && !may_share {
            let Grant { name, process, .. } = &new.grant;
            world.find(
                rule,
                format!("{name}: {before}, and then p{process} with {}", new.fence),
            );
        }
    }
}

/// P2: what a guard believes is not longer than what the server has.
fn check_lease(world: &World, belief: &Belief) {
    if belief.excused.is_some() {
        return;
    }
    if let Err((believed, there)) = is_on_server(world, belief) {
        let Grant { name, process, .. } = &belief.grant;
        world.find(
            "lease",
            format!("{name}: p{process} believes in {believed} µs, the server in {there}"),
        );
    }
}

/// P10: a server that loses its counter begins at its clock.
fn check_counter(world: &World, now: Duration) {
    let counter = value(world, "lock-core:fence").unwrap_or_default();
    let counter: u64 = String::from_utf8_lossy(&counter).parse().unwrap_or(0);
    let ahead = world.server().made(counter).saturating_sub(now);
    if ahead > AHEAD {
        world.find(
            "fence",
            format!("the counter is {ahead:?} ahead of the clock"),
        );
    }
}

/// Whether the server has the lock for this guard.
fn has_it(world: &World, belief: &Belief) -> bool {
    match &belief.grant.share {
        Some(_) => on_server(world, belief).is_some_and(|left| left > 0),
        None => belief.value.is_some() && value(world, &belief.grant.name) == belief.value,
    }
}

/// For how many µs the server has the lock for a guard.
fn on_server(world: &World, belief: &Belief) -> Option<i64> {
    let name = &belief.grant.name;
    world.server().with(|master| match &belief.grant.share {
        Some(share) => permits::left_of(master, name, &share.token),
        None => master.ttl_micros(name.as_bytes()),
    })
}

fn value(world: &World, name: &str) -> Option<Vec<u8>> {
    world
        .server()
        .with(|master| master.string(name.as_bytes()).map(<[u8]>::to_vec))
}

/// Whether the server has the lock for as long as its guard believes; else for how many µs each of them has it.
fn is_on_server(world: &World, belief: &Belief) -> Result<(), (u128, u64)> {
    let believed = belief.grant.view.remaining().as_micros();
    let there = on_server(world, belief).map_or(0, |left| left.max(0).cast_unsigned());
    if believed > u128::from(there) {
        return Err((believed, there));
    }
    Ok(())
}
