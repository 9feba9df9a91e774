//! The task of an engine: it starts what is due, and drives the renewals, the refreshes and the releases until they end.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use super::jobs::Jobs;
use super::release::until_confirmed;
use super::repeats::repeat;
use super::shared::{Command, Shared};
use super::state::{Action, Swept};
use super::sweep::sweep;
use crate::base::sync::lock;

pub(super) async fn run(shared: Arc<Shared>, mut commands: UnboundedReceiver<Command>) {
    let mut timer = shared.clock.timer(shared.store.is_driven_here());
    let mut jobs = Jobs::new(&shared);
    loop {
        let now = shared.clock.now();
        let next = sweep(&shared, now, &mut jobs);
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Release(acquisition)) => jobs.release(acquisition),
                Some(Command::RepeatReleases(released)) => {
                    jobs.push(repeat(Arc::clone(&shared), released));
                }
                None => break,
            },
            () = jobs.ended(), if !jobs.is_empty() => {}
            () = shared.wake.notified() => {}
            () = timer.wait(now, next) => {}
        }
    }
    // All handles are gone: finish the queued work, and clean up after the locks that were lost a moment ago.
    let now = shared.clock.now();
    let left = lock(&shared.registry).all();
    for acquisition in left {
        if let Swept::Lost { clean_up_at } = acquisition.swept(now)
            && lock(&acquisition.life).state.begin_clean_up() == Action::CleanUp
        {
            let shared = Arc::clone(&shared);
            // The pause is part of the job: it must not delay the queued releases.
            jobs.push(async move {
                shared.timers.sleep(now.until(clean_up_at)).await;
                until_confirmed(shared, acquisition).await;
            });
        }
    }
    while !jobs.is_empty() {
        jobs.ended().await;
    }
}
