//! Many waiters, and many holds.

use std::time::Duration;

use lock_tests::kit::script_calls;
use lock_tests::{LIMIT, TestServer, eventually};

use crate::contender::{Contender, FENCE, nothing_is_left, observer, stamp};

const PROCESSES: usize = 4;
const TASKS: usize = 16;

/// Turns of every process.
const TURNS: usize = 40;

/// The default of `handover_limit`.
const ROW: usize = 64;

/// Proves P9.
#[tokio::test]
async fn sixty_four_waiters_in_four_processes_take_turns_at_one_command_a_row() {
    let server = TestServer::start().await;
    let lock = observer(&server, "race").await;
    let barrier = lock.acquire().await.unwrap();
    let mut racers = Vec::new();
    for before in 0..PROCESSES {
        // One thread each, so that the order of asking is known.
        let mut racer = Contender::start(&server.url(), "current").await;
        racer.order(&format!("race race {TASKS} 30000"));
        racer.until_waiting("race", before + TASKS).await;
        racers.push(racer);
    }
    assert_eq!(lock.inspect().await.unwrap().waiters(), PROCESSES as u64);
    server.reset_stats().await;
    let start = stamp();
    barrier.release().await.unwrap();
    // One turn is one command: the one that lets go, and asks again.
    eventually("all had many turns", LIMIT * 10, async || {
        script_calls(&server).await > (PROCESSES * TURNS * 5 / 4) as u64
    })
    .await;
    let end = stamp();
    let commands = script_calls(&server).await;
    for racer in &mut racers {
        racer.order("stop");
    }

    let mut all = Vec::new();
    for (process, racer) in racers.iter_mut().enumerate() {
        let mut grants = grants(racer).await;
        // The callers of a process stand in line in the order of the stamps, and the fencing tokens grow from grant
        // to grant: so first come, first served, without a tolerance.
        grants.sort_by_key(|(_, asked, _)| *asked);
        assert!(
            grants.is_sorted_by_key(|(fence, ..)| *fence),
            "one that asked later was served earlier"
        );
        let counted = grants
            .iter()
            .filter(|(_, _, granted)| (start..end).contains(granted));
        all.extend(counted.map(|(fence, ..)| (*fence, process)));
    }
    all.sort_unstable();
    let total = all.len();
    let rows: Vec<&[(u64, usize)]> = all.chunk_by(|one, next| one.1 == next.1).collect();
    for (turn, row) in rows.iter().enumerate() {
        assert_eq!(row[0].1, turn % PROCESSES, "turn {turn} was another's");
        assert!(row.len() <= ROW, "a row of {}", row.len());
    }
    assert!(rows.len() >= PROCESSES * TURNS, "{} turns", rows.len());
    // Refreshes, and requests for scripts that the server does not know yet, come on top.
    let turns = rows.len() as u64;
    assert!(
        commands * 3 <= turns * 4,
        "{commands} commands, {turns} turns"
    );
    println!("{total} acquisitions in {turns} turns, {commands} commands");
}

/// Fencing token, asked, granted.
async fn grants(racer: &mut Contender) -> Vec<(u64, u64, u64)> {
    let mut grants = Vec::new();
    loop {
        let line = racer.child.recv_line().await;
        let Some(words) = line.strip_prefix("grant ") else {
            assert_eq!(line, "done");
            return grants;
        };
        let numbers: Vec<u64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
        grants.push((numbers[0], numbers[1], numbers[2]));
    }
}

#[tokio::test]
async fn ten_thousand_guards_are_renewed_by_one_task_in_batches() {
    const GUARDS: usize = 10_000;
    const TTL: Duration = Duration::from_secs(15);
    // Leases are renewed when a third has passed.
    const ROUND: Duration = Duration::from_secs(5);
    const ROUNDS: u64 = 2;

    let server = TestServer::start().await;
    let mut holder = Contender::start(&server.url(), "current").await;
    // In parts, so that a slow machine is not taken for one that hangs.
    for part in 0..4 {
        let (count, ttl) = (GUARDS / 4, TTL.as_millis());
        holder.order(&format!("fill many:{part}: {count} {ttl}"));
        holder.answer("filled").await;
    }
    assert_eq!(server.keys().await.len(), GUARDS + 1);

    let before = script_calls(&server).await;
    tokio::time::sleep(ROUND * ROUNDS as u32).await;
    let calls = script_calls(&server).await - before;

    holder.order("count");
    let counts = holder.answer("holds").await;
    // A guard that was lost once would not be held now.
    assert_eq!(counts[0], GUARDS.to_string(), "guards still held");
    assert_eq!(
        counts[1],
        holder.tasks.to_string(),
        "tasks with all the guards, and with none"
    );
    // The session's, and the one that drives the connection.
    assert_eq!(holder.tasks, 2);
    assert_eq!(server.keys().await.len(), GUARDS + 1);
    assert!(
        calls < 200 * ROUNDS,
        "{calls} renewal calls in {ROUNDS} rounds"
    );
    println!("{} renewal calls per round", calls / ROUNDS);

    holder.order("empty");
    holder.answer("emptied").await;
    holder.order("shutdown");
    assert_eq!(holder.answer("left").await, ["0"]);
    assert_eq!(server.keys().await, [FENCE]);
    nothing_is_left(&server, LIMIT).await;
}
