//! One operation: asking for a lock as the plan says, using it, and letting go of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Deref};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use lock_core::{
    GuardedScript, Leadership, LockError, LockGuard, LockManager, LossReason, Owner, ReadGuard,
    SegmentGuard, SegmentedLock, WriteGuard,
};
use tokio::time::{sleep, timeout};

use super::attention::Attended;
use super::{Run, all, election, shared};
use crate::check::{
    Asked, BeliefId, Checks, Grant, Share, WaiterId, effects, idle_limit, idle_segment_limit,
};
use crate::plan::{Attention, Call, Connection, End, Kind, Op};

/// Who carries out an operation.
pub(super) struct Context {
    pub(super) run: Run,
    pub(super) process: usize,
    pub(super) task: usize,
    pub(super) locks: LockManager,
    /// The segmented locks of the manager: its tasks share what they know of the segments.
    pub(super) segmented: Rc<RefCell<BTreeMap<(usize, usize), SegmentedLock>>>,
}

/// A guard of any kind.
pub(super) enum Got {
    Lock(LockGuard),
    Segment(SegmentGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Leader(Leadership),
}

impl Deref for Got {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        match self {
            Self::Lock(guard) => guard,
            Self::Segment(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Leader(guard) => guard,
        }
    }
}

impl Got {
    async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Segment(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Leader(guard) => guard.resign().await,
        }
    }
}

/// A belief that ends with its guard, however that ends.
pub(super) struct Held<'a>(pub(super) &'a Checks, pub(super) BeliefId);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.ended(self.1);
    }
}

/// A wait that ends with its future.
pub(super) struct Waiting<'a>(pub(super) &'a Checks, pub(super) WaiterId);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waited(self.1);
    }
}

impl Context {
    pub(super) fn note(&self, what: std::fmt::Arguments<'_>) {
        let Self {
            run, process, task, ..
        } = self;
        run.world.note(format_args!("p{process}.{task}"), what);
    }

    fn segmented_lock(&self, key: usize, segments: usize) -> SegmentedLock {
        let mut all = self.segmented.borrow_mut();
        let make = || self.locks.segmented_lock(format!("s{key}"), segments);
        all.entry((key, segments)).or_insert_with(make).clone()
    }

    fn owner(&self, operation: usize) -> Owner {
        let share = self.run.plan.shared_owners;
        let number = (self.process + self.task + operation) as u64;
        number.checked_rem(share).map_or_else(Owner::new, |number| {
            let text = format!("00000000-0000-4000-8000-000000000000:{number}");
            Owner::parse(&text).expect("an owner's text")
        })
    }

    /// What a candidate campaigns with: no two have the same.
    fn value(&self, op: &Op, number: usize) -> Option<String> {
        let leads = matches!(op.kind, Kind::Candidate { .. })
            && matches!(op.call, Call::Forever | Call::With);
        leads.then(|| format!("p{}.{} #{number}", self.process, self.task))
    }

    fn lease(&self, op: &Op) -> Duration {
        let jitter = u64::from(self.run.plan.processes[self.process].jitter);
        Duration::from_millis(op.ttl + op.ttl * jitter / 100 + u64::from(jitter > 0))
    }
}

/// Breaks where the manager is of no use any more.
pub(super) async fn carry_out(context: &Context, op: &Op, number: usize) -> ControlFlow<()> {
    let Context { run, process, .. } = context;
    sleep(Duration::from_millis(op.before)).await;
    context.note(format_args!("#{number} {op}"));
    let ms = Duration::from_millis;
    let names = names(op);
    for name in &names {
        let idle = match op.kind {
            Kind::Segmented(_) => idle_segment_limit(ms(run.plan.delay.most)),
            _ => idle_limit(context.lease(op)),
        };
        run.checks.uses(name, idle);
        if matches!(op.kind, Kind::Candidate { .. } | Kind::Observer) {
            run.checks.uses_election(name, context.lease(op));
        }
    }
    if op.inspects {
        // What it says, or that it fails, is not what is tested.
        let (locks, key) = (&context.locks, op.key);
        let _ = match op.kind {
            Kind::Semaphore { max, .. } => locks.semaphore(format!("s{key}"), max).inspect().await,
            Kind::Read { .. } | Kind::Write { .. } => {
                locks.rw_lock(format!("w{key}")).inspect().await
            }
            Kind::Candidate { .. } => locks.lock(election::name(op)).inspect().await,
            _ => locks.lock(format!("k{key}")).inspect().await,
        };
    }
    let asked = Asked {
        name: names[0].clone(),
        process: *process,
        call: op.call,
        value: context.value(op, number),
        at: run.world.now(),
        ttl: context.lease(op),
        shortest_ttl: ms(run.plan.shortest_ttl()),
        renew: op.renew,
        delay: ms(run.plan.delay.most),
        attentive: op.attention == Attention::Full,
        may_end: run.plan.ends(*process),
        connection: run.plan.processes[*process].connection,
    };
    if op.kind == Kind::Observer {
        let observed = election::observe(context, op, &asked).await;
        return match observed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => refused(context, op, &asked, number, &error).await,
        };
    }
    if let Kind::All(_) = op.kind {
        return all::carry_out(context, op, &asked, names, number).await;
    }
    let waiter = run.checks.waits(names, *process);
    let waiting = Waiting(&run.checks, waiter);
    let tell = |polled| run.checks.is_polled(waiter, polled);
    let owner = context.owner(number);
    let owner = matches!(op.kind, Kind::Reentrant(_)).then_some(&owner);
    let asking = ask(context, op, owner, &asked, &waiting);
    let result = Attended::new(asking, op.attention, || run.checks.asleep(), tell).await;
    drop(waiting);
    match result {
        None => context.note(format_args!("#{number} dropped")),
        Some(Ok(Some(guard))) => {
            run.grants.set(run.grants.get() + 1);
            context.note(format_args!(
                "#{number} granted {}, {:?} left",
                guard.fencing_token(),
                guard.remaining()
            ));
            use_guard(context, op, &asked, owner, guard).await;
        }
        Some(Ok(None)) => context.note(format_args!("#{number} over")),
        Some(Err(error)) => return refused(context, op, &asked, number, &error).await,
    }
    ControlFlow::Continue(())
}

pub(super) async fn refused(
    context: &Context,
    op: &Op,
    asked: &Asked,
    number: usize,
    error: &LockError,
) -> ControlFlow<()> {
    context.note(format_args!("#{number} {error}"));
    let run = &context.run;
    let other_max = matches!(error, LockError::OtherMax { .. });
    if !other_max || !run.plan.has_other_max(op.key) {
        run.checks.refused(asked, error);
    }
    if matches!(error, LockError::ShutDown | LockError::InvalidConfig { .. }) {
        // A refused right looks the same: the pause keeps a loop of refusals from standing still.
        sleep(Duration::from_millis(20)).await;
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(())
}

/// The locks on the server, any of which will do.
fn names(op: &Op) -> Vec<String> {
    let key = op.key;
    match op.kind {
        Kind::Exclusive => vec![format!("lock:k{key}")],
        Kind::Reentrant(_) => vec![format!("r{key}")],
        Kind::Segmented(segments) => (0..segments)
            .map(|n| format!("lock:{{s{key}:{n}}}"))
            .collect(),
        Kind::Semaphore { .. } => vec![format!("lock:s{key}")],
        Kind::Read { .. } | Kind::Write { .. } => vec![format!("lock:w{key}")],
        Kind::Candidate { .. } | Kind::Observer => vec![format!("lock:{}", election::name(op))],
        Kind::All(_) => {
            let keys = all::keys(op).into_iter();
            keys.map(|key| format!("lock:{key}")).collect()
        }
    }
}

/// Asks as the plan says. `None` where there is no guard and nothing is wrong.
async fn ask(
    context: &Context,
    op: &Op,
    owner: Option<&Owner>,
    asked: &Asked,
    waiting: &Waiting<'_>,
) -> Result<Option<Got>, LockError> {
    let locks = &context.locks;
    let (ttl, key) = (Duration::from_millis(op.ttl), op.key);
    let most = Duration::from_millis(op.max_hold);
    match op.kind {
        Kind::Exclusive => exclusive(context, op, format!("k{key}"), asked, waiting).await,
        Kind::Reentrant(_) => {
            let mut lock = locks
                .reentrant_lock(format!("r{key}"))
                .ttl(ttl)
                .renew(op.renew);
            lock = match owner {
                Some(owner) => lock.owner(owner),
                None => lock.owner(&Owner::new()),
            };
            if op.max_hold > 0 {
                lock = lock.max_hold(most);
            }
            Ok(match op.call {
                Call::Try => {
                    let guard = lock.try_acquire().await?;
                    Some(guard.ok_or_else(|| busy(key))?)
                }
                Call::Within(limit) => {
                    Some(lock.acquire_within(Duration::from_millis(limit)).await?)
                }
                Call::Forever | Call::Force => Some(lock.acquire().await?),
                Call::With => {
                    let body = async |guard: &LockGuard| {
                        with_body(context, op, owner, asked, guard, waiting).await;
                    };
                    lock.with(body).await?;
                    None
                }
            }
            .map(Got::Lock))
        }
        Kind::Segmented(segments) => {
            let mut lock = context
                .segmented_lock(key, segments)
                .ttl(ttl)
                .renew(op.renew);
            if op.max_hold > 0 {
                lock = lock.max_hold(most);
            }
            let guard = match op.call {
                Call::Try => lock.try_acquire().await?.ok_or_else(|| busy(key))?,
                Call::Within(limit) => lock.acquire_within(Duration::from_millis(limit)).await?,
                Call::Forever | Call::With | Call::Force => lock.acquire().await?,
            };
            Ok(Some(Got::Segment(guard)))
        }
        Kind::Semaphore { .. } | Kind::Read { .. } | Kind::Write { .. } => {
            shared::ask(context, op, asked, waiting).await
        }
        Kind::Candidate { .. } => election::ask(context, op, asked, waiting).await,
        Kind::Observer | Kind::All(_) => unreachable!("not asked for as one lock"),
    }
}

/// Asks for the exclusive lock with this key. `None` where there is no guard and nothing is wrong.
pub(super) async fn exclusive(
    context: &Context,
    op: &Op,
    key: String,
    asked: &Asked,
    waiting: &Waiting<'_>,
) -> Result<Option<Got>, LockError> {
    let mut lock = context
        .locks
        .lock(key)
        .ttl(Duration::from_millis(op.ttl))
        .renew(op.renew);
    if op.max_hold > op.at_least {
        lock = lock.max_hold(Duration::from_millis(op.max_hold));
    }
    if op.at_least > 0 {
        lock = lock.at_least(Duration::from_millis(op.at_least));
    }
    Ok(match op.call {
        Call::Try => {
            let guard = lock.try_acquire().await?;
            Some(guard.ok_or_else(|| busy(op.key))?)
        }
        Call::Within(limit) => Some(lock.acquire_within(Duration::from_millis(limit)).await?),
        Call::Forever => Some(lock.acquire().await?),
        Call::With => {
            let body = async |guard: &LockGuard| {
                with_body(context, op, None, asked, guard, waiting).await;
            };
            lock.with(body).await?;
            None
        }
        Call::Force => {
            lock.force_release().await?;
            None
        }
    }
    .map(Got::Lock))
}

pub(super) fn busy(key: usize) -> LockError {
    LockError::Busy {
        key: format!("{key}"),
        retry_after: None,
        holder: None,
    }
}

pub(super) fn believed<'a>(
    context: &'a Context,
    op: &Op,
    asked: &Asked,
    owner: Option<&Owner>,
    guard: &LockGuard,
    capped: bool,
) -> Option<Held<'a>> {
    let checks = &context.run.checks;
    let name = match op.kind {
        Kind::Reentrant(_) => guard.key().to_owned(),
        _ => format!("lock:{}", guard.key()),
    };
    let capped = capped && op.max_hold > op.at_least;
    let connection = context.run.plan.processes[context.process].connection;
    let grant = Grant {
        name,
        process: context.process,
        owner: owner.map(ToString::to_string),
        share: op.kind.share().map(|(permits, max)| Share {
            token: guard.view().token().unwrap_or_default(),
            permits,
            max,
        }),
        value: asked.value.clone(),
        view: guard.view(),
        asked: asked.at,
        // What shares an owner shares a lease, which is as long as the longest of them asked for.
        ttl: if owner.is_some() && context.run.plan.shared_owners > 0 {
            Duration::from_millis(context.run.plan.longest_ttl())
        } else {
            asked.ttl
        },
        max_hold: capped.then_some(Duration::from_millis(op.max_hold)),
        is_told: connection == Connection::Push,
        reconnects: connection != Connection::User && !context.run.plan.ends(context.process),
    };
    Some(Held(checks, checks.granted(grant)?))
}

/// The body of `with`, which may be dropped at any await.
pub(super) async fn with_body(
    context: &Context,
    op: &Op,
    owner: Option<&Owner>,
    asked: &Asked,
    guard: &LockGuard,
    waiting: &Waiting<'_>,
) {
    waiting.0.waited(waiting.1);
    context.run.grants.set(context.run.grants.get() + 1);
    let _held = believed(context, op, asked, owner, guard, true);
    sleep(Duration::from_millis(op.hold)).await;
}

async fn use_guard(context: &Context, op: &Op, asked: &Asked, owner: Option<&Owner>, guard: Got) {
    let Some(held) = believed(context, op, asked, owner, &guard, true) else {
        return;
    };
    let begun = context.run.world.now();
    let calm = context.run.checks.weather().was_calm_since(begun);
    if let Kind::Reentrant(times) = op.kind {
        enter_again(context, op, asked, owner, times).await;
    }
    call_guarded(context, op, &guard).await;
    let mut is_shut_down = false;
    tokio::select! {
        biased;
        reason = guard.lost() => {
            context.note(format_args!("lost: {reason}"));
            held.0.lost(held.1, asked, reason);
            is_shut_down = reason == LossReason::ShutDown;
        }
        () = sleep(Duration::from_millis(op.hold)) => {
            if !guard.is_held() && timeout(Duration::from_millis(2), guard.lost()).await.is_err() {
                context.run.world.find("told", format!("{}: not held, and `lost` does not say so", asked.name));
            }
        }
    }
    let least = Duration::from_millis(op.at_least);
    let weather = context.run.checks.weather();
    let is_excused = context.run.checks.is_excused(held.1);
    if op.at_least > 0
        && asked.attentive
        && !asked.is_brief()
        && !is_excused
        && (guard.is_held() && calm && weather.was_calm_since(begun)
            || is_shut_down && weather.was_fair_since(begun))
    {
        let until = (begun + least).saturating_sub(Duration::from_millis(1));
        context.run.checks.at_least(&asked.name, until);
    } else if op.at_least > 0 {
        context.run.checks.foreign(
            &asked.name,
            begun + least.max(asked.ttl) * 2 + Duration::from_secs(5),
        );
    }
    let Some((guard, held)) = shared::change(context, op, asked, guard, held).await else {
        return;
    };
    drop(held);
    end(context, op, guard, Got::release).await;
}

/// Ends a guard as the plan says.
pub(super) async fn end<G>(
    context: &Context,
    op: &Op,
    guard: G,
    release: impl AsyncFnOnce(G) -> Result<(), LockError>,
) {
    context.note(format_args!("ends: {:?}", op.end));
    match op.end {
        End::Drop => drop(guard),
        End::Release => {
            if let Err(error) = release(guard).await {
                context.note(format_args!("release: {error}"));
            }
        }
        End::GiveUp(polls) => {
            let _ = Attended::new(
                release(guard),
                Attention::Drop(polls),
                || context.run.checks.asleep(),
                |_| (),
            )
            .await;
        }
        End::Panic => {
            let panicked = catch_unwind(AssertUnwindSafe(move || {
                let _guard = guard;
                resume_unwind(Box::new("on purpose"));
            }));
            drop(panicked);
        }
    }
}

/// Enters the same lock for the same owner, and leaves it again.
async fn enter_again(context: &Context, op: &Op, asked: &Asked, owner: Option<&Owner>, times: u8) {
    let Some(owner) = owner else { return };
    let lock = context.locks.reentrant_lock(format!("r{}", op.key));
    let lock = lock
        .ttl(Duration::from_millis(op.ttl))
        .renew(op.renew)
        .owner(owner);
    for time in 0..times {
        let limit = Duration::from_secs(2);
        let Ok(again) = lock.acquire_within(limit).await else {
            return;
        };
        let held = believed(context, op, asked, Some(owner), &again, false);
        sleep(Duration::from_millis(op.hold / 8)).await;
        drop(held);
        if time % 2 == 0 {
            drop(again);
        } else {
            let _ = again.release().await;
        }
    }
}

/// Calls guarded scripts: every second one is given up when it is under way, and so is the last, which may arrive after the guard
/// has gone.
async fn call_guarded(context: &Context, op: &Op, guard: &LockGuard) {
    if op.guarded == 0 {
        return;
    }
    let script = GuardedScript::new("return redis.call('RPUSH', KEYS[1], ARGV[1])");
    let fence = guard.fencing_token().get();
    let key = effects(&format!("lock:{}", guard.key()));
    for time in 0..op.guarded {
        let call = guard
            .guarded(&script)
            .key(key.as_str())
            .arg(fence)
            .run::<i64>();
        let attention = if time % 2 == op.guarded % 2 {
            Attention::Full
        } else {
            Attention::Drop(1)
        };
        let called = Attended::new(call, attention, || context.run.checks.asleep(), |_| ()).await;
        context.note(format_args!("guarded with {fence}: {called:?}"));
    }
}
