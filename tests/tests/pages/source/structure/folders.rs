//! The folders of lock-core: layers, which import down, and pairs that need each other.

use std::collections::BTreeSet;

use super::lists::FOLDERS;
use super::{check, lock_core};

/// What users see asks the engine, never a store. These files compose both.
const COMPOSE: [&str; 6] = [
    "face/builder.rs",
    "face/cluster.rs",
    "face/connect.rs",
    "face/quorum.rs",
    "face/sentinel.rs",
    "face/testing/memory_server.rs",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Layer {
    Base,
    Store,
    Engine,
    Face,
    Private,
}

fn layer(name: &str) -> Layer {
    match name.split('/').next() {
        Some("base") => Layer::Base,
        Some("store") => Layer::Store,
        Some("engine") => Layer::Engine,
        Some("face" | "guide") => Layer::Face,
        // The attribute's traits, the code that it calls, and the root that re-exports all.
        _ => Layer::Private,
    }
}

#[test]
fn imports_run_down_from_layer_to_layer() {
    let mut up = Vec::new();
    for (from, all) in lock_core().needs() {
        for to in all {
            let past_the_engine = layer(to) == Layer::Store && layer(from) >= Layer::Face;
            if layer(to) > layer(from) || past_the_engine && !COMPOSE.contains(&from) {
                up.push(format!("{from} -> {to}"));
            }
        }
    }
    assert!(up.is_empty(), "{up:#?}");
}

fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[test]
fn no_two_folders_need_each_other_but_the_known_ones() {
    let mut arrows = BTreeSet::new();
    for (from, all) in lock_core().needs() {
        arrows.extend(all.into_iter().map(|to| (folder(from), folder(to))));
    }
    let both = arrows
        .iter()
        .filter(|(from, to)| from < to && arrows.contains(&(*to, *from)));
    let both: Vec<_> = both.copied().collect();
    let new = both.iter().filter(|pair| !FOLDERS.contains(pair));
    let new = new.map(|(one, other)| format!("need each other: {one} and {other}"));
    let gone = FOLDERS.iter().filter(|pair| !both.contains(pair));
    let gone = gone.map(|(one, other)| format!("do not need each other now: {one} and {other}"));
    let wrong: Vec<_> = new.chain(gone).collect();
    let today = both.iter().map(|pair| format!("{pair:?},"));
    check(&wrong, "FOLDERS", &today.collect::<Vec<_>>());
}
