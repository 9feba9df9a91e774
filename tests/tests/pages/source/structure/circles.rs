//! Circles of files: groups of files of which each needs all others, through files between them.

use std::collections::{BTreeMap, BTreeSet};

use super::lists::CIRCLES;
use super::{CRATES, check};

/// Groups of files that need each other, each sorted.
pub(super) fn circles(needs: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = needs
        .keys()
        .map(|from| {
            let (mut seen, mut ahead) = (BTreeSet::new(), vec![*from]);
            while let Some(at) = ahead.pop() {
                for next in needs.get(at).into_iter().flatten() {
                    if seen.insert(*next) {
                        ahead.push(next);
                    }
                }
            }
            (*from, seen)
        })
        .collect();
    let mut circles = BTreeSet::new();
    for (from, all) in &reached {
        let both = all.iter().filter(|to| reached[**to].contains(from));
        let circle: Vec<String> = both.map(|to| (*to).to_owned()).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// The arrows of a circle, one a line.
fn arrows(circle: &[String], needs: &BTreeMap<&str, BTreeSet<&str>>) -> String {
    let mut arrows = String::new();
    for from in circle {
        let inside = needs[from.as_str()]
            .iter()
            .filter(|to| circle.iter().any(|file| file == *to));
        arrows.extend(inside.map(|to| format!("\n    {from} -> {to}")));
    }
    arrows
}

#[test]
fn no_circle_of_files_is_left_but_the_known_ones() {
    let (mut wrong, mut today) = (Vec::new(), Vec::new());
    let mut gone: Vec<_> = CIRCLES.to_vec();
    for krate in CRATES.iter() {
        let needs = krate.needs();
        for circle in circles(&needs) {
            let is_part =
                |files: &[&str]| files.iter().any(|file| circle.iter().any(|f| f == file));
            // The circle, or what it was before.
            let mut listed = CIRCLES
                .iter()
                .filter(|(of, files, _)| *of == krate.name && is_part(files));
            let (_, known, reason) = listed.next().copied().unwrap_or_default();
            if known != circle || reason.is_empty() {
                let arrows = arrows(&circle, &needs);
                wrong.push(format!("{}: these need each other:{arrows}", krate.name));
            }
            gone.retain(|(of, files, _)| *of != krate.name || *files != circle);
            today.push(format!("({:?}, &{circle:?}, {reason:?}),", krate.name));
        }
    }
    let gone = gone.iter();
    wrong.extend(gone.map(|(krate, files, _)| format!("{krate}: is no circle now: {files:?}")));
    check(&wrong, "CIRCLES", &today);
}
