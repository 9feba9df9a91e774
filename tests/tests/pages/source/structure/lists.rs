//! What is left to do in the source, as lists and numbers. They only become shorter: the tests beside this file fail if something is
//! new, and if something is gone that is still listed. They then print the rows of today, to be pasted here.

/// Circles of files: the crate, the files, and why the circle is there. A new one is not added here: it is opened.
pub(super) const CIRCLES: &[(&str, &[&str], &str)] = &[
    (
        "lock-core",
        &["engine/acquisition.rs", "engine/hold.rs"],
        "A guard has its hold, and finds everything else through it: the acquisition, which makes holds.",
    ),
    (
        "lock-cli",
        &["exit.rs", "shown.rs"],
        "A failure is printed by `shown.rs`, and what cannot be printed is a failure.",
    ),
    (
        "lock-cli",
        &["run/mod.rs", "run/session.rs"],
        "A session starts this program again, whose path is found in `mod.rs`.",
    ),
    (
        "tests/simulation",
        &[
            "check/beliefs.rs",
            "check/elections.rs",
            "check/keys.rs",
            "check/mod.rs",
        ],
        "`mod.rs` has the checkers, and what excuses a finding, which they name.",
    ),
    (
        "tests/simulation",
        &["quorum/fault.rs", "quorum/operation.rs", "quorum/run.rs"],
        "As in `run/`: what all parts of a run share is in the file that carries it out.",
    ),
    (
        "tests/simulation",
        &[
            "network/faults.rs",
            "network/mod.rs",
            "network/state.rs",
            "network/wire.rs",
            "request.rs",
        ],
        "`mod.rs` has the network's methods, and the types of its faults, which its parts name.",
    ),
    (
        "tests/simulation",
        &[
            "run/all.rs",
            "run/data.rs",
            "run/election.rs",
            "run/faults.rs",
            "run/life.rs",
            "run/mod.rs",
            "run/operation.rs",
            "run/shared.rs",
        ],
        "The parts of a run share `Run`, and the operations share `Context`, beside what calls them.",
    ),
    (
        "tests/master",
        &[
            "admin.rs",
            "connections.rs",
            "convert.rs",
            "master.rs",
            "sandbox.rs",
            "scripts.rs",
            "state.rs",
        ],
        "A command runs a script, a script calls commands, and all of them have the one state.",
    ),
    (
        "tests/master",
        &["hashes.rs", "keyspace.rs"],
        "A hash is a value of the keyspace, and its commands look into the keyspace.",
    ),
    (
        "bench",
        &[
            "contestant/async_redis_lock.rs",
            "contestant/floor.rs",
            "contestant/mod.rs",
            "contestant/ours.rs",
            "contestant/ours_multi.rs",
            "contestant/ours_reader.rs",
            "contestant/ours_semaphore.rs",
            "contestant/quorum_floor.rs",
            "contestant/redisson.rs",
            "contestant/redisson_multi.rs",
            "contestant/rslock.rs",
        ],
        "`mod.rs` has the trait of the contestants, and makes each of them.",
    ),
    (
        "bench",
        &["plot/bars.rs", "plot/mod.rs", "plot/ranges.rs"],
        "`mod.rs` has the width of a plot, and draws each form.",
    ),
    (
        "bench",
        &[
            "scenario/alternate.rs",
            "scenario/contest.rs",
            "scenario/crowd.rs",
            "scenario/held.rs",
            "scenario/instructions.rs",
            "scenario/message.rs",
            "scenario/mod.rs",
            "scenario/quorum.rs",
            "scenario/semaphore.rs",
            "scenario/several.rs",
        ],
        "`mod.rs` has the step of a scenario, and runs each scenario.",
    ),
];

/// Pairs of folders of lock-core that need each other.
pub(super) const FOLDERS: &[(&str, &str)] = &[
    ("store/memory", "store/memory/kinds"),
    ("store/redis", "store/redis/kinds"),
];

/// The functions that are longer than 60 lines.
pub(super) const LONG: &[&str] = &[
    "engine/renewals.rs: renew",
    "engine/sweep.rs: sweep_leases",
    "validate.rs: validate",
];

/// The lines of each folder of lock-core, without those of the folders in it that have a row of their own: Rust and Lua, with tests and
/// comments. A number that has to grow has its reason beside it.
pub(super) const LINES: &[(&str, usize, &str)] = &[
    (
        "",
        324,
        "Five features: their rows, and what only they export.",
    ),
    (
        "base",
        4_777,
        "The settings of a quorum came from its folder. Two clocks for tests, and the keys that a call asks for. A pause of the simulation before a request.",
    ),
    (
        "engine",
        10_187,
        "What only a quorum needs is left out without its feature; losses that a test wants. A node that is back has all leases confirmed; what was refused is not released for ever.",
    ),
    (
        "face",
        7_546,
        "A file for the settings of each feature; the face of programs without async code.",
    ),
    (
        "face/testing",
        397,
        "The server in memory that tests control.",
    ),
    (
        "guide",
        856,
        "A blocking program in tests, and a lock around each request.",
    ),
    (
        "private",
        971,
        "Functions that are not async, with the feature and without.",
    ),
    (
        "scripts",
        2_192,
        "A vote has an edition, which scripts compare, and an undo is a script of its own. The state of a node is read without a write.",
    ),
    (
        "store",
        1_006,
        "What is not over a quorum came from its folder, and what only features need is left out without them. A node that is back.",
    ),
    ("store/memory", 1_586, "What a test does to the server."),
    (
        "store/quorum",
        5_393,
        "No lock is lost by one node: a renewal counts for each lease, nodes that did not vote are asked again, an undo may overtake a release.",
    ),
    (
        "store/redis",
        8_496,
        "Where a server is, apart from sentinels, which may be left out; what only a cluster or a quorum asks of a server. A first connection waits for most of the sentinels. A clean-up does not hurry a dial.",
    ),
    (
        "store/redis/cluster",
        1_799,
        "Its URL came from the server, and a file stands for the folder without its feature.",
    ),
    (
        "store/redis/kinds",
        1_501,
        "Latches, guarded scripts and the operations came from the folder above.",
    ),
];

/// A concept that few files should know.
pub(super) struct Concept {
    pub(super) name: &'static str,
    /// Words in names by which a file shows that it knows the concept, and calls.
    pub(super) words: &'static [&'static str],
    /// Files that exist only for it.
    pub(super) own: &'static [&'static str],
    /// Number of other files that name it.
    pub(super) outside: usize,
}

pub(super) const CONCEPTS: &[Concept] = &[
    Concept {
        name: "semaphore",
        words: &[
            "semaphore",
            "semaphores",
            "permits",
            "share",
            "weight",
            "other max",
            "too many",
            "resize",
            "resized",
        ],
        own: &[
            "base/share.rs",
            "engine/resize.rs",
            "face/semaphore.rs",
            "store/kinds/permits.rs",
            "store/memory/kinds/permits.rs",
            "store/redis/kinds/shared_grant.rs",
            "store/redis/kinds/permits.rs",
        ],
        // Two managers make its handle, the async one and the blocking one.
        outside: 20,
    },
    Concept {
        name: "election",
        words: &[
            "election",
            "elections",
            "leader",
            "leaders",
            "leadership",
            "led",
            "candidate",
            "candidates",
            "campaign",
        ],
        own: &[
            "base/election.rs",
            "engine/election.rs",
            "face/election.rs",
            "store/kinds/election.rs",
            "store/memory/kinds/election.rs",
            "store/quorum/leader.rs",
            "store/redis/kinds/election.rs",
        ],
        outside: 13,
    },
    Concept {
        name: "thread of its own",
        words: &["own thread", "own runtime", "engine.run", "with timers of"],
        own: &["engine/own_thread.rs"],
        // The blocking face has its manager there.
        outside: 5,
    },
];
