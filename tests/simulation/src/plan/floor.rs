//! Lonely locks, and a server that loses the counter of fencing tokens: clients ask for the next number without the clock of the
//! server only while they know that the counter has been raised to it a moment ago.

use fastrand::Rng;

use super::chance::{percent, pick};
use super::{Attention, Call, Connection, Counter, Fault, Incident, Kind, Op, Plan, ProcessPlan};
use crate::network::Delay;

/// Texts that are not numbers of the counter, nor what comes right before one.
const TEXTS: [&str; 6] = ["0", "7", "-3", "none", "999999999999", "999999999999999"];

/// How a process asks for locks.
#[derive(Debug, Clone, Copy)]
enum Habit {
    /// One lock every few seconds.
    Idle,
    /// One lock after the other.
    Loop,
    /// A few locks without a pause between them, and then nothing for some seconds.
    Bursts,
    /// As the plan has it.
    Any,
}

/// Clients that are idle most of the time beside such as ask in a tight loop, and a server that goes back to older data.
pub(super) fn floor(plan: &mut Plan, rng: &mut Rng) {
    plan.keys = rng.usize(1..=3);
    plan.delay = match rng.u8(..3) {
        0 => Delay::NONE,
        1 => Delay::between(0, 2),
        _ => Delay::between(1, 5),
    };
    let apart = percent(rng, 30);
    let others = *pick(rng, &[0, 0, 15]);
    while plan.processes.len() < 2 {
        let process = plan.processes[0].clone();
        plan.processes.push(process);
    }
    for index in 0..plan.processes.len() {
        let habit = match rng.u8(..10) {
            0..=4 => Habit::Idle,
            5 | 6 => Habit::Loop,
            7 | 8 => Habit::Bursts,
            _ => Habit::Any,
        };
        let own = if apart { Some(index % plan.keys) } else { None };
        process(
            &mut plan.processes[index],
            rng,
            habit,
            (plan.keys, own, others),
        );
    }
    let lasts = plan.processes.iter().flat_map(|p| &p.tasks).map(|ops| {
        let lasts = |op: &Op| op.before + op.hold;
        ops.iter().map(lasts).sum::<u64>()
    });
    let horizon = lasts.max().unwrap_or(0).clamp(5_000, 120_000);
    plan.incidents = incidents(rng, horizon, plan.processes.len());
}

fn process(
    process: &mut ProcessPlan,
    rng: &mut Rng,
    habit: Habit,
    (keys, own, others): (usize, Option<usize>, u8),
) {
    process.connection = match rng.u8(..12) {
        0 => Connection::Resp2,
        1 => Connection::User,
        _ => Connection::Push,
    };
    let (tasks, operations_each) = match habit {
        Habit::Idle => (1 + usize::from(percent(rng, 20)), rng.usize(6..=16)),
        Habit::Loop => (1, rng.usize(60..=160)),
        Habit::Bursts => (rng.usize(1..=3), rng.usize(20..=60)),
        Habit::Any => (process.tasks.len(), process.tasks[0].len()),
    };
    let like = process.tasks[0][0].clone();
    process
        .tasks
        .resize_with(tasks, || vec![like.clone(); operations_each]);
    for ops in &mut process.tasks {
        ops.resize_with(operations_each, || like.clone());
    }
    let pause = *pick(rng, &[1_500, 4_000, 8_000]);
    let pauses = rng.u8(2..=12);
    let begins = rng.u64(..=3_000);
    for (number, op) in process.tasks.iter_mut().flatten().enumerate() {
        if percent(rng, others) {
            op.key = rng.usize(..keys);
            continue;
        }
        (op.kind, op.renew) = (Kind::Exclusive, true);
        (op.max_hold, op.at_least, op.guarded) = (0, 0, 0);
        op.key = own.unwrap_or_else(|| rng.usize(..keys));
        op.ttl = *pick(rng, &[1_000, 3_000, 9_000, 9_000]);
        op.attention = if percent(rng, 5) {
            Attention::Drop(rng.u32(1..=3))
        } else {
            Attention::Full
        };
        op.call = *pick(
            rng,
            &[Call::Forever, Call::Forever, Call::Within(500), Call::Try],
        );
        (op.before, op.hold) = match habit {
            Habit::Idle => (rng.u64(200..=pause), rng.u64(..=20)),
            Habit::Loop => (rng.u64(..=200) * u64::from(percent(rng, 80)), 0),
            Habit::Bursts if percent(rng, pauses) => (rng.u64(500..=pause), 0),
            Habit::Bursts => (0, rng.u64(..=2)),
            Habit::Any => (op.before, op.hold.min(500)),
        };
        if number == 0 {
            op.before = begins;
        }
    }
}

/// Now and then the server loses what it had, or the counter alone, while some clients do not see it.
fn incidents(rng: &mut Rng, horizon: u64, processes: usize) -> Vec<Incident> {
    let kinds: Vec<u8> = (0..rng.usize(1..=3)).map(|_| rng.u8(..10)).collect();
    let every = *pick(rng, &[2_000, 7_000, 15_000]);
    let farthest = *pick(rng, &[100, 1_000, 10_000, 60_000]);
    let company = *pick(rng, &[0, 30, 80]);
    let mut incidents = Vec::new();
    let mut at = rng.u64(..=every);
    while at <= horizon && incidents.len() < 30 {
        let back = rng.u64(1..=farthest);
        let kind = *pick(rng, &kinds);
        let fault = fault(rng, kind, back);
        // What is lost under open connections is found by those who come next, and they tell the server what they know.
        let is_silent = matches!(fault, Fault::Counter(_) | Fault::FlushAll);
        let likely = if is_silent { 60 } else { company };
        if percent(rng, likely) {
            incidents.push(joins(rng, at, is_silent, processes));
        }
        let lasts = *pick(rng, &[1, 20, 500, 2_000]);
        incidents.push(Incident { at, lasts, fault });
        at += rng.u64(1_000..=2 * every);
    }
    incidents.sort_by_key(|incident| incident.at);
    incidents
}

/// A process that knows the largest token may be away when the server loses what it had, or come right after that.
fn joins(rng: &mut Rng, at: u64, is_silent: bool, processes: usize) -> Incident {
    let process = rng.usize(..processes);
    let fault = match rng.u8(..5) {
        0 if !is_silent => Fault::Crash(process, rng.bool()),
        1 | 2 => Fault::Outage(process),
        3 if !is_silent => Fault::SlowConnects(process),
        _ => Fault::Reset(process),
    };
    let at = if rng.bool() {
        at.saturating_sub(rng.u64(..=50))
    } else {
        at + rng.u64(..=100)
    };
    let longest = if is_silent { 500 } else { 4_000 };
    Incident {
        at,
        lasts: rng.u64(50..=longest),
        fault,
    }
}

fn fault(rng: &mut Rng, kind: u8, back: u64) -> Fault {
    match kind {
        0 | 1 => Fault::RestartOlder(back),
        2 | 3 => Fault::Promote {
            behind: back,
            // As between two servers that are kept in time.
            skew: if rng.bool() {
                rng.i64(-50_000..=50_000)
            } else {
                0
            },
            breaks: rng.bool(),
        },
        4 | 5 => Fault::Older(back),
        6 => Fault::Counter(Counter::Gone),
        7 if rng.bool() => Fault::Counter(Counter::List),
        7 | 8 => Fault::Counter(Counter::Text(TEXTS[rng.usize(..TEXTS.len())])),
        _ if rng.bool() => Fault::Restart(false),
        _ => Fault::FlushAll,
    }
}
