//! A seed is one run, whatever else its process has done.
#![cfg(lock_sim)]

use std::collections::HashSet;
use std::mem::discriminant;
use std::process::Command;

use lock_simulation::plan::draw;
use lock_simulation::run::run;

const SEEDS: u64 = 40;

#[test]
fn a_seed_is_one_trace_in_any_process() {
    let plans: Vec<_> = (1..=SEEDS).map(draw).collect();
    let faults = plans.iter().flat_map(|plan| &plan.incidents);
    let kinds: HashSet<_> = faults.map(|it| discriminant(&it.fault)).collect();
    assert!(kinds.len() >= 15, "only {} kinds of faults", kinds.len());

    let hashes = |_| {
        let line = |(seed, plan)| format!("{seed} {:016x}\n", run(plan, false).hash);
        (1..).zip(&plans).map(line).collect::<Vec<_>>()
    };
    let [one, again] = [0, 1].map(hashes);
    assert_eq!(one, again);

    let other = Command::new(env!("CARGO_BIN_EXE_lock-simulation"))
        .args(["--hash", "--seeds", &SEEDS.to_string()])
        .output()
        .unwrap();
    assert_eq!(one.concat(), String::from_utf8_lossy(&other.stdout));
}

#[test]
fn the_fixed_seeds_have_each_kind_of_fault() {
    let plans = (1..=1_000).map(draw);
    let faults = plans.flat_map(|plan| plan.incidents);
    let kinds: HashSet<_> = faults.map(|it| discriminant(&it.fault)).collect();
    assert_eq!(kinds.len(), 28);
}

#[test]
fn a_trace_that_is_kept_is_the_same() {
    for plan in (1..=SEEDS / 4).map(draw) {
        let (one, kept) = (run(&plan, false), run(&plan, true));
        assert_eq!(one.hash, kept.hash, "seed {}", plan.seed);
        assert!(one.lines.is_empty() && !kept.lines.is_empty());
    }
}
