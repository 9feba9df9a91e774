//! What the code of a file names: paths, imports, methods and macros, also inside functions and macros.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, File, ItemUse, Member, UseTree, Visibility};

/// A path, as `["crate", "engine", "line", "Line"]`.
pub(super) type Path = Vec<String>;

/// An import: the path, and the name that it gets.
pub(super) struct Import {
    pub(super) path: Path,
    pub(super) name: String,
    /// It is a re-export, which is no need of this file.
    pub(super) is_export: bool,
}

/// What code names.
#[derive(Default)]
pub(super) struct Names {
    pub(super) imports: Vec<Import>,
    pub(super) paths: Vec<Path>,
    /// Methods and associated functions that it calls.
    pub(super) calls: BTreeSet<String>,
    /// Macros that it invokes.
    pub(super) invoked: BTreeSet<Path>,
    /// Macros that it defines, each with what its body names.
    pub(super) rules: BTreeMap<String, Names>,
    /// Types that it defines.
    pub(super) types: BTreeSet<String>,
    /// Methods that it defines, each with its type. No type for those of a trait.
    pub(super) methods: BTreeSet<(Option<String>, String)>,
    /// Each single name, and of each call the receiver and the method, as `engine.run`.
    pub(super) all: BTreeSet<String>,
    /// The type of the `impl` that is read, if no trait is implemented.
    of: Option<String>,
    /// Number of modules inside the file around what is read.
    depth: usize,
}

impl Names {
    pub(super) fn of(file: &File) -> Self {
        let mut names = Self::default();
        names.visit_file(file);
        names
    }

    /// A path as it is named in the module of the file: inside a module of the file, the first `super` is the file.
    fn as_in_the_file(&self, mut path: Path) -> Path {
        let supers = path.iter().take_while(|name| *name == "super").count();
        path.drain(..supers.min(self.depth));
        path
    }

    fn path(&mut self, path: Path) {
        let path = self.as_in_the_file(path);
        if let [.., of, name] = &path[..]
            && of.starts_with(char::is_uppercase)
        {
            self.calls.insert(name.clone());
        }
        if path.len() > 1 {
            self.paths.push(path);
        }
    }

    fn import(&mut self, tree: &UseTree, is_export: bool) {
        self.visit_use_tree(tree);
        for (path, name) in leaves(tree) {
            let path = self.as_in_the_file(path);
            self.imports.push(Import {
                path,
                name,
                is_export,
            });
        }
    }

    /// Reads the inside of a macro, of which syn knows nothing.
    fn tokens(&mut self, tokens: TokenStream) {
        // `$crate` is `crate`, and `$kind` is a name.
        let trees = tokens.into_iter().filter(|tree| !is_sign(tree, '$'));
        let trees: Vec<_> = trees.collect();
        let mut rest = &trees[..];
        // The signs before a name, as `.` or `::`, and the name before them.
        let (mut signs, mut last) = (String::new(), String::new());
        while let Some((first, others)) = rest.split_first() {
            rest = others;
            match first {
                TokenTree::Ident(ident) if ident == "use" => {
                    let end = rest.iter().position(|tree| is_sign(tree, ';'));
                    let (used, others) = rest.split_at(end.unwrap_or(rest.len()));
                    if let Ok(tree) = syn::parse2(used.iter().cloned().collect()) {
                        self.import(&tree, false);
                    }
                    rest = others;
                }
                TokenTree::Ident(ident) => {
                    let mut path = vec![ident.to_string()];
                    while let [a, b, TokenTree::Ident(name), others @ ..] = rest
                        && is_sign(a, ':')
                        && is_sign(b, ':')
                    {
                        path.push(name.to_string());
                        rest = others;
                    }
                    let name = path[path.len() - 1].clone();
                    self.all.extend(path.iter().cloned());
                    if signs == "." {
                        self.behind_a_dot(&last, &name, rest);
                    } else if !signs.ends_with("::") {
                        self.in_tokens(path, rest);
                    }
                    last = name;
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                _ => {}
            }
            match first {
                TokenTree::Punct(sign) => signs.push(sign.as_char()),
                _ => signs.clear(),
            }
        }
    }

    fn in_tokens(&mut self, path: Path, rest: &[TokenTree]) {
        match rest {
            [sign, TokenTree::Group(_), ..] if is_sign(sign, '!') => {
                self.invoked.insert(path);
            }
            _ => self.path(path),
        }
    }

    fn behind_a_dot(&mut self, receiver: &str, name: &str, rest: &[TokenTree]) {
        let is_call = match rest {
            [TokenTree::Group(group), ..] => group.delimiter() == Delimiter::Parenthesis,
            [a, b, ..] => is_sign(a, ':') && is_sign(b, ':'),
            _ => false,
        };
        if is_call {
            self.calls.insert(name.to_owned());
            self.all.insert(format!("{receiver}.{name}"));
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_ident(&mut self, ident: &'ast proc_macro2::Ident) {
        self.all.insert(ident.to_string());
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_export = !matches!(item.vis, Visibility::Inherited);
        self.import(&item.tree, is_export);
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter();
            self.path(names.map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.depth += 1;
        visit::visit_item_mod(self, item);
        self.depth -= 1;
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.types.insert(item.ident.to_string());
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.types.insert(item.ident.to_string());
        visit::visit_item_enum(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.of = match (&item.trait_, &*item.self_ty) {
            (None, syn::Type::Path(of)) => of.path.segments.last().map(|s| s.ident.to_string()),
            _ => None,
        };
        visit::visit_item_impl(self, item);
        self.of = None;
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            let name = function.sig.ident.to_string();
            self.methods.insert((self.of.clone(), name));
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_impl_item_const(&mut self, constant: &'ast syn::ImplItemConst) {
        let name = constant.ident.to_string();
        self.methods.insert((self.of.clone(), name));
        visit::visit_impl_item_const(self, constant);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.methods.insert((None, function.sig.ident.to_string()));
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.calls.insert(call.method.to_string());
        let receiver = match &*call.receiver {
            Expr::Field(field) => match &field.member {
                Member::Named(name) => Some(name),
                Member::Unnamed(_) => None,
            },
            Expr::Path(path) => path.path.get_ident(),
            _ => None,
        };
        if let Some(receiver) = receiver {
            self.all.insert(format!("{receiver}.{}", call.method));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let Some(name) = &item.ident else {
            return self.visit_macro(&item.mac);
        };
        let mut names = Self::default();
        names.tokens(item.mac.tokens.clone());
        self.all.append(&mut names.all);
        self.rules.insert(name.to_string(), names);
    }

    fn visit_macro(&mut self, invoked: &'ast syn::Macro) {
        let path = invoked.path.segments.iter();
        self.invoked
            .insert(path.map(|s| s.ident.to_string()).collect());
        self.tokens(invoked.tokens.clone());
    }
}

fn is_sign(tree: &TokenTree, sign: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == sign)
}

pub(super) fn is_for_tests(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let list = attr.meta.require_list().ok();
        let tokens = list.filter(|list| list.path.is_ident("cfg"));
        tokens.is_some_and(|list| list.tokens.to_string() == "test")
    })
}

/// The paths in an import, each with the name that it gets.
fn leaves(tree: &UseTree) -> Vec<(Path, String)> {
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let below = leaves(&path.tree).into_iter().map(|(rest, name)| {
                let name = if name == "self" { first.clone() } else { name };
                ([vec![first.clone()], rest].concat(), name)
            });
            below.collect()
        }
        UseTree::Name(name) if name.ident == "self" => vec![(Vec::new(), "self".to_owned())],
        UseTree::Name(name) => vec![(vec![name.ident.to_string()], name.ident.to_string())],
        UseTree::Rename(name) => vec![(vec![name.ident.to_string()], name.rename.to_string())],
        UseTree::Glob(_) => vec![(Vec::new(), "*".to_owned())],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}
