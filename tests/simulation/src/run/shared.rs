//! Asking for a lock that several may hold: a semaphore, or a read-write lock, whose guards may change.

use std::time::Duration;

use lock_core::{LockError, LockGuard, RwLock};
use tokio::time::sleep;

use super::operation::{Context, Got, Held, Waiting, believed, busy, with_body};
use crate::check::Asked;
use crate::plan::{Call, Kind, Op};

/// Asks as the plan says. `None` where there is no guard and nothing is wrong.
pub(super) async fn ask(
    context: &Context,
    op: &Op,
    asked: &Asked,
    waiting: &Waiting<'_>,
) -> Result<Option<Got>, LockError> {
    let lock = rw_lock(context, op);
    let body = async |guard: &LockGuard| with_body(context, op, None, asked, guard, waiting).await;
    let limit = |limit| Duration::from_millis(limit);
    let none = || busy(op.key);
    Ok(match (op.kind, op.call) {
        (Kind::Semaphore { permits, max }, _) => {
            return ask_semaphore(context, op, asked, waiting, (permits, max)).await;
        }
        (_, Call::Force) => {
            lock.force_release().await?;
            None
        }
        (Kind::Read { .. }, Call::With) => {
            lock.with_read(async |guard| body(guard).await).await?;
            None
        }
        (_, Call::With) => {
            lock.with_write(async |guard| body(guard).await).await?;
            None
        }
        (Kind::Read { .. }, call) => Some(Got::Read(match call {
            Call::Try => lock.try_read().await?.ok_or_else(none)?,
            Call::Within(most) => lock.read_within(limit(most)).await?,
            _ => lock.read().await?,
        })),
        (_, call) => Some(Got::Write(match call {
            Call::Try => lock.try_write().await?.ok_or_else(none)?,
            Call::Within(most) => lock.write_within(limit(most)).await?,
            _ => lock.write().await?,
        })),
    })
}

fn rw_lock(context: &Context, op: &Op) -> RwLock {
    let lock = context.locks.rw_lock(format!("w{}", op.key));
    let lock = lock.ttl(Duration::from_millis(op.ttl)).renew(op.renew);
    if op.max_hold == 0 {
        return lock;
    }
    lock.max_hold(Duration::from_millis(op.max_hold))
}

async fn ask_semaphore(
    context: &Context,
    op: &Op,
    asked: &Asked,
    waiting: &Waiting<'_>,
    (permits, max): (u32, u32),
) -> Result<Option<Got>, LockError> {
    let mut semaphore = context
        .locks
        .semaphore(format!("s{}", op.key), max)
        .permits(permits)
        .ttl(Duration::from_millis(op.ttl))
        .renew(op.renew);
    if op.max_hold > 0 {
        semaphore = semaphore.max_hold(Duration::from_millis(op.max_hold));
    }
    let guard = match op.call {
        Call::Try => semaphore.try_acquire().await?,
        Call::Within(most) => {
            let most = Duration::from_millis(most);
            Some(semaphore.acquire_within(most).await?)
        }
        Call::Forever => Some(semaphore.acquire().await?),
        Call::With => {
            let body =
                async |guard: &LockGuard| with_body(context, op, None, asked, guard, waiting).await;
            semaphore.with(body).await?;
            return Ok(None);
        }
        Call::Force => {
            semaphore.force_release().await?;
            return Ok(None);
        }
    };
    Ok(Some(Got::Lock(guard.ok_or_else(|| busy(op.key))?)))
}

/// Makes a writer a reader, or tries to make a reader the writer, where the plan says so, and keeps it for a while. `None` where
/// the guard is lost.
pub(super) async fn change<'a>(
    context: &'a Context,
    op: &Op,
    asked: &Asked,
    guard: Got,
    held: Held<'a>,
) -> Option<(Got, Held<'a>)> {
    let mut asked = asked.clone();
    asked.at = context.run.world.now();
    let (guard, held) = match (guard, op.kind) {
        (Got::Write(write), Kind::Write { downgrades: true }) => {
            held.0.downgrades(held.1);
            match write.downgrade().await {
                Ok(read) => (Got::Read(read), held),
                Err(error) => {
                    context.note(format_args!("downgrade: {error}"));
                    match error {
                        LockError::Lost { reason, .. } => held.0.lost(held.1, &asked, reason),
                        error => held.0.refused(&asked, &error),
                    }
                    return None;
                }
            }
        }
        (Got::Read(read), Kind::Read { upgrades: true }) => match read.try_upgrade().await {
            Ok(write) => {
                context.note(format_args!("upgraded: {}", write.fencing_token()));
                drop(held);
                let guard = Got::Write(write);
                let kind = Kind::Write { downgrades: false };
                let op = Op { kind, ..op.clone() };
                let held = believed(context, &op, &asked, None, &guard, false)?;
                (guard, held)
            }
            Err((read, why)) => {
                context.note(format_args!("upgrade: {why}"));
                (Got::Read(read), held)
            }
        },
        unchanged => return Some((unchanged.0, held)),
    };
    sleep(Duration::from_millis(op.hold / 2)).await;
    Some((guard, held))
}
