//! The files of a crate, and which of them each needs.

use std::collections::{BTreeMap, BTreeSet};

use syn::{File, Item};

use super::names::{Names, Path, is_for_tests};
use crate::source::{files_below, root};

/// Methods with these names are mostly those of other crates.
const COMMON: &str = "as_bytes as_str bytes chars clone contains default drop find fmt from get insert into into_iter is_empty iter len \
    load lock map name new next parse poll pop push recv remove replace send set split take wait";

/// The files of a crate, without their tests, and what each names.
pub(super) struct Crate {
    /// Its folder.
    pub(super) name: String,
    /// By their path from the root of the crate, as `engine/line.rs`.
    pub(super) names: BTreeMap<String, Names>,
    /// The name of its root: `lib` or `main`.
    root: &'static str,
    /// The file of each module, as `["engine", "line"]`.
    modules: BTreeMap<Path, String>,
    /// What each module imports: the name, and the path that it stands for.
    imports: BTreeMap<(Path, String), Path>,
    /// Methods of types whose parts stand in several files: the file, if it alone defines a method with this name.
    methods: BTreeMap<String, String>,
}

/// The files of a folder with a crate, without their tests.
pub(super) fn parsed(folder: &str) -> BTreeMap<String, File> {
    let mut texts = files_below(&root().join(folder).join("src"), &["rs"]);
    // Tests use what they need, and a program in `bin` is a crate of its own.
    texts.retain(|name, _| {
        !name.ends_with("tests.rs") && !name.contains("/tests/") && !name.starts_with("bin/")
    });
    let files = texts.into_iter().map(|(name, text)| {
        let file = parse(&name, &text);
        (name, file)
    });
    files.collect()
}

pub(super) fn parse(name: &str, text: &str) -> File {
    let mut file = syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    file.items.retain(|item| !is_item_for_tests(item));
    file
}

impl Crate {
    pub(super) fn read(folder: &str) -> Self {
        Self::of(folder, &parsed(folder))
    }

    pub(super) fn of(name: &str, files: &BTreeMap<String, File>) -> Self {
        let names = files.iter();
        let names: BTreeMap<_, _> = names
            .map(|(name, file)| (name.clone(), Names::of(file)))
            .collect();
        let root = if names.contains_key("lib.rs") {
            "lib"
        } else {
            "main"
        };
        let mut modules = BTreeMap::new();
        let mut imports = BTreeMap::new();
        for (file, names) in &names {
            let module = module_of(file, root);
            for import in &names.imports {
                // A module also re-exports what is its own: `pub(super) use of_kind`.
                if import.path != [import.name.as_str()] {
                    let name = (module.clone(), import.name.clone());
                    imports.entry(name).or_insert_with(|| import.path.clone());
                }
            }
            modules.insert(module, file.clone());
        }
        Self {
            name: name.to_owned(),
            root,
            methods: methods(&names),
            names,
            modules,
            imports,
        }
    }

    /// The path from the root of the crate. `None` for a path of another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Path> {
        let mut rest = path.to_vec();
        // More than any chain of imports.
        for _ in 0..10 {
            let first = rest.first()?;
            if ["crate", "self", "super"].contains(&first.as_str()) {
                return Some(from_the_root(module, &rest));
            }
            let below = [module, &rest[..1]].concat();
            if self.modules.contains_key(&below) {
                return Some([module, &rest].concat());
            }
            // A name that is imported here, or another crate.
            let stands_for = self.imports.get(&(module.to_vec(), first.clone()))?;
            rest = [stands_for, &rest[1..]].concat();
        }
        None
    }

    /// The file that has the item with this path, as it is named in a module.
    fn file_of(&self, module: &[String], path: &[String]) -> Option<&str> {
        let mut path = self.absolute(module, path)?;
        // More than any chain of re-exports.
        for _ in 0..10 {
            let known = (0..=path.len())
                .rev()
                .find(|end| self.modules.contains_key(&path[..*end]))?;
            let (module, rest) = path.split_at(known);
            let file = self.modules.get(module).map(String::as_str);
            let Some(item) = rest.first() else {
                return file;
            };
            let Some(stands_for) = self.imports.get(&(module.to_vec(), item.clone())) else {
                return file;
            };
            let stands_for = self.absolute(module, stands_for)?;
            path = [&stands_for[..], &rest[1..]].concat();
        }
        None
    }

    /// For each file the files that it needs.
    pub(super) fn needs(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut needs = BTreeMap::new();
        for (name, names) in &self.names {
            let mut files = BTreeSet::new();
            self.add(
                &module_of(name, self.root),
                names,
                &mut files,
                &mut BTreeSet::new(),
            );
            files.remove(name.as_str());
            needs.insert(name.as_str(), files);
        }
        needs
    }

    /// Adds the files that names in a module stand for, and those of the macros that it invokes.
    fn add<'a>(
        &'a self,
        module: &[String],
        names: &'a Names,
        files: &mut BTreeSet<&'a str>,
        macros: &mut BTreeSet<(&'a str, String)>,
    ) {
        let imports = names.imports.iter().filter(|import| !import.is_export);
        let paths = imports.map(|import| &import.path).chain(&names.paths);
        files.extend(paths.filter_map(|path| self.file_of(module, path)));
        let calls = names.calls.iter();
        let defined = calls.filter_map(|name| self.methods.get(name));
        files.extend(defined.map(String::as_str));
        for names in names.rules.values() {
            self.add(module, names, files, macros);
        }
        for path in &names.invoked {
            let Some((file, names)) = self.macro_of(module, path) else {
                continue;
            };
            files.insert(file);
            // A macro may invoke itself.
            if macros.insert((file, path[path.len() - 1].clone())) {
                self.add(module, names, files, macros);
            }
        }
    }

    /// The file of a macro of this crate, and what the body of the macro names.
    fn macro_of(&self, module: &[String], path: &[String]) -> Option<(&str, &Names)> {
        let name = path.last()?;
        let rules_of = |file: &str| {
            let (file, names) = self.names.get_key_value(file)?;
            Some((file.as_str(), names.rules.get(name)?))
        };
        let here = self.modules.get(module).and_then(|file| rules_of(file));
        let there = || self.file_of(module, path).and_then(rules_of);
        // Without an import, by its place in the text.
        let above = || self.names.keys().find_map(|file| rules_of(file));
        here.or_else(there).or_else(above)
    }
}

fn is_item_for_tests(item: &Item) -> bool {
    let attrs = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        _ => return false,
    };
    is_for_tests(attrs)
}

fn module_of(file: &str, root: &str) -> Path {
    let name = file.trim_end_matches(".rs");
    let parts = name.split('/');
    let parts = parts.filter(|part| !["mod", root].contains(part));
    parts.map(str::to_owned).collect()
}

/// A path that begins with `crate`, `self` or `super`.
fn from_the_root(module: &[String], path: &[String]) -> Path {
    let (mut at, mut rest) = (module.to_vec(), path);
    while let Some((first, others)) = rest.split_first() {
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            _ => break,
        }
        rest = others;
    }
    [&at, rest].concat()
}

fn methods(names: &BTreeMap<String, Names>) -> BTreeMap<String, String> {
    let mut by_type = BTreeMap::<_, BTreeSet<_>>::new();
    let mut by_name = BTreeMap::<_, BTreeSet<_>>::new();
    for (file, names) in names {
        let implemented = names.methods.iter().filter_map(|(of, _)| of.as_ref());
        for of in names.types.iter().chain(implemented) {
            by_type.entry(of).or_default().insert(file);
        }
        for (_, name) in &names.methods {
            by_name.entry(name).or_default().insert(file);
        }
    }
    let mut methods = BTreeMap::new();
    for (file, names) in names {
        for (of, name) in &names.methods {
            let is_split = of.as_ref().is_some_and(|of| by_type[of].len() > 1);
            if is_split
                && by_name[name].len() == 1
                && !COMMON.split_whitespace().any(|common| common == name)
            {
                methods.insert(name.clone(), file.clone());
            }
        }
    }
    methods
}
