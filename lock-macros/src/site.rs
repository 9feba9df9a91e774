//! Where the names of the generated code live.

use proc_macro2::Span;
use quote::ToTokens;

/// Where our own names live: no local of ours meets a parameter of the same name.
pub(crate) fn site() -> Span {
    Span::mixed_site()
}

/// Our names at the place of the user's tokens: messages point there, names still do not clash.
pub(crate) fn located_at(tokens: &impl ToTokens) -> Span {
    let first = tokens.to_token_stream().into_iter().next();
    first.map_or_else(site, |first| site().located_at(first.span()))
}
