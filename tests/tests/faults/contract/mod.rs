//! What every kind of lock promises under each fault, on every backend: one case for each fault.
//!
//! A case knows a [`Caller`](kinds::Caller) and a [`Rig`] only. What a kind or a backend cannot show stands in [`NOT`], with the
//! reason, and nowhere else; `cargo test -p lock-tests --test faults contract:: -- --nocapture` prints it.

mod cases;
mod kinds;
mod latch;
mod rig;

use kinds::Kind;
use lock_tests::LIMIT;
use rig::{BACKENDS, Backend, Rig};

/// The cases that a kind (any, if none is named) cannot show on these backends, and why.
type Row = (
    Option<Kind>,
    &'static [Backend],
    &'static [&'static str],
    &'static str,
);

const NETWORK: &[&str] = &[
    "a_lost_",
    "a_reply_that",
    "a_broken",
    "something_else",
    "a_server_that",
    "a_full_server",
    "an_acquire_that",
    "a_count_that",
    "a_release_that",
];

const NOT: &[Row] = &[
    (
        None,
        &[Backend::Memory],
        NETWORK,
        "nothing is between a caller and the store in its process",
    ),
    (
        None,
        &[Backend::Resp2, Backend::Connection],
        &["a_lost_message"],
        "a client that polls gets no messages",
    ),
    (
        None,
        &[Backend::Connection],
        &["a_reply_that"],
        "the program's connection decides when it is dead",
    ),
    (
        None,
        &[Backend::Quorum],
        &["a_server_that_empties"],
        "a node that may have forgotten votes does not vote for a time: `topologies quorum::forgets`",
    ),
    (
        Some(Kind::Reentrant),
        &[Backend::Quorum, Backend::Memory],
        &[""],
        "it is on one master and in a cluster",
    ),
    (
        Some(Kind::Semaphore),
        &[Backend::Quorum],
        &[""],
        "permits are not voted on",
    ),
    (
        Some(Kind::Reader),
        &[Backend::Quorum],
        &[""],
        "permits are not voted on",
    ),
    (
        Some(Kind::Writer),
        &[Backend::Quorum],
        &[""],
        "permits are not voted on",
    ),
    (
        Some(Kind::Latch),
        &[Backend::Quorum, Backend::Memory],
        &[""],
        "it is on one master and in a cluster",
    ),
];

/// Why a kind does not show a case on a backend.
fn reason(kind: Kind, backend: Backend, case: &str) -> Option<&'static str> {
    let row = NOT.iter().find(|(of, on, cases, _)| {
        of.is_none_or(|of| of == kind)
            && on.contains(&backend)
            && cases.iter().any(|begin| case.starts_with(begin))
    });
    row.map(|(.., reason)| *reason)
}

/// Runs a case of a kind on all its backends at one time, each on a runtime of its own.
fn on_each_backend(kind: Kind, name: &str, case: impl AsyncFn(&Rig) + Sync) {
    let run = |backend| {
        let _named = Named(kind, backend);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::start(kind, backend).await;
            // The limit only ends a case that hangs.
            tokio::time::timeout(LIMIT * 4, case(&rig))
                .await
                .expect("the case ends");
        });
    };
    std::thread::scope(|scope| {
        let mut shown = 0;
        for backend in BACKENDS {
            if let Some(reason) = reason(kind, backend, name) {
                println!("not shown: {kind:?} on {backend:?}, {name}: {reason}");
            } else {
                scope.spawn(move || run(backend));
                shown += 1;
            }
        }
        assert!(shown > 0, "{name} is shown by no backend");
    });
}

/// Says where a case failed.
struct Named(Kind, Backend);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the case above failed: {:?} on {:?}", self.0, self.1);
        }
    }
}

/// A test for each case of each kind, and the names of all of them.
macro_rules! faults {
    ($($kind:ident $module:ident in $file:ident { $($case:ident,)+ })+) => {
        $(
            mod $module {
                $(
                    #[test]
                    fn $case() {
                        let kind = super::Kind::$kind;
                        super::on_each_backend(kind, stringify!($case), super::$file::$case);
                    }
                )+
            }
        )+

        const ALL: &[(Kind, &[&str])] = &[$((Kind::$kind, &[$(stringify!($case)),+])),+];
    };
}

/// The cases of each kind that is held.
macro_rules! held {
    ($($kind:ident $module:ident { $($own:ident,)* })+) => {
        faults! {
            $(
                $kind $module in cases {
                    a_lost_reply_counts_once,
                    a_reply_that_never_comes_counts_once,
                    a_lost_message_is_made_good_by_asking,
                    a_broken_connection_costs_neither_holder_nor_waiter,
                    a_dead_holder_costs_one_ttl,
                    something_else_at_its_key_is_left_alone,
                    a_server_that_empties_ends_the_hold_and_serves_the_waiter,
                    an_acquire_that_comes_late_blocks_for_one_ttl_at_most,
                    a_release_that_comes_late_leaves_the_next_holder_alone,
                    $($own,)*
                }
            )+
            Latch latch_of_two in latch {
                a_lost_reply_counts_once,
                a_lost_message_is_made_good_by_asking,
                something_else_at_its_key_is_left_alone,
                a_server_that_empties_has_no_counts,
                a_full_server_counts_nothing,
                a_count_that_comes_late_counts_once,
            }
        }
    };
}

held! {
    Exclusive exclusive {
        a_dead_waiter_is_skipped,
        a_full_server_takes_nothing_and_keeps_what_is_held,
    }
    // It has no queue: a dead waiter is a subscription that ends.
    Reentrant reentrant { a_full_server_takes_nothing_and_keeps_what_is_held, }
    // A full server grants a permit: the script writes the ttl first, so that an ACL that refuses that leaves nothing.
    Semaphore semaphore { a_dead_waiter_is_skipped, }
    Reader reader {
        a_dead_waiter_is_skipped,
        a_full_server_takes_nothing_and_keeps_what_is_held,
    }
    Writer writer {
        a_dead_waiter_is_skipped,
        a_full_server_takes_nothing_and_keeps_what_is_held,
    }
    Election election {
        a_dead_waiter_is_skipped,
        a_full_server_takes_nothing_and_keeps_what_is_held,
    }
    Several several {
        a_dead_waiter_is_skipped,
        a_full_server_takes_nothing_and_keeps_what_is_held,
    }
}

/// A reason without a case would hide a case that is missing.
#[test]
fn each_reason_is_that_of_a_case() {
    for (of, on, cases, reason) in NOT {
        println!("{of:?} on {on:?}: {cases:?}: {reason}");
        for begin in *cases {
            let mut kinds = ALL
                .iter()
                .filter(|(kind, _)| of.is_none_or(|of| of == *kind));
            let is_there = kinds.any(|(_, names)| names.iter().any(|name| name.starts_with(begin)));
            assert!(is_there, "{of:?}: {begin}");
        }
    }
}
