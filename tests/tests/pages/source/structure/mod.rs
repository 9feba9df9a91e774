//! The structure of the source: which files need each other, in which folders, how long functions and folders are, and which files
//! know a concept. What is left to do is in `lists.rs`, and each of its lists only becomes shorter.
//!
//! A file needs another one if it imports something of it or calls it, also inside a function or a macro. Each path is resolved to the
//! file that has the item: a re-export in a `mod.rs` is followed, and is no need by itself.

use std::sync::LazyLock;

use self::krate::Crate;

mod circles;
mod folders;
mod functions;
mod krate;
mod lines;
mod lists;
mod names;
mod small_crates;
mod words;

static CRATES: LazyLock<Vec<Crate>> = LazyLock::new(|| {
    let folders = [
        "lock-core",
        "lock-macros",
        "lock-cli",
        "tests/simulation",
        "tests/master",
        "bench",
    ];
    folders.map(Crate::read).into()
});

fn lock_core() -> &'static Crate {
    &CRATES[0]
}

/// Fails if something is wrong, with the rows of today for a list in `lists.rs`.
#[track_caller]
fn check(wrong: &[String], list: &str, today: &[String]) {
    let (wrong_rows, rows) = (wrong.join("\n"), today.join("\n"));
    assert!(
        wrong.is_empty(),
        "{wrong_rows}\n\nToday's rows of {list} in tests/tests/pages/source/structure/lists.rs:\n{rows}\n"
    );
}
