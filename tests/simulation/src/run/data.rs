//! The server goes back to older data, or loses the counter of fencing tokens.

use std::time::Duration;

use lock_master::Data;
use tokio::time::{Instant, sleep_until};

use super::Run;
use super::faults::{lasting, reset_connections_of_users};
use crate::check::{COUNTER, Excuse};
use crate::network::Target;
use crate::plan::{Counter, Fault, Incident};

/// Copies the data at the moments to which the server will go back.
pub(super) fn copy(run: &Run, began: Instant) {
    for (number, incident) in run.plan.incidents.iter().enumerate() {
        let Some(back) = incident.fault.goes_back() else {
            continue;
        };
        let at = began + Duration::from_millis(incident.at.saturating_sub(back));
        let run = run.clone();
        run.world.clone().spawn(async move {
            sleep_until(at).await;
            let data = run.world.server().with(|master| master.data());
            run.copies.borrow_mut().insert(number, data);
        });
    }
}

/// What becomes of the data of the server. `number` is that of the incident.
pub(super) async fn go_back(run: &Run, incident: &Incident, number: usize) {
    let (world, weather) = (&run.world, run.checks.weather());
    let server = world.server();
    let data = run.copies.borrow_mut().remove(&number).unwrap_or_default();
    match &incident.fault {
        Fault::RestartOlder(_) => {
            let begin = || {
                if server.is_up() {
                    server.crash();
                }
            };
            let end = || lose(run, data.clone(), |data| server.restart_with(data));
            lasting(run, incident, &begin, &end).await;
        }
        Fault::Promote { skew, breaks, .. } => {
            lose(run, data, |data| {
                server.skew(*skew);
                server.replace(data);
            });
            run.checks.reconnects();
            if *breaks {
                world.network().reset(Target::All);
            } else {
                server.demote();
                weather.demoted();
                reset_connections_of_users(run);
            }
            weather.shaken(world.now());
        }
        Fault::Older(_) => {
            lose(run, data, |data| server.replace(data));
            run.checks.is_replaced();
            weather.shaken(world.now());
        }
        Fault::Counter(counter) => lose_counter(run, *counter),
        _ => {}
    }
}

fn lose(run: &Run, data: Data, replace: impl FnOnce(Data)) {
    run.checks.excuse(Excuse::DataLoss);
    replace(data);
    run.checks.went_back();
}

/// What a client does, or the server that evicts the counter.
fn lose_counter(run: &Run, counter: Counter) {
    let server = run.world.server();
    let fence = COUNTER.as_bytes();
    run.checks.loses_counter();
    match counter {
        Counter::Gone => drop(server.execute(&[b"DEL", fence])),
        Counter::List => {
            server.execute(&[b"DEL", fence]);
            server.execute(&[b"RPUSH", fence, b"a"]);
        }
        Counter::Text(text) => drop(server.execute(&[b"SET", fence, text.as_bytes()])),
    }
}
