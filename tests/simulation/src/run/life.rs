//! A process: its manager, its tasks, and its new beginnings.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use lock_core::{LockError, LockManager, LockManagerBuilder};
use tokio::time::sleep;

use super::Run;
use super::operation::{self, Context};
use crate::plan::{Connection, ProcessPlan};
use crate::process::Process;

/// From its first start until all its tasks have ended, however often it crashes in between.
pub(super) async fn live(run: Run, index: usize) {
    let plan = run.plan.processes[index].clone();
    let cursors: Vec<_> = plan.tasks.iter().map(|_| Rc::new(Cell::new(0))).collect();
    let is_done = || {
        let mut tasks = plan.tasks.iter().zip(&cursors);
        tasks.all(|(ops, cursor)| cursor.get() >= ops.len())
    };
    while !is_done() {
        let process = run.world.process(index);
        if process.has_crashed() {
            sleep(Duration::from_millis(10)).await;
            continue;
        }
        let Ok(locks) = connect(&process, &plan).await else {
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        run.managers.borrow_mut().insert(index, locks.clone());
        run.checks.weather().begins_anew(index);
        *run.made.borrow_mut().entry(index).or_default() += 1;
        let runtime = if plan.apart {
            process.another_runtime()
        } else {
            process.runtime()
        };
        let segmented = Rc::default();
        let tasks: Vec<_> = cursors
            .iter()
            .enumerate()
            .map(|(number, cursor)| {
                let context = Context {
                    run: run.clone(),
                    process: index,
                    task: number,
                    locks: locks.clone(),
                    segmented: Rc::clone(&segmented),
                };
                runtime.spawn(work(context, Rc::clone(cursor)))
            })
            .collect();
        drop(locks);
        for task in tasks {
            // A task that was cancelled has crashed with its process, or ended with its runtime.
            let _ = task.await;
        }
    }
    run.doing
        .borrow_mut()
        .retain(|(process, _), _| *process != index);
}

/// One operation after the other, until the manager is of no use any more.
async fn work(context: Context, cursor: Rc<Cell<usize>>) {
    let ops = context.run.plan.processes[context.process].tasks[context.task].clone();
    while let Some(op) = ops.get(cursor.get()) {
        let place = (context.process, context.task);
        context.run.doing.borrow_mut().insert(place, op.clone());
        let number = cursor.replace(cursor.get() + 1);
        context.run.operations.set(context.run.operations.get() + 1);
        if operation::carry_out(&context, op, number).await.is_break() {
            return;
        }
    }
    context
        .run
        .doing
        .borrow_mut()
        .remove(&(context.process, context.task));
}

async fn connect(process: &Process, plan: &ProcessPlan) -> Result<LockManager, LockError> {
    let ms = Duration::from_millis;
    let builder: LockManagerBuilder = LockManager::builder()
        .command_deadline(ms(plan.command_deadline))
        .handover_limit(plan.handover_limit)
        .ttl_jitter(f64::from(plan.jitter) / 100.0);
    match plan.connection {
        Connection::Push => process.connect(builder).await,
        Connection::Resp2 => process.connect_resp2(builder).await,
        Connection::User => process.connect_over(builder),
    }
}
