//! Fencing tokens at any rate of grants (P10): the scripts run at random moments of the clock.

use fastrand::Rng;
use lock_master::{Master, Reply};
use lock_tests::scripts;

const START: u64 = 1_700_000_000_000_000;

/// Maximum lead of the counter, us: less than a server needs to restart.
const LEAD: u64 = 1_100;

const KEYS: [&str; 4] = ["L", "lock-core:Q", "lock-core:fence", "lock-core:W"];

fn run(master: &mut Master, script: &str, keys: &[&str], args: &[&str]) -> Reply {
    let count = keys.len().to_string();
    let text = scripts::scripts()[script].text.as_str();
    let mut words: Vec<&[u8]> = vec![b"EVAL", text.as_bytes(), count.as_bytes()];
    words.extend(keys.iter().chain(args).map(|word| word.as_bytes()));
    master.execute(&words).0
}

/// The first token of a grant and the last of its reserve.
fn tokens(reply: &Reply, wanted: u64) -> (u64, u64) {
    match reply {
        Reply::Int(first) => (*first as u64, *first as u64 + wanted),
        Reply::Array(parts) => match &parts[..] {
            [Reply::Int(first), Reply::Int(reserve)] => {
                (*first as u64, *first as u64 + *reserve as u64)
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Grants a lock once in one of the ways, and frees it.
fn grant(master: &mut Master, rng: &mut Rng, reserve: u64) -> (u64, u64) {
    let token = format!("{:036}:{}", 1, rng.u32(..));
    let wanted = reserve.to_string();
    let asks: [&str; 4] = [&token, "5000", "wait 5000 channel", &wanted];
    let exclusive = |reply: &Reply| tokens(reply, reserve);
    let (script, granted) = match rng.u8(..4) {
        0 => ("acquire", exclusive(&run(master, "acquire", &KEYS, &asks))),
        1 => {
            let before = format!("{:036}:0", 1);
            master.execute(&[b"SET", b"L", before.as_bytes(), b"PX", b"5000"]);
            let args: Vec<&str> = asks.into_iter().chain([before.as_str()]).collect();
            ("pass", exclusive(&run(master, "pass", &KEYS, &args)))
        }
        2 => {
            let keys = ["L", "lock-core:H", "lock-core:fence"];
            let args = [token.as_str(), &token, "5000", &wanted];
            let granted = tokens(&run(master, "reentrant acquire", &keys, &args), reserve);
            // The retry of a call whose reply was lost.
            let again = tokens(&run(master, "reentrant acquire", &keys, &args), reserve);
            assert_eq!(granted, again);
            ("reentrant acquire", granted)
        }
        _ => {
            let keys = ["lock-core:fence", "L", "L2", "lock-core:Q", "lock-core:Q2"];
            let args = ["2", &token, &token, "5000"];
            ("batch", tokens(&run(master, "batch", &keys, &args), 1))
        }
    };
    assert!(granted.0 <= granted.1, "{script}: {granted:?}");
    for key in ["L", "L2", "lock-core:H"] {
        master.execute(&[b"DEL", key.as_bytes()]);
    }
    granted
}

fn counter(master: &Master) -> u64 {
    let text = master.string(b"lock-core:fence").expect("a counter");
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

#[test]
fn tokens_grow_over_a_restart_without_the_counter_at_any_rate_of_grants() {
    for seed in 1..=40 {
        let mut rng = Rng::with_seed(seed);
        let mut master = Master::new(START);
        let mut now = START;
        let mut last = 0;
        // No server is faster than 50 grants in a millisecond.
        let most = *rng.choice(&[40, 100, 1_000, 20_000]).unwrap();
        let largest = *rng.choice(&[0, 7, 63, 1_023, 100_000]).unwrap();
        for _ in 0..400 {
            now += rng.u64(20..=most);
            master.set_time(now);
            let reserve = rng.u64(..=largest);
            let (first, end) = grant(&mut master, &mut rng, reserve);
            assert!(
                first > last,
                "seed {seed}: {first} follows {last}, which was granted"
            );
            last = end;
            let lead = counter(&master).saturating_sub(now);
            assert!(
                lead <= LEAD,
                "seed {seed}: the counter is {lead} us ahead of the clock"
            );
        }
        // A server needs more time to start.
        now += LEAD + 1;
        master.set_time(now);
        master.restart(false);
        let (first, _) = grant(&mut master, &mut rng, 0);
        assert!(
            first > last,
            "seed {seed}: {first} follows {last} over the restart"
        );
    }
}
