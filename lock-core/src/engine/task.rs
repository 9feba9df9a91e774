//! The task of an engine: it starts what is due, and drives the renewals, the refreshes and the releases until they end.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::UnboundedReceiver;

use super::refreshes::Refreshes;
use super::release as releases;
use super::repeats::repeat;
use super::shared::{Command, Shared};
use super::state::{Action, Swept};
use super::sweep::{Job, release, sweep};
use crate::base::sync::lock;
use crate::base::time::BootTimer;

pub(super) async fn run(shared: Arc<Shared>, mut commands: UnboundedReceiver<Command>) {
    let mut timer = if shared.store.is_driven_here() {
        shared.clock.timer()
    } else {
        BootTimer::Heartbeat
    };
    let mut jobs: FuturesUnordered<Job> = FuturesUnordered::new();
    let mut refreshes = Refreshes::default();
    loop {
        let now = shared.now();
        let next = sweep(&shared, now, &mut jobs, &mut refreshes);
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Release(acquisition)) => release(&shared, acquisition, &mut jobs),
                Some(Command::ReleaseThen(acquisition, then)) => {
                    jobs.push(Box::pin(releases::until_confirmed_then(Arc::clone(&shared), acquisition, then)));
                }
                Some(Command::RepeatReleases(released)) => {
                    jobs.push(Box::pin(repeat(Arc::clone(&shared), released)));
                }
                None => break,
            },
            Some(()) = next_of(&mut jobs), if !jobs.is_empty() => {}
            () = refreshes.ended(&shared), if !refreshes.is_empty() => {}
            () = shared.wake.notified() => {}
            () = timer.wait(now, next) => {}
        }
    }
    // All handles are gone: finish the queued work, and clean up after the locks that were lost a moment ago.
    let now = shared.now();
    let left = lock(&shared.registry).all();
    for acquisition in left {
        if let Swept::Lost { clean_up_at } = acquisition.swept(now)
            && acquisition.life().state.begin_clean_up() == Action::CleanUp
        {
            let shared = Arc::clone(&shared);
            // The pause is part of the job: it must not delay the queued releases.
            jobs.push(Box::pin(async move {
                tokio::time::sleep(now.until(clean_up_at)).await;
                releases::until_confirmed(shared, acquisition).await;
            }));
        }
    }
    let rest = async {
        while !refreshes.is_empty() {
            refreshes.ended(&shared).await;
        }
    };
    let work = async { while next_of(&mut jobs).await.is_some() {} };
    tokio::join!(work, rest);
}

/// The next job that is over. Without the budget of tokio: where many jobs are ready, each poll would use it up on the first ones, and
/// wake all others in vain.
async fn next_of(jobs: &mut FuturesUnordered<Job>) -> Option<()> {
    tokio::task::unconstrained(jobs.next()).await
}
