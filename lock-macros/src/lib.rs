//! The `#[distributed_lock]` attribute of `lock-core`.
//!
//! Depend on `lock-core`, which exports the attribute, and not on this crate: the two are one library and match in
//! their exact versions.
//!
//! How the attribute works: `parse` reads the arguments, `function` reads the item, `validate` turns both into a plan or into
//! errors, and `expand` writes the code. The run-time part of that code is in `lock-core`. The documentation of the arguments is in
//! the folder `docs`.

mod duration;
mod expand;
mod function;
mod key;
mod output;
mod parse;
mod plan;
mod site;
mod stream;
mod template;
mod validate;

use proc_macro::TokenStream;

// `tests/src/attribute.rs` tests the examples in these files. Here they would need a dev-dependency on lock-core, and since a crate of
// macros is built for the compiler, cargo would compile lock-core and tokio a second time.
#[cfg_attr(
    not(doctest),
    doc = include_str!("../docs/attribute.md"),
    doc = include_str!("../docs/which_lock.md"),
    doc = include_str!("../docs/how_long.md"),
    doc = include_str!("../docs/outcome.md"),
    doc = include_str!("../docs/other_libraries.md")
)]
#[proc_macro_attribute]
pub fn distributed_lock(arguments: TokenStream, item: TokenStream) -> TokenStream {
    match expand::expand(arguments.into(), item.clone().into()) {
        Ok(expanded) => expanded.into(),
        Err(error) => {
            // Keep the function, so that its callers compile without further errors and editors keep working.
            let mut tokens = TokenStream::from(error.into_compile_error());
            tokens.extend(TokenStream::from(function::without_key_marks(item.into())));
            tokens
        }
    }
}
