//! `docs/promises.md` names only tests and rules that exist, and each promise has one or says that it is not built.

use std::fs;
use std::path::{Path, PathBuf};

/// How many promises the page has.
const PROMISES: usize = 19;

/// What a promise says that has no test for this reason.
const NOT_BUILT: &str = "Not built yet";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn page() -> String {
    read(&root().join("docs/promises.md"))
}

/// The texts between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The program and the path of a test: two words, of which the second has an underscore.
fn as_test(text: &str) -> Option<(&str, &str)> {
    let mut words = text.split_whitespace();
    let (program, path) = (words.next()?, words.next()?);
    let is_name = |word: &str| {
        let mut letters = word.chars();
        !word.is_empty()
            && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let is_test = is_name(program) && path.split("::").all(is_name) && path.contains('_');
    (is_test && words.next().is_none()).then_some((program, path))
}

fn tests(text: &str) -> impl Iterator<Item = (&str, &str)> {
    quoted(text).filter_map(as_test)
}

/// The rules of the simulation that a text names.
fn rules(text: &str) -> impl Iterator<Item = &str> {
    let named = text.split("rule `").skip(1);
    named.filter_map(|rest| rest.split('`').next())
}

/// The sections of the promises, with their numbers.
fn sections(page: &str) -> Vec<(usize, &str)> {
    let parts = page.split("\n## ").skip(1);
    let numbered = parts.filter_map(|part| {
        let (number, _) = part.strip_prefix('P')?.split_once('.')?;
        Some((number.parse().ok()?, part))
    });
    numbered.collect()
}

/// The file with which a program begins, and the folder of its modules.
fn program(name: &str) -> Option<(PathBuf, PathBuf)> {
    let core = root().join("lock-core");
    if name == "lock_core" {
        return Some((core.join("src/lib.rs"), core.join("src")));
    }
    let programs = [root().join("tests/tests"), core.join("tests")];
    programs.into_iter().find_map(|programs| {
        let folder = programs.join(name);
        let files = [folder.with_extension("rs"), folder.join("main.rs")];
        let file = files.into_iter().find(|file| file.is_file())?;
        Some((file, folder))
    })
}

/// Why there is no such test.
fn missing(name: &str, path: &str) -> Option<String> {
    let Some((mut file, mut folder)) = program(name) else {
        return Some(format!("there is no program {name}"));
    };
    let first = read(&file);
    let mut source = first.clone();
    let (modules, test) = path.rsplit_once("::").unwrap_or(("", path));
    for module in modules.split("::").filter(|module| !module.is_empty()) {
        let inner = folder.join(module);
        let files = [inner.with_extension("rs"), inner.join("mod.rs")];
        let own = files.into_iter().find(|file| file.is_file());
        if let Some(own) = own.filter(|_| source.contains(&format!("mod {module};"))) {
            (file, folder) = (own, inner);
            source = read(&file);
        } else if !source.contains(&format!("mod {module} {{")) {
            return Some(format!("{} has no module {module}", file.display()));
        }
    }
    let is_there =
        is_marked(&source, test) || is_listed(&first, &source, test) || is_made(&source, test);
    (!is_there).then(|| format!("{} has no {test}", file.display()))
}

fn head(test: &str) -> String {
    format!("fn {test}(")
}

/// Whether a function of this name is a test.
fn is_marked(source: &str, test: &str) -> bool {
    let head = head(test);
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let heads = lines.iter().enumerate();
    let mut heads = heads.filter(|(_, line)| line.contains(&head));
    heads.any(|(at, _)| {
        let above = lines[..at].iter().rev();
        let mut marks = above.take_while(|line| line.starts_with('#') || line.starts_with("//"));
        marks.any(|mark| mark.starts_with("#[test]") || mark.starts_with("#[tokio::test"))
    })
}

/// Whether a function of this name is one of the cases that the program's first file lists for a macro.
fn is_listed(first: &str, source: &str, test: &str) -> bool {
    let mut words = first.split_whitespace();
    source.contains(&head(test)) && words.any(|word| word.trim_end_matches(',') == test)
}

/// Whether a call of a macro makes a test of this name.
fn is_made(source: &str, test: &str) -> bool {
    source.contains(&format!("!({test},"))
}

/// Whether a checker of the simulation has this rule.
fn is_rule(rule: &str) -> bool {
    // As an argument, or as the value of a branch.
    let found = [format!("\"{rule}\","), format!("\"{rule}\"\n")];
    let mut folders = vec![root().join("tests/simulation/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if found.iter().any(|found| read(&path).contains(found)) {
                return true;
            }
        }
    }
    false
}

#[test]
fn each_named_test_exists() {
    let page = page();
    let missing: Vec<_> = tests(&page)
        .filter_map(|(program, path)| missing(program, path))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
    let unknown: Vec<_> = rules(&page).filter(|rule| !is_rule(rule)).collect();
    assert!(unknown.is_empty(), "no rule of the simulation: {unknown:?}");
}

#[test]
fn each_promise_has_a_test_or_is_not_built() {
    let page = page();
    let sections = sections(&page);
    let numbers: Vec<_> = sections.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=PROMISES).collect::<Vec<_>>());
    for (number, section) in sections {
        let proved = tests(section).count() + rules(section).count() > 0;
        assert!(
            proved || section.contains(NOT_BUILT),
            "P{number} has no test"
        );
    }
}

/// Otherwise the tests above would see nothing.
#[test]
fn a_name_that_does_not_exist_is_noticed() {
    let page = "\n## P1. One\n`promises a_test_of_nothing`, rule `no such rule`\n## P2. Two\nnothing\n## Other\n";
    assert_eq!(
        tests(page).collect::<Vec<_>>(),
        [("promises", "a_test_of_nothing")]
    );
    assert_eq!(rules(page).collect::<Vec<_>>(), ["no such rule"]);
    let numbers: Vec<_> = sections(page).iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2]);
    assert!(!is_rule("no such rule"));
    for (program, path) in [
        ("no_program", "each_named_test_exists"),
        ("promises", "a_test_of_nothing"),
        ("promises", "no_module::each_named_test_exists"),
        // A function, and no test.
        ("promises", "is_marked"),
        ("faults", "terms::a_test_of_nothing"),
        ("lock_core", "session::tests::a_test_of_nothing"),
        // No case, though it stands beside them.
        ("contract", "exclusion::a_test_of_nothing"),
        ("contract", "rig::on_a_quorum"),
        ("attribute", "never_unlocked::unit::a_test_of_nothing"),
    ] {
        assert!(missing(program, path).is_some(), "{program} {path}");
    }
    for (program, path) in [
        ("promises", "a_name_that_does_not_exist_is_noticed"),
        (
            "faults",
            "cancel::four_hundred_cancelled_acquires_leave_nothing",
        ),
        (
            "lock_core",
            "engine::tests::lease::a_late_renewal_does_not_revive",
        ),
        ("contract", "server::nothing_stays_on_the_server"),
        ("segmented", "in_memory::no_segment_has_two_holders"),
        ("attribute", "never_unlocked::unit::skip_cancel"),
    ] {
        assert_eq!(missing(program, path), None);
    }
}
