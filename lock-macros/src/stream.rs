//! Functions that return a stream.

use syn::visit::{self, Visit};
use syn::{Error, Path, TraitBound, Type, TypePath};

/// Why a stream cannot be returned: its items are made when the lock is free again.
pub(crate) fn stream(output: &Type) -> Option<Error> {
    struct Find(Option<Error>);
    impl<'ast> Visit<'ast> for Find {
        fn visit_trait_bound(&mut self, bound: &'ast TraitBound) {
            self.note(&bound.path, &["Stream"]);
            visit::visit_trait_bound(self, bound);
        }

        fn visit_type_path(&mut self, path: &'ast TypePath) {
            self.note(&path.path, &["BoxStream", "LocalBoxStream"]);
            visit::visit_type_path(self, path);
        }
    }
    impl Find {
        fn note(&mut self, path: &Path, names: &[&str]) {
            if path
                .segments
                .last()
                .is_some_and(|last| names.iter().any(|name| last.ident == name))
            {
                self.0.get_or_insert_with(|| {
                    Error::new_spanned(
                        path,
                        "a stream makes its items after the function has returned, without the lock: take the lock where the stream is read",
                    )
                });
            }
        }
    }
    let mut find = Find(None);
    find.visit_type(output);
    find.0
}
