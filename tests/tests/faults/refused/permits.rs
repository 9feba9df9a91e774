//! Semaphores and read-write locks.

use std::collections::BTreeMap;

use super::rig::{Case, Rig, rows};

const NUMBER: &str = "1700000000000000";

/// A state names the kind, the members with their permits of four in all, of which those that `had` some have expired, and the
/// waiters.
const TABLE: &str = "
permits acquire       | free                  | @A 60000 semaphore 4 2 wait~5000~ | semaphore
permits acquire       | ours                  | @A 60000 semaphore 4 2 wait~5000~ | semaphore, A has 2
permits acquire       | enough are left       | @A 60000 semaphore 4 2 wait~5000~ | semaphore, D has 2
permits acquire       | too few are left      | @A 60000 semaphore 4 2 wait~5000~ | semaphore, D has 3
permits acquire       | behind another        | @A 60000 semaphore 4 2 wait~5000~ | semaphore, D has 3, B wants 4
permits acquire       | expired before others | @A 60000 semaphore 4 2 wait~5000~ | semaphore, D has 3, E had 1, B wants 1, C wants 1
permits acquire       | expired before us     | @B 60000 semaphore 4 2 wait~5000~ | semaphore, D had 2, E had 2, B wants 2, C wants 1
permits release       | alone                 | @A                                  | semaphore, A has 2
permits release       | another has expired   | @A                                  | semaphore, A has 2, D had 1, B wants 2, C wants 2
permits release       | to one of two         | @A                                  | semaphore, A has 2, D has 2, B wants 1, C wants 3
permits release       | one of two            | @A                                  | semaphore, A has 2, D has 2
permits release       | of a place            | @B                                  | semaphore, D has 2, B wants 4, C wants 2
permits extend        | held                  | @A 0 600000                         | semaphore, A has 2
permits force_release | to others             | semaphore                           | semaphore, A has 2, D has 2, B wants 1, C wants 3
permits resize        | for others            | semaphore 6 4                       | semaphore, A has 4, B wants 1, C wants 3
permits reweigh       | down, before readers  | @A 1700000000000000 down            | read-write, A has 4, B wants 1, C wants 1
permits reweigh       | up                    | @A 1700000000000000 up              | read-write, A has 1
permits release       | to a reader           | @A                                  | read-write, A has 4, B wants 1, C wants 4
";

pub(super) fn cases() -> Vec<Case> {
    rows(TABLE, lines)
}

/// The first waiter has a channel, the others poll.
fn lines(state: &str) -> String {
    let mut parts = state.split(", ");
    let kind = parts.next().unwrap();
    let (mut lines, mut used, mut earliest, mut channel) = (Vec::new(), 0, "@held", "heard");
    for part in parts {
        let mut words = part.split(' ');
        let [token, verb, permits] = [(); 3].map(|()| words.next().unwrap());
        if verb == "wants" {
            let client = token.to_lowercase();
            let terms = format!("@{token} 60000~{permits} @{client} 9999999999999~{channel}");
            lines.push(format!("RPUSH @queue @{token}"));
            lines.push(format!("HSET @waiters {terms}"));
            channel = "";
        } else {
            let ends = if verb == "had" { "@over" } else { "@held" };
            lines.push(format!("HSET lock:a @{token} {ends}~{permits}~{NUMBER}"));
            used += permits.parse::<u32>().unwrap();
            earliest = if verb == "had" { ends } else { earliest };
        }
    }
    if used > 0 {
        let state = format!("{earliest}~@later~{used}~{kind}~4~0~{NUMBER}~{NUMBER}~@D");
        lines.push(format!("HSET lock:a lock {state}"));
        lines.push("PEXPIREAT lock:a @later".to_owned());
    }
    let ttls = ["PEXPIRE @queue 30000", "PEXPIRE @waiters 30000"].map(str::to_owned);
    [&lines[..], &ttls].concat().join("\n")
}

/// The members whose leases have not ended. Their permits are counted, and are not more than there are.
pub(super) async fn holders(rig: &mut Rig) -> Vec<String> {
    let now = rig.now().await;
    let fields: BTreeMap<String, String> = rig.ask("HGETALL lock:a").await;
    let number = |field: &str, at: usize| {
        let word = field.split(' ').nth(at).unwrap();
        word.parse::<u64>().unwrap()
    };
    let members = fields.iter().filter(|(token, _)| token.len() > 36);
    let live: BTreeMap<_, _> = members
        .filter(|(_, field)| number(field, 0) > now)
        .collect();
    let sum: u64 = live.values().map(|field| number(field, 1)).sum();
    if let Some(state) = fields.get("lock") {
        let (lives, used, max) = (number(state, 1), number(state, 2), number(state, 4));
        let key_ends = now.saturating_add_signed(rig.ask("PTTL lock:a").await);
        if sum > max || used < sum {
            rig.wrong(format!("{sum} are held, {used} counted, of {max}"));
        }
        for (token, field) in &live {
            if number(field, 0) > lives.min(key_ends + 50) {
                rig.wrong(format!("{token} outlives the key"));
            }
        }
    } else if !live.is_empty() {
        rig.wrong(format!("members without a state: {live:?}"));
    }
    live.into_keys().cloned().collect()
}
