//! Drawing a plan of a run over a quorum.

use fastrand::Rng;

use super::{Fault, Incident, Met, Plan, ProcessPlan};
use crate::network::{Cut, Delay, Way};
use crate::plan::chance::{percent, pick};
use crate::plan::{Attention, Call, End, Kind, Op};
use crate::world::rng;

/// The names of random numbers that no other plan uses.
const NAME: u64 = 100;

/// What a seed makes likely.
struct Weights {
    wait: u64,
    ttls: Vec<u64>,
    hold: u64,
    long_holds: u8,
    pause: u64,
    inattention: u8,
    fixed: u8,
    tries: u8,
    within: u8,
    with: u8,
    forced: u8,
    candidates: u8,
}

/// The plan of a seed.
#[must_use]
pub fn draw(seed: u64) -> Plan {
    let mut rng = rng(seed, NAME);
    let rng = &mut rng;
    let nodes = *pick(rng, &[3, 3, 3, 5]);
    let wait = *pick(rng, &[3_000, 5_000, 10_000, 20_000, 60_000]);
    let delay = match rng.u8(..4) {
        0 => Delay::NONE,
        1 => Delay::between(0, 2),
        2 => Delay::between(1, 5).or_none(50),
        _ => Delay::between(0, rng.u64(5..=40)).or_none(rng.u8(..80)),
    };
    let far = percent(rng, 20).then(|| {
        let least = rng.u64(5..=60);
        (rng.usize(..nodes), Delay::between(least, least + 20))
    });
    let keys = *pick(rng, &[1, 1, 2, 3]);
    let hesitation = *pick(rng, &[0, 0, 2, 10, 40]);
    let slowest = far.map_or(0, |(_, delay)| delay.most).max(delay.most) + hesitation;
    let weights = weights(rng, wait, slowest);
    let tasks = rng.usize(1..=4);
    let operations = rng.usize(4..=16);
    let processes = (0..*pick(rng, &[1, 2, 2, 3, 3])).map(|_| ProcessPlan {
        polls: percent(rng, 15),
        // A connection is two round trips.
        command_deadline: (*pick(rng, &[1_000, 1_000, 300, 3_000])).max(slowest * 10),
        tasks: (0..tasks)
            .map(|_| (0..operations).map(|_| op(rng, &weights, keys)).collect())
            .collect(),
    });
    let processes: Vec<_> = processes.collect();
    let clock = |rng: &mut Rng| rng.i64(-100_000..=100_000);
    let mut plan = Plan {
        seed,
        nodes,
        wait,
        // All nodes of a new quorum have to say so within a quarter of the wait.
        begun: percent(rng, 85) || wait < slowest * 60,
        clocks: (0..nodes).map(|_| clock(rng)).collect(),
        delay,
        hesitation,
        far,
        keys,
        processes,
        incidents: Vec::new(),
    };
    let lasts = |op: &Op| op.before + op.hold + 10;
    let tasks = plan.processes.iter().flat_map(|process| &process.tasks);
    let busiest = tasks.map(|ops| ops.iter().map(lasts).sum::<u64>()).max();
    let horizon = busiest.unwrap_or(0).max(2_000) + if plan.begun { 0 } else { wait };
    // One seed in ten has no fault at all: what it shows needs no excuse.
    if !percent(rng, 10) {
        incidents(rng, &mut plan, horizon);
    }
    plan
}

fn weights(rng: &mut Rng, wait: u64, slowest: u64) -> Weights {
    let some = |rng: &mut Rng, most: u8| {
        if rng.bool() { rng.u8(..=most) } else { 0 }
    };
    let all = [300, 600, 1_000, 2_000, 5_000, 10_000, 30_000];
    // At least ten round trips to any node, and at most half of the wait.
    let possible = all.into_iter().filter(|ttl| *ttl <= wait / 2);
    let mut possible: Vec<u64> = possible.filter(|ttl| *ttl >= slowest * 20).collect();
    if possible.is_empty() {
        possible.push(wait / 2);
    }
    if percent(rng, 25) {
        // What is left behind is seen.
        let longest = possible.last().copied().unwrap_or_default();
        possible.retain(|ttl| *ttl >= longest / 2);
    }
    let kinds = rng.usize(1..=3);
    Weights {
        wait,
        ttls: (0..kinds).map(|_| *pick(rng, &possible)).collect(),
        hold: *pick(rng, &[0, 2, 10, 60, 400]),
        long_holds: some(rng, 40),
        pause: *pick(rng, &[0, 5, 50, 1_000, 4_000]),
        inattention: some(rng, 50),
        fixed: some(rng, 60),
        tries: some(rng, 60),
        within: some(rng, 50),
        with: some(rng, 20),
        forced: if percent(rng, 20) { 5 } else { 0 },
        candidates: if percent(rng, 25) { 70 } else { 0 },
    }
}

fn op(rng: &mut Rng, weights: &Weights, keys: usize) -> Op {
    let ttl = *pick(rng, &weights.ttls);
    let call = if percent(rng, weights.forced) {
        Call::Force
    } else if percent(rng, weights.tries) {
        Call::Try
    } else if percent(rng, weights.within) {
        Call::Within(*pick(rng, &[1, 20, 100, 500, 3_000, 30_000]))
    } else if percent(rng, weights.with) {
        Call::With
    } else {
        Call::Forever
    };
    let leads = percent(rng, weights.candidates) && call == Call::Forever;
    let hold = if percent(rng, weights.long_holds) {
        rng.u64(..=(ttl * 2).clamp(200, 8_000))
    } else {
        rng.u64(..=weights.hold)
    };
    // More than the wait allows.
    let ttl = if percent(rng, 1) { weights.wait } else { ttl };
    Op {
        before: rng.u64(..=weights.pause),
        key: rng.usize(..keys),
        kind: if leads {
            Kind::Candidate { steps_down: false }
        } else {
            Kind::Exclusive
        },
        call,
        attention: attention(rng, weights.inattention),
        ttl,
        renew: leads || !percent(rng, weights.fixed),
        max_hold: 0,
        at_least: 0,
        hold,
        guarded: 0,
        inspects: percent(rng, 3),
        end: match rng.u8(..20) {
            0..=7 => End::Drop,
            8..=16 => End::Release,
            _ => End::GiveUp(rng.u32(..4)),
        },
    }
}

fn attention(rng: &mut Rng, inattention: u8) -> Attention {
    if !percent(rng, inattention) {
        return Attention::Full;
    }
    let (polls, sleep) = (rng.u32(1..=5), rng.u64(1..=2_000));
    match rng.u8(..4) {
        0 => Attention::SleepThenDrop(polls, sleep),
        1 => Attention::Sleep(polls, sleep),
        _ => Attention::Drop(polls),
    }
}

/// A few kinds of faults, as often as it likes.
fn incidents(rng: &mut Rng, plan: &mut Plan, horizon: u64) {
    let kinds: Vec<u8> = (0..rng.usize(1..=4)).map(|_| rng.u8(..KINDS)).collect();
    let every = *pick(rng, &[30, 250, 1_000, 5_000, 12_000]);
    let longest = *pick(rng, &[5, 100, 800, 4_000]);
    let mut at = if plan.begun { 0 } else { plan.wait };
    // The promises allow for one clock that is wrong.
    let jumping = rng.usize(..plan.nodes);
    let mut has_jumped = false;
    while plan.incidents.len() < 60 {
        at += rng.u64(1..=2 * every);
        if at > horizon + 2_000 {
            break;
        }
        let kind = *pick(rng, &kinds);
        let fault = match fault(rng, kind, plan) {
            Fault::Clock(_, by) => {
                if std::mem::replace(&mut has_jumped, true) {
                    continue;
                }
                Fault::Clock(jumping, by)
            }
            // A clock that jumps in the wait of its node ends it, which the page names.
            Fault::Restart(node, _)
            | Fault::Flush(node)
            | Fault::Replace(node)
            | Fault::Hide(node, _)
                if node == jumping && kinds.contains(&CLOCK) =>
            {
                continue;
            }
            fault => fault,
        };
        // Until votes on the old server do not count any more, and beyond.
        let longest = match fault {
            Fault::Hide(..) => plan.wait * 2,
            // Until a connection has a successor, and before the deadline of a request.
            Fault::Lag(..) => 800,
            _ => longest,
        };
        plan.incidents.push(Incident {
            at,
            lasts: rng.u64(1..=longest),
            fault,
        });
    }
}

const KINDS: u8 = 33;

/// The kind of a clock that jumps.
const CLOCK: u8 = 19;

fn fault(rng: &mut Rng, kind: u8, plan: &Plan) -> Fault {
    let process = rng.usize(..plan.processes.len());
    let node = rng.usize(..plan.nodes);
    match kind {
        0 => Fault::Reset(process, node),
        1 => Fault::Outage(process, node),
        2 | 3 => Fault::Cut(
            process,
            node,
            match rng.u8(..3) {
                0 => Cut::BeforeRequest,
                1 => Cut::InsideReply(rng.usize(..30)),
                _ => Cut::AfterReply,
            },
        ),
        4 => Fault::Stall(process, node, Way::ToServer),
        5 => Fault::Stall(process, node, Way::ToClient),
        6 => Fault::Stall(process, node, Way::Both),
        7 => Fault::HalfOpen(process, node),
        8 => {
            let least = rng.u64(10..=200);
            Fault::Slow(node, Delay::between(least, least + rng.u64(1..=200)))
        }
        9 => Fault::Pause(process),
        10 => Fault::Crash(process, rng.bool()),
        11 => Fault::ShutDown(process),
        12 => Fault::Stop(node),
        13 => Fault::Restart(node, true),
        14 => Fault::Restart(node, false),
        15 => Fault::Replace(node),
        16 => Fault::Flush(node),
        17 => Fault::FlushScripts(node),
        18 => Fault::OutOfMemory(node),
        20 | 21 => Fault::Late(process, node),
        22 | 23 => Fault::AllLate(process),
        24 => Fault::Hide(node, process),
        25 | 26 => Fault::Lag(process, node),
        29 => {
            let least = rng.u64(10..=200);
            Fault::MostSlow(node, Delay::between(least, least + rng.u64(1..=200)))
        }
        30 | 31 => Fault::AtRenewal(process, node, Met::Reset),
        32 => Fault::AtRenewal(process, node, Met::Stall),
        27 | 28 => Fault::Stutter(process, *pick(rng, &[5, 50, 300, 1_000])),
        _ => Fault::Clock(node, rng.u64(100..=1_500)),
    }
}
