//! How the files of a crate depend on each other: no circles, and layers that import down. And how long a function is.
//!
//! Each import is resolved to the file that has the item: a re-export in a `mod.rs` is followed, and is no dependency by itself.

use std::collections::{BTreeMap, BTreeSet};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{File, ItemUse, UseTree, Visibility};

use super::files_below;

/// Maximum lines of a function.
const LINES: usize = 60;

/// A path, as `["crate", "engine", "line", "Line"]`.
type Names = Vec<String>;

/// The files of a crate, without their tests.
struct Crate {
    /// By their path from the root of the crate, as `engine/line.rs`.
    files: BTreeMap<String, File>,
    /// The file of each module, as `["engine", "line"]`.
    modules: BTreeMap<Names, String>,
    /// What each module re-exports: the name, and the path that it stands for.
    exports: BTreeMap<(Names, String), Names>,
}

impl Crate {
    fn read(folder: &str) -> Self {
        let mut files = BTreeMap::new();
        for (name, text) in files_below(&super::root().join(folder).join("src"), &["rs"]) {
            // Tests use what they need, and the simulation has stand-ins.
            if name.ends_with("tests.rs") || name.contains("/tests/") {
                continue;
            }
            let mut file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            file.items.retain(|item| !is_for_tests(item));
            files.insert(name, file);
        }
        let modules = files.keys().map(|name| (module_of(name), name.clone()));
        let modules = modules.collect();
        let mut krate = Self {
            files,
            modules,
            exports: BTreeMap::new(),
        };
        let mut exports = BTreeMap::new();
        for (name, file) in &krate.files {
            let module = module_of(name);
            for used in uses(file, true) {
                for (path, shown) in leaves(&used.tree) {
                    let path = krate.absolute(&module, &path);
                    exports.insert((module.clone(), shown), path);
                }
            }
        }
        krate.exports = exports;
        krate
    }

    /// The path from the root of the crate. Empty for a path of another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Names {
        let (mut at, mut rest) = (module.to_vec(), path);
        match rest.first().map(String::as_str) {
            Some("crate") => at.clear(),
            Some("self" | "super") => {}
            Some(first) => {
                // A module that is declared here, or another crate.
                at.push(first.to_owned());
                if !self.modules.contains_key(&at) {
                    return Vec::new();
                }
                at.pop();
                return [module, path].concat();
            }
            None => return Vec::new(),
        }
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" | "self" => {}
                "super" => drop(at.pop()),
                _ => break,
            }
            rest = others;
        }
        at.extend_from_slice(rest);
        at
    }

    /// The file that has the item with this path.
    fn file_of(&self, path: &[String]) -> Option<&String> {
        let mut path = path.to_vec();
        // More than any chain of re-exports.
        for _ in 0..10 {
            let known = (0..=path.len())
                .rev()
                .find(|end| self.modules.contains_key(&path[..*end]))?;
            let module = path[..known].to_vec();
            let Some(item) = path.get(known) else {
                return self.modules.get(&module);
            };
            match self.exports.get(&(module.clone(), item.clone())) {
                Some(stands_for) if !stands_for.is_empty() => {
                    path = [&stands_for[..], &path[known + 1..]].concat();
                }
                _ => return self.modules.get(&module),
            }
        }
        None
    }

    /// For each file the files that it needs.
    fn needs(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut needs = BTreeMap::new();
        for (name, file) in &self.files {
            let module = module_of(name);
            let used = uses(file, false);
            let paths = used.iter().flat_map(|used| leaves(&used.tree));
            let mut paths: Vec<_> = paths.map(|(path, _)| path).collect();
            paths.extend(Paths::of(file));
            let files = paths.iter().filter_map(|path| {
                let path = self.absolute(&module, path);
                if path.is_empty() {
                    return None;
                }
                self.file_of(&path).map(String::as_str)
            });
            let others: BTreeSet<_> = files.filter(|other| *other != name).collect();
            needs.insert(name.as_str(), others);
        }
        needs
    }
}

fn is_for_tests(item: &syn::Item) -> bool {
    let attrs = match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        _ => return false,
    };
    attrs.iter().any(|attr| {
        let list = attr.meta.require_list().ok();
        let tokens = list.filter(|list| list.path.is_ident("cfg"));
        tokens.is_some_and(|list| list.tokens.to_string() == "test")
    })
}

fn module_of(name: &str) -> Names {
    let name = name.trim_end_matches(".rs");
    let parts = name
        .split('/')
        .filter(|part| !["mod", "lib"].contains(part));
    parts.map(str::to_owned).collect()
}

/// The imports of a file, or its re-exports.
fn uses(file: &File, exports: bool) -> Vec<&ItemUse> {
    let uses = file.items.iter().filter_map(|item| match item {
        syn::Item::Use(used) => Some(used),
        _ => None,
    });
    let is_export = |used: &&ItemUse| !matches!(used.vis, Visibility::Inherited);
    uses.filter(|used| is_export(used) == exports).collect()
}

/// The paths in an import, each with the name that it gets.
fn leaves(tree: &UseTree) -> Vec<(Names, String)> {
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let below = leaves(&path.tree).into_iter();
            let whole = below.map(|(rest, shown)| ([vec![first.clone()], rest].concat(), shown));
            whole.collect()
        }
        UseTree::Name(name) if name.ident == "self" => vec![(Vec::new(), String::new())],
        UseTree::Name(name) => vec![(vec![name.ident.to_string()], name.ident.to_string())],
        UseTree::Rename(name) => vec![(vec![name.ident.to_string()], name.rename.to_string())],
        UseTree::Glob(_) => vec![(Vec::new(), "*".to_owned())],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

/// Paths in the code that begin with `crate`, `super` or a module.
#[derive(Default)]
struct Paths(Vec<Names>);

impl Paths {
    fn of(file: &File) -> Vec<Names> {
        let mut paths = Self::default();
        paths.visit_file(file);
        paths.0
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, _: &'ast ItemUse) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let names = path
                .segments
                .iter()
                .map(|segment| segment.ident.to_string());
            self.0.push(names.collect());
        }
        visit::visit_path(self, path);
    }
}

/// Groups of files that need each other, each sorted.
fn circles(needs: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Vec<String>> {
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

/// The circles that are left. A new one is not added here: it is opened.
const CIRCLES: [&[&str]; 1] = [&["engine/acquisition.rs", "engine/hold.rs"]];

/// The functions that are longer.
const LONG: [&str; 3] = [
    "engine/renewals.rs: renew",
    "engine/sweep.rs: sweep_leases",
    "validate.rs: validate",
];

/// What users see asks the engine, never a store. These files compose both.
const COMPOSE: [&str; 2] = ["face/builder.rs", "face/connect.rs"];

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

fn crates() -> [Crate; 2] {
    ["lock-core", "lock-macros"].map(Crate::read)
}

#[test]
fn no_circle_of_files_is_left_but_the_known_ones() {
    let mut found: Vec<_> = crates()
        .iter()
        .flat_map(|krate| circles(&krate.needs()))
        .collect();
    found.sort();
    assert_eq!(found, CIRCLES);
}

#[test]
fn imports_run_down_from_layer_to_layer() {
    let krate = Crate::read("lock-core");
    let mut up = Vec::new();
    for (from, all) in krate.needs() {
        for to in all {
            let past_the_engine = layer(to) == Layer::Store && layer(from) >= Layer::Face;
            if layer(to) > layer(from) || past_the_engine && !COMPOSE.contains(&from) {
                up.push(format!("{from} -> {to}"));
            }
        }
    }
    assert!(up.is_empty(), "{up:#?}");
}

#[test]
fn a_function_has_at_most_sixty_lines() {
    let mut found = Vec::new();
    for krate in crates() {
        for (name, file) in &krate.files {
            let mut long = Long::default();
            long.visit_file(file);
            found.extend(long.0.iter().map(|function| format!("{name}: {function}")));
        }
    }
    found.sort();
    assert_eq!(found, LONG);
}

#[test]
fn a_type_name_occurs_once_in_a_crate() {
    let mut twice = BTreeSet::new();
    for krate in crates() {
        let mut known = BTreeSet::new();
        // The simulation's stand-ins have the names of what they stand for.
        let files = krate
            .files
            .iter()
            .filter(|(name, _)| *name != "base/sim.rs");
        for item in files.flat_map(|(_, file)| &file.items) {
            let name = match item {
                syn::Item::Struct(item) => &item.ident,
                syn::Item::Enum(item) => &item.ident,
                syn::Item::Trait(item) => &item.ident,
                syn::Item::Type(item) => &item.ident,
                _ => continue,
            };
            if !known.insert(name.to_string()) {
                twice.insert(name.to_string());
            }
        }
    }
    assert!(twice.is_empty(), "{twice:#?}");
}
