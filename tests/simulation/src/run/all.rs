//! Several exclusive locks at once.

use std::ops::ControlFlow;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{LockError, MultiGuard, MultiLock};
use tokio::time::{sleep, timeout};

use super::attention::Attended;
use super::operation::{Context, Held, Waiting, believed, busy, end, refused};
use crate::check::Asked;
use crate::plan::{Call, Kind, Op};

/// The keys without the prefix, as they are given: one of them may be there twice.
pub(super) fn keys(op: &Op) -> Vec<String> {
    match op.kind {
        Kind::All(keys) => keys.iter().map(|key| format!("k{key}")).collect(),
        _ => Vec::new(),
    }
}

/// Asks for all, uses them, and lets go of them.
pub(super) async fn carry_out(
    context: &Context,
    op: &Op,
    asked: &Asked,
    names: Vec<String>,
    number: usize,
) -> ControlFlow<()> {
    let checks = &context.run.checks;
    let waiter = checks.waits_for_all(names, asked.process);
    let waiting = Waiting(checks, waiter);
    let tell = |polled| checks.is_polled(waiter, polled);
    let asking = ask(context, op, asked, &waiting);
    let result = Attended::new(asking, op.attention, || checks.asleep(), tell).await;
    drop(waiting);
    match result {
        None => context.note(format_args!("#{number} dropped")),
        Some(Ok(None)) => context.note(format_args!("#{number} over")),
        Some(Ok(Some(guard))) => {
            context.note(format_args!("#{number} granted {guard:?}"));
            use_guard(context, op, asked, guard).await;
        }
        // It has lost one of the first before the last was taken, and could not begin again.
        Some(Err(LockError::Lost { .. })) if matches!(op.call, Call::Try | Call::Within(_)) => {
            context.note(format_args!("#{number} lost a part"));
        }
        Some(Err(error)) => return refused(context, op, asked, number, &error).await,
    }
    ControlFlow::Continue(())
}

async fn ask(
    context: &Context,
    op: &Op,
    asked: &Asked,
    waiting: &Waiting<'_>,
) -> Result<Option<MultiGuard>, LockError> {
    let mut locks: MultiLock = context.locks.all(keys(op));
    locks = locks.ttl(Duration::from_millis(op.ttl)).renew(op.renew);
    if op.max_hold > 0 {
        locks = locks.max_hold(Duration::from_millis(op.max_hold));
    }
    Ok(Some(match op.call {
        Call::Try => locks.try_acquire().await?.ok_or_else(|| busy(op.key))?,
        Call::Within(limit) => locks.acquire_within(Duration::from_millis(limit)).await?,
        Call::With => {
            let body = async |guard: &MultiGuard| {
                waiting.0.waited(waiting.1);
                let _held = all_believed(context, op, asked, guard);
                sleep(Duration::from_millis(op.hold)).await;
            };
            locks.with(body).await?;
            return Ok(None);
        }
        Call::Forever | Call::Force => locks.acquire().await?,
    }))
}

/// Each of the locks is held by this guard alone.
fn all_believed<'a>(
    context: &'a Context,
    op: &Op,
    asked: &Asked,
    guard: &MultiGuard,
) -> Vec<Option<Held<'a>>> {
    context.run.grants.set(context.run.grants.get() + 1);
    let guards = guard.guards().iter();
    guards
        .map(|one| believed(context, op, asked, None, one, true))
        .collect()
}

async fn use_guard(context: &Context, op: &Op, asked: &Asked, guard: MultiGuard) {
    let held = all_believed(context, op, asked, &guard);
    let find = |what: &str| context.run.world.find("all", format!("{guard:?}: {what}"));
    tokio::select! {
        biased;
        reason = guard.lost() => {
            context.note(format_args!("lost: {reason}"));
            let mut is_any = false;
            for (one, held) in guard.guards().iter().zip(&held) {
                let Some(reason) = one.lost().now_or_never() else { continue };
                is_any = true;
                let asked = Asked { name: format!("lock:{}", one.key()), ..asked.clone() };
                if let Some(held) = held {
                    held.0.lost(held.1, &asked, reason);
                }
            }
            if !is_any || guard.is_held() {
                find("lost, and each lock is held");
            }
        }
        () = sleep(Duration::from_millis(op.hold)) => {
            let is_lost = guard.guards().iter().any(|one| !one.is_held());
            if is_lost == guard.is_held() {
                find("a lock is lost, and all are held");
            }
            if is_lost && timeout(Duration::from_millis(2), guard.lost()).await.is_err() {
                find("a lock is lost, and `lost` does not say so");
            }
        }
    }
    drop(held);
    end(context, op, guard, MultiGuard::release).await;
}
