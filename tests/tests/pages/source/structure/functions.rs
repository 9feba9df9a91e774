//! How long a function is, and that a type has a name of its own.

use std::collections::BTreeSet;

use syn::Item;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::check;
use super::krate::parsed;
use super::lists::LONG;

/// Maximum lines of a function.
const LINES: usize = 60;

const CRATES: [&str; 2] = ["lock-core", "lock-macros"];

/// Functions that are longer than they may be.
#[derive(Default)]
struct Long(Vec<String>);

impl Long {
    fn look(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line - signature.span().start().line + 1;
        if lines > LINES {
            self.0.push(signature.ident.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Long {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.look(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.look(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn a_function_has_at_most_sixty_lines() {
    let mut found = Vec::new();
    for (name, file) in CRATES.map(parsed).iter().flatten() {
        let mut long = Long::default();
        long.visit_file(file);
        found.extend(long.0.iter().map(|function| format!("{name}: {function}")));
    }
    found.sort();
    let new = found.iter().filter(|name| !LONG.contains(&name.as_str()));
    let new = new.map(|name| format!("has more than {LINES} lines: {name}"));
    let gone = LONG.iter().filter(|name| !found.iter().any(|f| f == *name));
    let gone = gone.map(|name| format!("has at most {LINES} lines now: {name}"));
    let wrong: Vec<_> = new.chain(gone).collect();
    let today = found.iter().map(|name| format!("{name:?},"));
    check(&wrong, "LONG", &today.collect::<Vec<_>>());
}

#[test]
fn a_type_name_occurs_once_in_a_crate() {
    let mut twice = BTreeSet::new();
    for krate in CRATES {
        let mut known = BTreeSet::new();
        let mut files = parsed(krate);
        // Stand-ins have the names of what they stand for: those of the simulation, and those of a folder whose feature is off.
        files.retain(|name, _| name != "base/sim.rs" && !name.ends_with("/absent.rs"));
        for item in files.values().flat_map(|file| &file.items) {
            let name = match item {
                Item::Struct(item) => &item.ident,
                Item::Enum(item) => &item.ident,
                Item::Trait(item) => &item.ident,
                Item::Type(item) => &item.ident,
                _ => continue,
            };
            if !known.insert(name.to_string()) {
                twice.insert(name.to_string());
            }
        }
    }
    assert!(twice.is_empty(), "{twice:#?}");
}
