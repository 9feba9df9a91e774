//! One operation: asking for a lock as the plan says, keeping it, and letting go of it.

use std::ops::{ControlFlow, Deref};
use std::time::Duration;

use lock_core::{Leadership, LockError, LockGuard, LockManager, LossReason};
use tokio::time::sleep;

use super::beliefs::Belief;
use super::check::{Asked, Held, Waiting};
use super::run::Run;
use crate::plan::{Attention, Call, End, Kind, Op};
use crate::run::attention::Attended;

/// Who carries out an operation.
pub(super) struct Context {
    pub(super) run: Run,
    pub(super) process: usize,
    pub(super) task: usize,
    pub(super) locks: LockManager,
}

enum Got {
    Lock(LockGuard),
    Leader(Leadership),
}

impl Deref for Got {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        match self {
            Self::Lock(guard) => guard,
            Self::Leader(guard) => guard,
        }
    }
}

impl Got {
    async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Leader(guard) => guard.resign().await,
        }
    }
}

fn key(op: &Op) -> String {
    match op.kind {
        Kind::Candidate { .. } => format!("e{}", op.key),
        _ => format!("k{}", op.key),
    }
}

impl Context {
    fn note(&self, what: std::fmt::Arguments<'_>) {
        let who = format_args!("p{}.{}", self.process, self.task);
        self.run.world.note(who, what);
    }

    /// What a candidate campaigns with: no two have the same.
    fn value(&self, op: &Op, number: usize) -> Option<String> {
        let leads = matches!(op.kind, Kind::Candidate { .. });
        leads.then(|| format!("p{}.{} #{number}", self.process, self.task))
    }

    fn believed(
        &self,
        asked: &Asked<'_>,
        value: Option<String>,
        guard: &LockGuard,
    ) -> Option<Held> {
        self.run.grants.set(self.run.grants.get() + 1);
        self.run.checks.granted(Belief {
            name: asked.name.clone(),
            process: self.process,
            view: guard.view(),
            asked: asked.at,
            value,
            begun: self.run.world.now(),
        })
    }
}

/// Breaks where the manager is of no use any more.
pub(super) async fn carry_out(context: &Context, op: &Op, number: usize) -> ControlFlow<()> {
    let (run, process) = (&context.run, context.process);
    sleep(Duration::from_millis(op.before)).await;
    context.note(format_args!("#{number} {op}"));
    let asked = Asked {
        op,
        name: format!("lock:{}", key(op)),
        process,
        at: run.world.now(),
    };
    if op.inspects {
        // What it says, or that it fails, is not what is tested.
        let _ = context.locks.lock(key(op)).inspect().await;
    }
    let waiting = run.checks.asks(&asked.name, process);
    let value = context.value(op, number);
    let asking = ask(context, &asked, value.as_deref(), &waiting);
    let asleep = || run.checks.asleep();
    let result = Attended::new(asking, op.attention, asleep, |_| ()).await;
    waiting.is_over();
    match result {
        None => context.note(format_args!("#{number} dropped")),
        Some(Ok(None)) => context.note(format_args!("#{number} over")),
        Some(Ok(Some(guard))) => {
            let (fence, left) = (guard.fencing_token(), guard.remaining());
            context.note(format_args!("#{number} granted {fence}, {left:?} left"));
            if run.plan.is_too_long(op) {
                let what = format!(
                    "{}: {op} is granted, though the wait is too short",
                    asked.name
                );
                run.world.find("age", what);
            }
            use_guard(context, &asked, value, guard).await;
        }
        Some(Err(error)) => {
            context.note(format_args!("#{number} {error}"));
            run.checks.refused(&asked, &error);
            if matches!(error, LockError::ShutDown) {
                return ControlFlow::Break(());
            }
        }
    }
    ControlFlow::Continue(())
}

/// Asks as the plan says. `None` where there is no guard and nothing is wrong.
async fn ask(
    context: &Context,
    asked: &Asked<'_>,
    value: Option<&str>,
    waiting: &Waiting,
) -> Result<Option<Got>, LockError> {
    let (locks, op) = (&context.locks, asked.op);
    let ttl = Duration::from_millis(op.ttl);
    if let Some(value) = value {
        let election = locks.election(key(op)).ttl(ttl);
        return Ok(Some(Got::Leader(election.campaign(value).await?)));
    }
    let lock = locks.lock(key(op)).ttl(ttl).renew(op.renew);
    let guard = match op.call {
        Call::Try => lock.try_acquire().await?.ok_or_else(|| LockError::Busy {
            key: key(op),
            retry_after: None,
            holder: None,
        })?,
        Call::Within(limit) => lock.acquire_within(Duration::from_millis(limit)).await?,
        Call::Forever => lock.acquire().await?,
        Call::With => {
            let body = async |guard: &LockGuard| {
                waiting.is_over();
                let _held = context.believed(asked, None, guard);
                sleep(Duration::from_millis(op.hold)).await;
            };
            lock.with(body).await?;
            return Ok(None);
        }
        Call::Force => {
            lock.force_release().await?;
            return Ok(None);
        }
    };
    Ok(Some(Got::Lock(guard)))
}

async fn use_guard(context: &Context, asked: &Asked<'_>, value: Option<String>, guard: Got) {
    let Some(held) = context.believed(asked, value, &guard) else {
        return;
    };
    let lasts = Duration::from_millis(asked.op.hold);
    tokio::select! {
        biased;
        reason = guard.lost() => {
            context.note(format_args!("lost: {reason}"));
            if reason != LossReason::ShutDown {
                context.run.checks.lost(&held, asked, reason);
            }
        }
        () = sleep(lasts) => {}
    }
    context.note(format_args!("ends: {:?}", asked.op.end));
    drop(held);
    match asked.op.end {
        End::Drop | End::Panic => drop(guard),
        End::Release => {
            let until = context.run.world.now() + guard.remaining();
            if let Err(error) = guard.release().await {
                context.note(format_args!("release: {error}"));
                context.run.checks.not_released(asked, until, &error);
            }
        }
        End::GiveUp(polls) => {
            let asleep = || context.run.checks.asleep();
            let _ = Attended::new(guard.release(), Attention::Drop(polls), asleep, |_| ()).await;
        }
    }
}
