//! Which files know a concept: those that name it, outside its own files. Comments, texts, the guide and tests do not count.

use std::collections::BTreeSet;

use super::krate::Crate;
use super::lists::{CONCEPTS, Concept};
use super::{check, lock_core};
use crate::source::words;

/// Whether a name has these words, as `check_share` has `share`. A call is itself: `engine.run`.
fn has(name: &str, wanted: &str) -> bool {
    if name.contains('.') || wanted.contains('.') {
        return name == wanted;
    }
    let wanted: Vec<_> = wanted.split(' ').collect();
    words(name)
        .windows(wanted.len())
        .any(|found| found == wanted)
}

/// The files outside a concept's own that name it.
fn outside<'a>(krate: &'a Crate, concept: &Concept) -> BTreeSet<&'a str> {
    let files = krate.names.iter().filter(|(file, names)| {
        let name = |name: &String| concept.words.iter().any(|wanted| has(name, wanted));
        !concept.own.contains(&file.as_str())
            && !file.starts_with("guide/")
            && names.all.iter().any(name)
    });
    files.map(|(file, _)| file.as_str()).collect()
}

#[test]
fn no_concept_is_named_in_more_files_than_before() {
    let (mut wrong, mut today) = (Vec::new(), Vec::new());
    for concept in CONCEPTS {
        let Concept {
            name,
            outside: number,
            ..
        } = concept;
        let found = outside(lock_core(), concept);
        if found.len() != *number {
            let now = found.len();
            let rule = if now > *number {
                "too many"
            } else {
                "fewer: lower it"
            };
            wrong.push(format!(
                "{name}: {now} files, not {number}, {rule}: {found:#?}"
            ));
        }
        let lost = concept
            .own
            .iter()
            .filter(|own| !lock_core().names.contains_key(**own));
        wrong.extend(lost.map(|own| format!("{name}: {own} is not there")));
        today.push(format!("outside: {}, // {name}", found.len()));
    }
    check(&wrong, "CONCEPTS", &today);
}

/// Otherwise the test above would see nothing.
#[test]
fn words_are_found_in_names_and_calls() {
    assert!(has("check_share", "share"));
    assert!(has("OtherMax", "other max"));
    assert!(has("engine.run", "engine.run"));
    assert!(!has("shared", "share"));
    assert!(!has("other.max", "other max"));
    assert!(!has("run", "engine.run"));
}
