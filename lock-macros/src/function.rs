//! The annotated function, with its body as opaque as it can be.

use proc_macro2::{Delimiter, Group};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Block, Error, Expr, ExprAsync, ExprCall, GenericArgument, PathArguments, Result,
    ReturnType, Signature, Stmt, Token, Type, TypeParamBound, Visibility, braced,
};

/// A function and the code that runs under the lock.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    /// Attributes at the start of the body, such as `#![allow(..)]`.
    pub(crate) inner_attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    /// Mere tokens, so that half-typed code reaches the compiler and the editor.
    pub(crate) body: Group,
    /// Of a function that is not `async`: the body, taken apart.
    pub(crate) boxed: Option<Box<BoxedFuture>>,
}

/// What `#[async_trait]` makes of an `async fn`: a body that ends in `Box::pin(async move { .. })`.
pub(crate) struct BoxedFuture {
    pub(crate) before: Vec<Stmt>,
    /// The call, without its argument.
    pub(crate) pin: ExprCall,
    pub(crate) block: ExprAsync,
    pub(crate) output: Type,
}

impl Function {
    /// What the caller of the function gets from its future. `None` is the unit type of a missing `->`.
    pub(crate) fn output(&self) -> Option<&Type> {
        match (&self.boxed, &self.signature.output) {
            (Some(boxed), _) => Some(&boxed.output),
            (None, ReturnType::Type(_, output)) => Some(output),
            (None, ReturnType::Default) => None,
        }
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let start = input.span();
        let signature: Signature = input
            .parse()
            .map_err(|_| Error::new(start, "`#[distributed_lock]` goes on an `async fn`"))?;
        if input.peek(Token![;]) {
            return Err(Error::new(
                signature.ident.span(),
                "`#[distributed_lock]` needs a body to run under the lock: put it on the method of the `impl`",
            ));
        }
        let (inner_attributes, body) = split_body(input)?;
        let boxed = match signature.asyncness {
            Some(_) => None,
            None => Some(Box::new(
                boxed(&signature, &body).ok_or_else(|| not_async(&signature))?,
            )),
        };
        Ok(Self {
            attributes,
            inner_attributes,
            visibility,
            signature,
            body,
            boxed,
        })
    }
}

/// Takes the inner attributes off the body, because they may not stand in an `async` block.
fn split_body(input: ParseStream<'_>) -> Result<(Vec<Attribute>, Group)> {
    let inside;
    let brace = braced!(inside in input);
    let attributes = inside.call(Attribute::parse_inner)?;
    let mut statements = Group::new(Delimiter::Brace, inside.parse()?);
    // Messages about the body as a whole point at the braces that the user wrote.
    statements.set_span(brace.span.join());
    Ok((attributes, statements))
}

/// Recognises the one function without `async` that can wait for a lock.
fn boxed(signature: &Signature, body: &Group) -> Option<BoxedFuture> {
    let ReturnType::Type(_, output) = &signature.output else {
        return None;
    };
    let output = boxed_output(output)?;
    let Block {
        stmts: mut before, ..
    } = syn::parse2(body.to_token_stream()).ok()?;
    let Stmt::Expr(Expr::Call(mut pin), None) = before.pop()? else {
        return None;
    };
    let Expr::Path(function) = &*pin.func else {
        return None;
    };
    let mut names = function
        .path
        .segments
        .iter()
        .rev()
        .map(|segment| &segment.ident);
    if !(names.next()? == "pin" && names.next()? == "Box" && pin.args.len() == 1) {
        return None;
    }
    let Expr::Async(block) = pin.args.pop()?.into_value() else {
        return None;
    };
    Some(BoxedFuture {
        before,
        pin,
        block,
        output,
    })
}

/// `T` in `Pin<Box<dyn Future<Output = T> + ..>>`.
fn boxed_output(output: &Type) -> Option<Type> {
    let boxed = generic_argument(output, "Pin")?;
    let Type::TraitObject(object) = generic_argument(boxed, "Box")? else {
        return None;
    };
    future_output(object.bounds.iter())
}

/// The one type between the angle brackets of `name<..>`.
fn generic_argument<'a>(of: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = of else { return None };
    let last = path
        .path
        .segments
        .last()
        .filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(argument) => Some(argument),
        _ => None,
    })
}

/// `T` in `Future<Output = T>`, where one of the bounds is that.
fn future_output<'a>(bounds: impl Iterator<Item = &'a TypeParamBound>) -> Option<Type> {
    for bound in bounds {
        if let TypeParamBound::Trait(bound) = bound
            && let Some(last) = bound
                .path
                .segments
                .last()
                .filter(|last| last.ident == "Future")
            && let PathArguments::AngleBracketed(arguments) = &last.arguments
        {
            return arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::AssocType(output) if output.ident == "Output" => {
                    Some(output.ty.clone())
                }
                _ => None,
            });
        }
    }
    None
}

/// Why this function cannot wait for a lock, at the token that says so.
fn not_async(signature: &Signature) -> Error {
    if let Some(keyword) = signature.constness {
        return Error::new(
            keyword.span,
            "a `const fn` cannot wait for a lock: `#[distributed_lock]` goes on an `async fn`",
        );
    }
    if let ReturnType::Type(_, output) = &signature.output {
        if let Type::ImplTrait(output) = &**output
            && future_output(output.bounds.iter()).is_some()
        {
            return Error::new_spanned(
                output,
                "`#[distributed_lock]` goes on an `async fn`: write `async fn` instead of `impl Future`",
            );
        }
        if boxed_output(output).is_some() {
            return Error::new_spanned(
                output,
                "`#[distributed_lock]` cannot see the body of this boxed future: end the function in `Box::pin(async move { .. })`",
            );
        }
    }
    Error::new(
        signature.fn_token.span,
        "`#[distributed_lock]` goes on an `async fn` (above an attribute that rewrites it, such as `#[tokio::main]`)",
    )
}
