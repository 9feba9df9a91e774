//! What the tests of structure see, shown with crates of a few lines.

use std::collections::BTreeMap;

use super::circles::circles;
use super::krate::{Crate, parse};

fn small(files: &[(&str, &str)]) -> Crate {
    let files = files
        .iter()
        .map(|(name, text)| ((*name).to_owned(), parse(name, text)));
    Crate::of("small", &files.collect::<BTreeMap<_, _>>())
}

/// The arrows from file to file, as `a -> b`, without `.rs`.
fn needs(files: &[(&str, &str)]) -> Vec<String> {
    let krate = small(files);
    let mut arrows = Vec::new();
    for (from, all) in krate.needs() {
        let arrow = |to: &str| format!("{from} -> {to}").replace(".rs", "");
        arrows.extend(all.into_iter().map(arrow));
    }
    arrows
}

#[test]
fn a_circle_through_an_import_in_a_function_is_found() {
    let krate = small(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use super::b::B; pub fn made() -> B { B }"),
        (
            "b.rs",
            "pub struct B; fn f() { if true { use crate::a::made; made(); } }",
        ),
    ]);
    assert_eq!(circles(&krate.needs()), [["a.rs", "b.rs"]]);
}

#[test]
fn a_circle_through_a_method_of_a_split_type_is_found() {
    let krate = small(&[
        ("lib.rs", "mod link; mod dial;"),
        (
            "link.rs",
            "pub struct Link; impl Link { fn ask(&self) { self.dialled(); } }",
        ),
        (
            "dial.rs",
            "use super::link::Link; impl Link { pub fn dialled(&self) {} }",
        ),
    ]);
    assert_eq!(circles(&krate.needs()), [["dial.rs", "link.rs"]]);
}

#[test]
fn a_circle_through_the_body_of_a_macro_is_found() {
    let krate = small(&[
        ("lib.rs", "mod kinds; mod guarded;"),
        (
            "kinds/mod.rs",
            "pub mod one;
             macro_rules! of_kind {
                 ($kind:ident => $code:expr) => {{ use $crate::kinds::one as $kind; $code }};
             }
             pub(super) use of_kind;",
        ),
        (
            "kinds/one.rs",
            "use crate::guarded::Call; pub fn guard(call: Call) {}",
        ),
        (
            "guarded.rs",
            "use super::kinds::of_kind;
             pub struct Call;
             fn run() { of_kind!(kind => kind::guard(Call)) }",
        ),
    ]);
    let circle = ["guarded.rs", "kinds/mod.rs", "kinds/one.rs"];
    assert_eq!(circles(&krate.needs()), [circle]);
}

#[test]
fn an_associated_function_is_a_method_also_by_its_path() {
    let arrows = needs(&[
        ("lib.rs", "mod link; mod dial; mod user;"),
        ("link.rs", "pub struct Link;"),
        (
            "dial.rs",
            "impl super::link::Link { pub fn dialled() {} pub const SLOW: u32 = 1; }",
        ),
        (
            "user.rs",
            "use super::link::Link; fn f() { Link::dialled(); }",
        ),
    ]);
    assert_eq!(arrows, ["dial -> link", "user -> dial", "user -> link"]);
}

#[test]
fn a_method_counts_only_if_one_file_alone_can_be_meant() {
    let arrows = needs(&[
        (
            "lib.rs",
            "mod link; mod dial; mod other; mod whole; mod user;",
        ),
        (
            "link.rs",
            "pub struct Link; impl Link { pub fn ended(&self) {} }",
        ),
        (
            "dial.rs",
            "impl super::link::Link { pub fn dialled(&self) {} pub fn push(&self) {} }",
        ),
        ("other.rs", "trait Other { fn dialled(&self); }"),
        (
            "whole.rs",
            "pub struct Whole; impl Whole { pub fn whole(&self) {} }",
        ),
        (
            "user.rs",
            "fn f(all: Vec<u8>) { all.push(1); all.dialled(); all.whole(); }",
        ),
    ]);
    assert_eq!(arrows, ["dial -> link"]);
}

#[test]
fn paths_and_calls_inside_of_an_invoked_macro_are_found() {
    let arrows = needs(&[
        ("lib.rs", "mod a; mod b; mod link; mod dial; mod user;"),
        ("a.rs", "pub const A: u32 = 1;"),
        ("b.rs", "pub fn b() {}"),
        ("link.rs", "pub struct Link;"),
        (
            "dial.rs",
            "impl super::link::Link { pub fn dialled(&self) {} }",
        ),
        (
            "user.rs",
            "fn f() { assert!(vec![crate::a::A].is_empty(), super::b::b(), link.dialled()); ::a::b::c!(); }",
        ),
    ]);
    assert_eq!(
        arrows,
        ["dial -> link", "user -> a", "user -> b", "user -> dial"]
    );
}

#[test]
fn the_macros_of_two_modules_with_one_name_are_told_apart() {
    let of_kind = |module: &str| {
        format!(
            "macro_rules! of_kind {{ () => {{ $crate::{module}::f() }}; }} pub(crate) use of_kind;"
        )
    };
    let arrows = needs(&[
        ("lib.rs", "mod a; mod b; mod one; mod two; mod user;"),
        ("a.rs", "pub fn f() {}"),
        ("b.rs", "pub fn f() {}"),
        ("one.rs", &of_kind("a")),
        ("two.rs", &of_kind("b")),
        ("user.rs", "use crate::two; fn f() { two::of_kind!() }"),
    ]);
    assert_eq!(arrows, ["one -> a", "two -> b", "user -> b", "user -> two"]);
}

#[test]
fn a_re_export_is_followed_and_is_no_need_by_itself() {
    let arrows = needs(&[
        ("lib.rs", "mod store; mod user;"),
        ("store/mod.rs", "mod any; pub use self::any::Any as Store;"),
        ("store/any.rs", "pub enum Any { One }"),
        (
            "user.rs",
            "use crate::store; fn f() { let _ = store::Store::One; }",
        ),
    ]);
    assert_eq!(arrows, ["user -> store/any", "user -> store/mod"]);
}

#[test]
fn code_for_tests_and_modules_inside_a_file_are_read_as_such() {
    let arrows = needs(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "pub struct A; struct Own;
             mod inner { use super::Own; use super::super::b::B; }
             #[cfg(test)] mod tests { use crate::c::C; }
             impl A { #[cfg(test)] fn f(&self) { crate::c::f(); } }",
        ),
        ("b.rs", "pub struct B;"),
        ("c.rs", ""),
    ]);
    assert_eq!(arrows, ["a -> b"]);
}

#[test]
fn the_root_of_a_program_is_its_main_file() {
    let arrows = needs(&[
        ("main.rs", "mod run; fn main() { run::run(); }"),
        ("run/mod.rs", "mod part; pub fn run() { self::part::f(); }"),
        ("run/part.rs", "pub fn f() { crate::end(); }"),
    ]);
    assert_eq!(
        arrows,
        ["main -> run/mod", "run/mod -> run/part", "run/part -> main"]
    );
}
