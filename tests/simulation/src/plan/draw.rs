//! Drawing a plan. Each seed draws its own weights first, so that no mixture is tuned for one kind of defect.

use fastrand::Rng;

use super::chance::{percent, pick};
use super::floor::floor;
use super::{Attention, Call, Connection, End, Fault, Incident, Kind, Op, Plan, ProcessPlan};
use crate::network::{Cut, Delay, Way};
use crate::world::rng;

/// Commands that the scripts and the client use, one of which the users may not run for a moment.
const COMMANDS: [&str; 18] = [
    "PEXPIRE",
    "SET",
    "GET",
    "DEL",
    "LPOP",
    "RPUSH",
    "HSET",
    "HDEL",
    "PUBLISH",
    "SUBSCRIBE",
    "EVALSHA",
    "EVAL",
    "EXISTS",
    "HMGET",
    "HINCRBY",
    "PTTL",
    "TIME",
    "LREM",
];

/// Commands of the scripts of locks that several may hold, as above.
const SHARED_COMMANDS: [&str; 4] = ["HGETALL", "LINDEX", "HLEN", "TYPE"];

/// What a seed is about. Interleavings that need several things at once are rare where all is drawn alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    /// All is drawn alone.
    Anything,
    /// Many want one lock for times that differ, many of them look away or leave, and the network breaks often.
    Crowd,
    /// The server has troubles of its own.
    Server,
    /// Clients that are not ours, and those who take locks away, also from a holder whose connection is broken.
    Foreign,
}

impl Theme {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..8) {
            0..4 => Self::Anything,
            4 | 5 => Self::Crowd,
            6 => Self::Server,
            _ => Self::Foreign,
        }
    }

    /// The kinds of faults, by their numbers in [`fault`].
    fn faults(self) -> Vec<u8> {
        match self {
            Self::Anything => (0..KINDS).collect(),
            Self::Crowd => (0..=12).collect(),
            Self::Server => (13..=20).collect(),
            Self::Foreign => (0..=3).chain(20..KINDS).collect(),
        }
    }
}

/// What a seed makes likely.
struct Weights {
    ttls: Vec<u64>,
    holds: (u64, u64),
    long_holds: u8,
    pauses: u64,
    inattention: u8,
    dropped_after_sleep: u8,
    sleep: u64,
    fixed: u8,
    capped: u8,
    kept: u8,
    reentrant: u8,
    segmented: u8,
    guarded: u8,
    forced: u8,
    tries: u8,
    within: u8,
    with: u8,
}

/// The plan of a seed.
#[must_use]
pub fn draw(seed: u64) -> Plan {
    let mut rng = rng(seed, 0);
    let rng = &mut rng;
    let theme = Theme::draw(rng);
    let is_crowd = theme == Theme::Crowd;
    let keys = if is_crowd {
        1
    } else {
        *pick(rng, &[1, 1, 2, 3, 5])
    };
    let processes = rng.usize(1..=if is_crowd { 3 } else { 4 });
    let tasks = rng.usize(if is_crowd { 3 } else { 1 }..=5);
    let operations = rng.usize(5..=24);
    let mut weights = weights(rng);
    match theme {
        Theme::Crowd => weights.crowd(rng),
        Theme::Foreign => weights.foreign(rng),
        Theme::Anything | Theme::Server => {}
    }
    let delay = match rng.u8(..4) {
        0 => Delay::NONE,
        1 => Delay::between(0, 2),
        2 => Delay::between(1, 5).or_none(50),
        _ => Delay::between(0, rng.u64(5..=60)).or_none(rng.u8(..80)),
    };
    let mut plan = Plan {
        seed,
        delay,
        split: if percent(rng, 20) { 20 } else { 0 },
        keys,
        shared_owners: 0,
        processes: Vec::new(),
        incidents: Vec::new(),
    };
    for _ in 0..processes {
        let process = process(rng, &weights, keys, tasks, operations);
        plan.processes.push(process);
    }
    let busiest = plan.processes.iter().flat_map(|p| &p.tasks).map(|ops| {
        let lasts = |op: &Op| op.before + op.hold + 5;
        ops.iter().map(lasts).sum::<u64>()
    });
    let horizon = busiest.max().unwrap_or(0).max(1000);
    // One seed in eight has no fault at all: what it shows needs no excuse.
    if !percent(rng, 12) {
        plan.incidents = incidents(rng, theme, horizon, processes, keys);
    }
    if percent(rng, 25) {
        plan.shared_owners = rng.u64(1..=3);
    }
    // Plans of other seeds stay as they were when these faults were added.
    if seed % 8 == 7 {
        pressure(&mut plan, &mut crate::world::rng(seed, 2));
    }
    // And so did they with these locks.
    if matches!(seed % 16, 3 | 4 | 5 | 10) {
        share(&mut plan, &mut crate::world::rng(seed, 3));
    }
    // And with elections.
    if matches!(seed % 32, 6 | 11 | 13 | 18 | 24 | 28) {
        elect(&mut plan, &mut crate::world::rng(seed, 4));
    }
    // And with several locks at once.
    if matches!(seed % 64, 1 | 2 | 8 | 12 | 16 | 25 | 29 | 41 | 46) {
        combine(&mut plan, &mut crate::world::rng(seed, 5));
    }
    // And with a counter that is lost.
    if matches!(seed % 64, 32 | 54 | 59 | 62) {
        floor(&mut plan, &mut crate::world::rng(seed, 6));
    }
    plan
}

/// One master under pressure: full, lagging, refusing a key, or crowded. Leases are short and held for long.
fn pressure(plan: &mut Plan, rng: &mut Rng) {
    let fault = match rng.u8(..4) {
        0 => Some(Fault::OutOfMemory),
        1 => Some(Fault::Lag),
        2 => Some(Fault::DenyKey(0)),
        _ => None,
    };
    for op in operations(&mut plan.processes) {
        if fault.is_none() {
            // Everything in one moment.
            (op.kind, op.call, op.attention) = (Kind::Exclusive, Call::Forever, Attention::Full);
            (op.before, op.hold, op.at_least) = (0, 0, 0);
        } else if rng.bool() {
            op.ttl = *pick(rng, &[1_000, 2_000, 3_000]);
            (op.renew, op.max_hold, op.at_least) = (true, 0, 0);
            op.hold = rng.u64(1_000..=8_000);
        }
    }
    plan.incidents.clear();
    let Some(fault) = fault else {
        plan.delay = Delay::NONE;
        return;
    };
    let mut at = 0;
    for _ in 0..rng.u32(1..=4) {
        at += rng.u64(100..=8_000);
        let lasts = rng.u64(500..=6_000);
        let fault = fault.clone();
        plan.incidents.push(Incident { at, lasts, fault });
        at += lasts;
    }
}

/// Semaphores and read-write locks in the place of most locks, and few of them, so that their callers meet.
fn share(plan: &mut Plan, rng: &mut Rng) {
    let likely = *pick(rng, &[60, 100, 100]);
    let semaphores = *pick(rng, &[0, 50, 100]);
    let reads = rng.u8(20..=90);
    let keys = rng.usize(1..=plan.keys.min(2));
    let max = rng.u32(2..=4);
    let other_max = if percent(rng, 20) { 3 } else { 0 };
    for op in operations(&mut plan.processes) {
        if !percent(rng, likely) {
            continue;
        }
        op.kind = if percent(rng, semaphores) {
            let max = max + u32::from(percent(rng, other_max));
            let permits = rng.u32(1..=max);
            Kind::Semaphore { permits, max }
        } else if percent(rng, reads) {
            let upgrades = percent(rng, 25);
            Kind::Read { upgrades }
        } else {
            let downgrades = percent(rng, 40);
            Kind::Write { downgrades }
        };
        op.key = rng.usize(..keys);
        (op.at_least, op.guarded) = (0, 0);
    }
    for incident in &mut plan.incidents {
        if let Fault::Deny(command) = &mut incident.fault
            && rng.bool()
        {
            *command = *pick(rng, &SHARED_COMMANDS);
        }
    }
}

/// Elections in the place of most locks. Leases are short for some long terms, so that what observers show can be compared.
fn elect(plan: &mut Plan, rng: &mut Rng) {
    let likely = *pick(rng, &[40, 80, 100]);
    let observers = *pick(rng, &[15, 30, 80]);
    let locks = *pick(rng, &[0, 0, 30]);
    let ttls: [&[u64]; 4] = [&[1_000], &[300, 1_000], &[2_000, 3_000], &[9_000]];
    let ttls = *pick(rng, &ttls);
    let keys = rng.usize(1..=plan.keys.min(2));
    let brief = plan.delay.most * 25 + 100;
    for op in operations(&mut plan.processes) {
        if !percent(rng, likely) {
            continue;
        }
        (op.key, op.at_least) = (rng.usize(..keys), 0);
        op.ttl = *pick(rng, ttls);
        if percent(rng, 10) {
            (op.hold, op.max_hold) = (rng.u64(1_000..=2 * op.ttl + 6_000), 0);
        }
        if percent(rng, observers) {
            (op.kind, op.guarded) = (Kind::Observer, 0);
            op.hold = rng.u64(100..=2 * op.ttl + 6_000);
            if percent(rng, 70) {
                op.attention = Attention::Full;
            }
            continue;
        }
        if percent(rng, 10) {
            op.before = rng.u64(..=8_000);
        }
        let steps_down = percent(rng, 30);
        op.kind = Kind::Candidate { steps_down };
        op.call = match op.call {
            // A lease that ends on its way to the leader would be asked for again and again.
            Call::With if op.ttl < brief => Call::Forever,
            Call::Try | Call::Within(_) if !percent(rng, locks) => Call::Forever,
            call => call,
        };
        op.renew |= matches!(op.call, Call::Forever | Call::With);
    }
    // A leader that crashes says nothing.
    if percent(rng, 25) {
        for incident in &mut plan.incidents {
            if rng.bool() {
                incident.fault = Fault::Crash(rng.usize(..plan.processes.len()), rng.bool());
            }
        }
    }
}

/// Several exclusive locks at once in the place of some of one, in any order: without an order of their own, their callers wait
/// for each other.
fn combine(plan: &mut Plan, rng: &mut Rng) {
    plan.keys = plan.keys.clamp(2, 3);
    let likely = *pick(rng, &[20, 50, 80]);
    for op in operations(&mut plan.processes) {
        if op.kind != Kind::Exclusive || op.call == Call::Force {
            continue;
        }
        if !percent(rng, likely) {
            op.key = rng.usize(..plan.keys);
            continue;
        }
        let mut keys = [0, 1, 2].map(|key| key % plan.keys);
        rng.shuffle(&mut keys);
        if percent(rng, 50) {
            keys[2] = keys[0];
        }
        (op.kind, op.key) = (Kind::All(keys), keys[0]);
        (op.at_least, op.guarded) = (0, 0);
    }
}

impl Weights {
    fn crowd(&mut self, rng: &mut Rng) {
        let short = *pick(rng, &[300, 1_000, 2_000]);
        self.ttls = vec![short, 9_000, 9_000];
        self.long_holds = rng.u8(10..=50);
        self.inattention = rng.u8(10..=60);
        self.sleep = *pick(rng, &[500, 4_000, 4_000, 40_000]);
        self.pauses = *pick(rng, &[0, 5, 50, 1_000]);
        if rng.bool() {
            (self.reentrant, self.segmented) = (0, 0);
        }
    }

    fn foreign(&mut self, rng: &mut Rng) {
        self.forced = rng.u8(3..=30);
        self.long_holds = rng.u8(10..=60);
        self.reentrant = rng.u8(..=30);
    }
}

/// What all tasks do.
fn operations(processes: &mut [ProcessPlan]) -> impl Iterator<Item = &mut Op> {
    processes
        .iter_mut()
        .flat_map(|process| process.tasks.iter_mut().flatten())
}

fn weights(rng: &mut Rng) -> Weights {
    let kinds = rng.usize(1..=4);
    let ttl = |rng: &mut Rng| {
        *pick(
            rng,
            &[
                50, 150, 300, 600, 1_000, 2_000, 3_000, 9_000, 9_000, 30_000, 600_000, 7_200_000,
            ],
        )
    };
    let some = |rng: &mut Rng, most: u8| {
        if rng.bool() { rng.u8(..=most) } else { 0 }
    };
    let hold = *pick(rng, &[0, 2, 10, 60, 400]);
    Weights {
        ttls: (0..kinds).map(|_| ttl(rng)).collect(),
        holds: (0, hold),
        long_holds: some(rng, 40),
        pauses: *pick(rng, &[0, 5, 50, 1_000, 8_000]),
        inattention: some(rng, 60),
        dropped_after_sleep: rng.u8(..=80),
        sleep: *pick(rng, &[5, 50, 500, 4_000, 40_000]),
        fixed: some(rng, 60),
        capped: some(rng, 30),
        kept: some(rng, 15),
        reentrant: some(rng, 70),
        segmented: some(rng, 40),
        guarded: some(rng, 60),
        forced: some(rng, 15),
        tries: some(rng, 40),
        within: some(rng, 50),
        with: some(rng, 20),
    }
}

fn process(
    rng: &mut Rng,
    weights: &Weights,
    keys: usize,
    tasks: usize,
    operations: usize,
) -> ProcessPlan {
    let connection = match rng.u8(..12) {
        0 => Connection::Resp2,
        1 => Connection::User,
        _ => Connection::Push,
    };
    let command_deadline = *pick(rng, &[1_000, 1_000, 1_000, 300, 5_000]);
    let handover_limit = *pick(rng, &[64, 64, 64, 1, 3]);
    // An option that is gone. Without its draw, each seed would mean another run.
    pick(rng, &[10, 10, 10, 100]);
    ProcessPlan {
        connection,
        command_deadline,
        handover_limit,
        jitter: if percent(rng, 15) { 20 } else { 0 },
        apart: percent(rng, 15),
        tasks: (0..tasks)
            .map(|_| (0..operations).map(|_| op(rng, weights, keys)).collect())
            .collect(),
    }
}

fn op(rng: &mut Rng, weights: &Weights, keys: usize) -> Op {
    let kind = if percent(rng, weights.reentrant) {
        Kind::Reentrant(*pick(rng, &[0, 0, 1, 2]))
    } else if percent(rng, weights.segmented) {
        Kind::Segmented(2)
    } else {
        Kind::Exclusive
    };
    let call = if percent(rng, weights.forced) && kind == Kind::Exclusive {
        Call::Force
    } else if percent(rng, weights.tries) {
        Call::Try
    } else if percent(rng, weights.within) {
        Call::Within(*pick(rng, &[1, 20, 100, 500, 3_000, 30_000]))
    } else if percent(rng, weights.with) && !matches!(kind, Kind::Segmented(_)) {
        Call::With
    } else {
        Call::Forever
    };
    let ttl = *pick(rng, &weights.ttls);
    let hold = if percent(rng, weights.long_holds) {
        rng.u64(..=(ttl * 2).clamp(200, 8_000))
    } else {
        rng.u64(weights.holds.0..=weights.holds.1)
    };
    let guarded = if percent(rng, weights.guarded) && kind == Kind::Exclusive {
        rng.u8(1..=3)
    } else {
        0
    };
    Op {
        before: rng.u64(..=weights.pauses),
        key: rng.usize(..keys),
        kind,
        call,
        attention: attention(rng, weights),
        ttl,
        renew: !percent(rng, weights.fixed),
        max_hold: if percent(rng, weights.capped) {
            rng.u64(20..=4_000)
        } else {
            0
        },
        at_least: if percent(rng, weights.kept) && kind == Kind::Exclusive {
            rng.u64(1..=ttl.min(3_000))
        } else {
            0
        },
        hold,
        guarded,
        inspects: percent(rng, 3),
        end: match rng.u8(..20) {
            0..=7 => End::Drop,
            8..=16 => End::Release,
            17..=18 => End::GiveUp(rng.u32(..4)),
            _ => End::Panic,
        },
    }
}

fn attention(rng: &mut Rng, weights: &Weights) -> Attention {
    if !percent(rng, weights.inattention) {
        return Attention::Full;
    }
    let polls = rng.u32(1..=5);
    let sleep = rng.u64(1..=weights.sleep);
    if percent(rng, weights.dropped_after_sleep) {
        Attention::SleepThenDrop(polls, sleep)
    } else if rng.bool() {
        Attention::Drop(polls)
    } else {
        Attention::Sleep(polls, sleep)
    }
}

/// The kinds of faults of a seed: a few, as often as it likes.
fn incidents(
    rng: &mut Rng,
    theme: Theme,
    horizon: u64,
    processes: usize,
    keys: usize,
) -> Vec<Incident> {
    let kinds: Vec<u8> = (0..rng.usize(1..=4))
        .map(|_| *pick(rng, &theme.faults()))
        .collect();
    let every = *pick(rng, &[30, 250, 1_000, 5_000, 20_000]);
    let longest = *pick(rng, &[5, 100, 1_500, 6_000]);
    let mut incidents = Vec::new();
    let mut at = 0;
    while incidents.len() < 60 {
        at += rng.u64(1..=2 * every);
        if at > horizon + 2_000 {
            break;
        }
        let kind = *pick(rng, &kinds);
        incidents.push(Incident {
            at,
            lasts: rng.u64(1..=longest),
            fault: fault(rng, kind, processes, keys),
        });
    }
    incidents
}

const KINDS: u8 = 24;

fn fault(rng: &mut Rng, kind: u8, processes: usize, keys: usize) -> Fault {
    let process = rng.usize(..processes);
    let key = rng.usize(..keys);
    match kind {
        0 => Fault::Reset(process),
        1 | 2 => Fault::Outage(process),
        3 => Fault::Cut(
            process,
            match rng.u8(..3) {
                0 => Cut::BeforeRequest,
                1 => Cut::InsideReply(rng.usize(..30)),
                _ => Cut::AfterReply,
            },
        ),
        4 => Fault::Stall(process, Way::ToServer),
        5 => Fault::Stall(process, Way::ToClient),
        6 => Fault::Stall(process, Way::Both),
        7 => Fault::HalfOpen(process),
        8 => Fault::SlowConnects(process),
        9 => Fault::Pause(process),
        10 => Fault::Crash(process, rng.bool()),
        11 => Fault::EndRuntime(process),
        12 => Fault::ShutDown(process),
        13 => Fault::Stop,
        14 => Fault::Restart(true),
        15 => Fault::Restart(false),
        16 => Fault::Demote,
        17 => Fault::OutOfMemory,
        18 => Fault::Deny(COMMANDS[rng.usize(..COMMANDS.len())]),
        19 => Fault::NoChannels,
        20 => Fault::FlushScripts,
        21 => Fault::FlushAll,
        22 => Fault::ForeignTake(key),
        _ => match rng.u8(..3) {
            0 => Fault::ForeignDelete(key),
            1 => Fault::ForeignShorten(key, rng.u64(1..=500)),
            _ => Fault::ForeignHolds(key),
        },
    }
}
