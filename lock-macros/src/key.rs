//! Keys: from what is written to the code that makes them.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, LitStr, Result, Token};

use crate::function::Bindings;
use crate::parse::{WrittenKey, ungrouped};
use crate::site::{located_at, site};
use crate::template::{Piece, Template, counts};

/// Where a key comes from.
pub(crate) enum Key {
    /// The literal is the key.
    Literal(LitStr),
    /// The arguments of `format_args!`, each value wrapped for escaping.
    Format(TokenStream),
    /// A value that implements `AsRef<str>`.
    Expr(Expr),
    /// The path of the function.
    Function,
}

/// The key or the keys of a call.
pub(crate) enum Keys {
    /// A key, followed by the parameters that are marked with `#[key]`.
    One(Key, Vec<Ident>),
    Many(Vec<Key>),
    /// An iterator of values that implement `AsRef<str>`.
    Made(Expr),
}

/// What all keys of a function have in common.
#[derive(Clone, Copy)]
pub(crate) struct Made<'a> {
    pub(crate) escape: bool,
    /// The name of the function.
    pub(crate) function: &'a str,
}

impl Key {
    /// Makes sense of a key for a function whose parameters bind these names.
    pub(crate) fn new(written: WrittenKey, bindings: &Bindings) -> Result<Self> {
        let (literal, rest) = match written {
            WrittenKey::Expr(expr) => return Ok(Self::Expr(expr)),
            WrittenKey::Literal(literal) => (literal, TokenStream::new()),
            WrittenKey::Format(literal, rest) => (literal, rest),
        };
        let template = Template::new(&literal.value());
        if let Some(problem) = template.problem() {
            return Err(Error::new(literal.span(), problem));
        }
        if let Some(text) = template.verbatim().filter(|_| rest.is_empty()) {
            return Ok(Self::Literal(LitStr::new(text, literal.span())));
        }
        if template.malformed {
            // The very token of the user goes into `format_args!`: the compiler then points inside it.
            return Ok(Self::Format(literal.into_token_stream()));
        }
        let arguments = Punctuated::<FormatArgument, Token![,]>::parse_terminated.parse2(rest)?;
        let mut call = FormatCall::new(&literal, arguments, bindings);
        for piece in &template.pieces {
            call.add(piece)?;
        }
        Ok(Self::Format(call.finish()))
    }

    /// An expression of the key, where nothing is appended to it.
    fn alone(&self, made: Made<'_>) -> TokenStream {
        match self {
            Self::Literal(literal) => literal.to_token_stream(),
            Self::Expr(expr) => {
                let reference = quote_spanned!(located_at(expr)=> &(#expr));
                quote_spanned!(located_at(expr)=> __lock_core::KeyText::to_key(#reference))
            }
            Self::Format(_) | Self::Function => self.with(&[], made),
        }
    }

    /// An expression of the key with the values of `parts` appended.
    fn with(&self, parts: &[Ident], made: Made<'_>) -> TokenStream {
        let Made { escape, function } = made;
        let start = match self {
            Self::Literal(text) => quote_spanned!(site()=> key.text(#text);),
            Self::Format(arguments) => {
                quote_spanned!(site()=> key.write(__lock_core::format_args!(#arguments));)
            }
            Self::Expr(expr) => {
                let text = self.alone(made);
                quote_spanned!(located_at(expr)=> key.text(&#text);)
            }
            Self::Function => {
                quote_spanned!(site()=> key.text(__lock_core::concat!(__lock_core::module_path!(), "::", #function));)
            }
        };
        let parts = parts
            .iter()
            .map(|part| quote_spanned!(site().located_at(part.span())=> key.part(&__lock_core::KeyPart::in_key(&#part, &key));));
        quote_spanned! {site()=>
            {
                let key = __lock_core::Key::new(#escape);
                #start
                #(#parts)*
                key.finish()
            }
        }
    }
}

impl Keys {
    /// An expression of a `&str`, of a `String`, or of a `Vec<String>` where there are several.
    pub(crate) fn code(&self, made: Made<'_>) -> TokenStream {
        match self {
            Self::One(key, parts) if parts.is_empty() => key.alone(made),
            Self::One(key, parts) => key.with(parts, made),
            Self::Many(keys) => {
                let keys = keys.iter().map(|key| match key {
                    Key::Literal(text) => {
                        quote_spanned!(site()=> __lock_core::KeyText::to_key(#text))
                    }
                    other => other.alone(made),
                });
                quote_spanned!(site()=> __lock_core::vec![#(#keys),*])
            }
            Self::Made(expr) => {
                quote_spanned!(located_at(expr)=> __lock_core::listed(#expr))
            }
        }
    }
}

/// `order.id` or `id = order.id`.
struct FormatArgument {
    name: Option<Ident>,
    value: Expr,
}

impl Parse for FormatArgument {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let ahead = input.fork();
        let named = ahead.call(Ident::parse_any).is_ok()
            && ahead.peek(Token![=])
            && !ahead.peek(Token![==])
            && !ahead.peek(Token![=>]);
        let name = if named {
            let name = input.call(Ident::parse_any)?;
            input.parse::<Token![=]>()?;
            Some(name)
        } else {
            None
        };
        Ok(Self {
            name,
            value: input.parse()?,
        })
    }
}

/// The arguments of `format_args!` in the making.
///
/// The literal goes there as the user wrote it, so that messages point inside it, unless it holds more than Rust's own
/// placeholders do: fields and method calls become named arguments.
struct FormatCall<'a> {
    literal: &'a LitStr,
    bindings: &'a Bindings,
    arguments: Vec<(FormatArgument, Use)>,
    rewritten: String,
    is_rewritten: bool,
    /// A placeholder asks for another form than `Display`, such as `{id:?}`.
    in_other_forms: bool,
    /// The next argument that `{}` takes.
    next: usize,
}

/// What an argument is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Escaped, if escaping is on.
    Value,
    /// A constant of the program: as much text of the key as the literal itself.
    Text,
    /// A width or a precision, which `format_args!` wants to be a plain `usize`.
    Count,
}

impl<'a> FormatCall<'a> {
    fn new(
        literal: &'a LitStr,
        arguments: Punctuated<FormatArgument, Token![,]>,
        bindings: &'a Bindings,
    ) -> Self {
        let arguments = arguments.into_iter().map(|argument| {
            let used = bindings.usage(&argument.value);
            (argument, used)
        });
        Self {
            literal,
            bindings,
            arguments: arguments.collect(),
            rewritten: String::new(),
            is_rewritten: false,
            in_other_forms: false,
            next: 0,
        }
    }

    fn add(&mut self, piece: &Piece) -> Result<()> {
        let (argument, spec) = match piece {
            Piece::Text(text) => {
                let escaped = text.replace('{', "{{").replace('}', "}}");
                self.rewritten.push_str(&escaped);
                return Ok(());
            }
            Piece::Placeholder { argument, spec } => (argument.trim(), spec),
        };
        self.in_other_forms |= spec.ends_with(['?', 'x', 'X', 'o', 'b', 'e', 'E', 'p']);
        let (counts, by_order) = counts(spec);
        if by_order {
            self.take_next(Use::Count);
        }
        for count in counts {
            self.count(count);
        }
        let argument = self.argument(argument)?;
        self.rewritten.push('{');
        self.rewritten.push_str(&argument);
        self.rewritten.push_str(spec);
        self.rewritten.push('}');
        Ok(())
    }

    /// Sees to the argument of one placeholder. Returns how `format_args!` is to know it.
    fn argument(&mut self, written: &str) -> Result<String> {
        if written.is_empty() {
            self.take_next(Use::Value);
        } else if written.parse::<usize>().is_err() && self.explicit(written).is_none() {
            if syn::parse_str::<Ident>(written).is_ok() {
                if self.bindings.contains(written) {
                    let name = Ident::new(written, self.literal.span());
                    let value = Expr::Verbatim(name.to_token_stream());
                    self.push(name, value, Use::Value);
                }
                // What is no parameter is a constant, or a mistake that the compiler finds inside the literal.
                return Ok(written.into());
            }
            let value = self.expression(written)?;
            let used = self.bindings.usage(&value);
            let name = format!("__part{}", self.arguments.len());
            self.push(Ident::new(&name, self.literal.span()), value, used);
            self.is_rewritten = true;
            return Ok(name);
        }
        Ok(written.into())
    }

    /// A field, a method call, or a keyword: what Rust's own placeholders do not take.
    fn expression(&self, written: &str) -> Result<Expr> {
        let span = self.literal.span();
        let raw = format!("r#{written}");
        let expr = LitStr::new(written, span).parse::<Expr>();
        // A parameter `r#type` is `{type}` in a format string.
        let expr = expr.or_else(|_| LitStr::new(&raw, span).parse());
        expr.ok().filter(is_path).ok_or_else(|| {
            Error::new(
                span,
                format!("`{{{written}}}` is no name, field or method call: write `key = (\"..{{}}\", expression)`"),
            )
        })
    }

    fn take_next(&mut self, used: Use) {
        if let Some((_, so_far)) = self.arguments.get_mut(self.next)
            && used == Use::Count
        {
            *so_far = used;
        }
        self.next += 1;
    }

    /// Notes that an argument is a width or precision.
    fn count(&mut self, written: &str) {
        let place = written.parse().ok().or_else(|| self.explicit(written));
        match place {
            Some(place) => {
                if let Some((_, used)) = self.arguments.get_mut(place) {
                    *used = Use::Count;
                }
            }
            // Captured as a count, it cannot be wrapped as a value in another place: an explicit argument says so.
            None if syn::parse_str::<Ident>(written).is_ok() => {
                let name = Ident::new(written, self.literal.span());
                let value = Expr::Verbatim(name.to_token_stream());
                self.push(name, value, Use::Count);
            }
            None => {}
        }
    }

    fn explicit(&self, name: &str) -> Option<usize> {
        let named = |(argument, _): &(FormatArgument, Use)| {
            argument
                .name
                .as_ref()
                .is_some_and(|given| given.unraw() == name)
        };
        self.arguments.iter().position(named)
    }

    fn push(&mut self, name: Ident, value: Expr, used: Use) {
        let name = Some(name);
        self.arguments.push((FormatArgument { name, value }, used));
    }

    fn finish(self) -> TokenStream {
        let literal = if self.is_rewritten {
            LitStr::new(&self.rewritten, self.literal.span())
        } else {
            self.literal.clone()
        };
        let arguments = self.arguments.iter().map(|(argument, used)| {
            let FormatArgument { name, value } = argument;
            let name = name.iter();
            let span = located_at(value);
            match used {
                Use::Value => {
                    let reference = quote_spanned!(span=> &(#value));
                    // The trait has words of its own for a value that cannot be shown.
                    if self.in_other_forms {
                        quote_spanned!(span=> #(#name =)* __lock_core::Key::value(&key, #reference))
                    } else {
                        quote_spanned!(span=> #(#name =)* __lock_core::KeyPart::in_key(#reference, &key))
                    }
                }
                Use::Text | Use::Count => quote_spanned!(span=> #(#name =)* #value),
            }
        });
        quote_spanned!(site()=> #literal #(, #arguments)*)
    }
}

/// A name, a field, a method call, or a chain of these.
fn is_path(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) => true,
        Expr::Field(field) => is_path(&field.base),
        Expr::MethodCall(call) => is_path(&call.receiver),
        _ => false,
    }
}

impl Bindings {
    fn usage(&self, value: &Expr) -> Use {
        match ungrouped(value) {
            Expr::Path(path) => match path.path.get_ident() {
                Some(name) if self.contains(&name.unraw().to_string()) => Use::Value,
                _ => Use::Text,
            },
            _ => Use::Value,
        }
    }
}
