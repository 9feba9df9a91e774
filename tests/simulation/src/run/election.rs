//! Candidates of an election, and those who observe it.

use std::future::ready;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::{Election, Leader, Leadership, LockError};
use tokio::time::{Instant, timeout_at};

use super::attention::Attended;
use super::operation::{Context, Got, Waiting, exclusive, with_body};
use crate::check::{Asked, Checks, ObserverId};
use crate::plan::{Call, Kind, Op};

/// An observer that ends with its future.
struct Observing<'a>(&'a Checks, ObserverId);

impl Drop for Observing<'_> {
    fn drop(&mut self) {
        self.0.observed(self.1);
    }
}

/// The name of an election without the prefix.
pub(super) fn name(op: &Op) -> String {
    format!("e{}", op.key)
}

fn election(context: &Context, op: &Op) -> Election {
    let election = context.locks.election(name(op));
    let election = election.ttl(Duration::from_millis(op.ttl));
    if op.max_hold == 0 {
        return election;
    }
    election.max_hold(Duration::from_millis(op.max_hold))
}

/// Campaigns, or asks for a lock with the key of the election. `None` where there is no guard and nothing is wrong.
pub(super) async fn ask(
    context: &Context,
    op: &Op,
    asked: &Asked,
    waiting: &Waiting<'_>,
) -> Result<Option<Got>, LockError> {
    let Some(value) = &asked.value else {
        return exclusive(context, op, name(op), asked, waiting).await;
    };
    let mut election = election(context, op);
    if op.call != Call::With {
        return Ok(Some(Got::Leader(election.campaign(value).await?)));
    }
    if matches!(op.kind, Kind::Candidate { steps_down: true }) {
        // Not before the first campaign, then once while it leads. A pause follows.
        let asks = AtomicU32::new(0);
        let unfit = move || asks.fetch_add(1, Ordering::Relaxed) == 1;
        election = election.step_down_if(move || ready(unfit()));
    }
    let mut op = op.clone();
    // A body that is begun anew ends at once: else one that takes longer than its term may last would never end.
    let mut is_first = true;
    let body = async |leadership: &Leadership| {
        if !std::mem::take(&mut is_first) {
            op.hold = 0;
        }
        with_body(context, &op, None, asked, leadership, waiting).await;
    };
    election.run(value, body).await?;
    Ok(None)
}

/// Observes for a while, and looks once.
pub(super) async fn observe(context: &Context, op: &Op, asked: &Asked) -> Result<(), LockError> {
    let checks = &context.run.checks;
    let observer = checks.observes(&asked.name, asked.process);
    let observing = Observing(checks, observer);
    let watching = async {
        let election = election(context, op);
        if op.inspects
            && let Some(leader) = election.leader().await?
        {
            checks.sees_leader(&asked.name, leader.term().get(), leader.value());
        }
        let mut leaders = election.observe().await?;
        let end = Instant::now() + Duration::from_millis(op.hold);
        while let Ok(next) = timeout_at(end, leaders.next()).await {
            let Some(leader) = next else {
                checks.stream_ended(asked);
                break;
            };
            let shown = leader
                .as_ref()
                .map(|it: &Leader| (it.term().get(), it.value()));
            context.note(format_args!("shows {shown:?}"));
            checks.shows(observing.1, shown);
        }
        Ok(())
    };
    let tell = |polled| checks.is_observing(observer, polled);
    let watched = Attended::new(watching, op.attention, || checks.asleep(), tell).await;
    watched.unwrap_or(Ok(()))
}
