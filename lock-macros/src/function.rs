//! The annotated function, with its body as opaque as it can be.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, Error, Expr, FnArg, GenericArgument, Ident, Meta, Pat, PatIdent,
    PathArguments, Result, ReturnType, Signature, Stmt, Token, Type, TypeParamBound, Visibility,
    braced,
};

use crate::stream::stream;

/// A function and the code that runs under the lock.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    /// Attributes at the start of the body, such as `#![allow(..)]`.
    pub(crate) inner_attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    /// The parameters that were marked with `#[key]`, without the marks.
    pub(crate) key_parts: Vec<Ident>,
    /// Mere tokens, so that half-typed code reaches the compiler and the editor.
    pub(crate) body: Group,
    /// Of a function that is not `async` any more: the body, taken apart.
    pub(crate) rewritten: Option<Rewritten>,
    /// A function that was never `async`: it waits on the thread that calls it.
    pub(crate) is_blocking: bool,
}

/// The body of a function that another attribute has rewritten, with the future inside that was the body before.
pub(crate) struct Rewritten {
    pub(crate) statements: Vec<Stmt>,
    /// From the start of the future, what binds the parameters again: the key may use these names too.
    pub(crate) prologue: Vec<Stmt>,
    /// What the future gives; `None` is the unit type of a missing `->`.
    output: Option<Type>,
}

impl Function {
    /// What the caller of the function gets from its future. `None` is the unit type of a missing `->`.
    pub(crate) fn output(&self) -> Option<&Type> {
        match (&self.rewritten, &self.signature.output) {
            (Some(rewritten), _) => rewritten.output.as_ref(),
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
        let mut signature: Signature = input
            .parse()
            .map_err(|_| Error::new(start, "`#[distributed_lock]` goes on a function"))?;
        if input.peek(Token![;]) {
            return Err(Error::new(
                signature.ident.span(),
                "`#[distributed_lock]` needs a body to run under the lock: put it on the method of the `impl`",
            ));
        }
        let key_parts = take_key_parts(&mut signature)?;
        let (inner_attributes, body) = split_body(input)?;
        let rewritten = match signature.asyncness {
            Some(_) => None,
            None => Rewritten::of(&signature, &body),
        };
        let is_blocking = signature.asyncness.is_none() && rewritten.is_none();
        if is_blocking {
            refuse_future(&signature)?;
        }
        Ok(Self {
            attributes,
            inner_attributes,
            visibility,
            signature,
            key_parts,
            body,
            rewritten,
            is_blocking,
        })
    }
}

/// Takes the `#[key]` marks off the parameters, which the compiler does not know.
fn take_key_parts(signature: &mut Signature) -> Result<Vec<Ident>> {
    let mut parts = Vec::new();
    for input in &mut signature.inputs {
        let attributes = match input {
            FnArg::Receiver(receiver) => &mut receiver.attrs,
            FnArg::Typed(parameter) => &mut parameter.attrs,
        };
        let mut marks = attributes.extract_if(.., |attribute| attribute.path().is_ident("key"));
        let Some(mark) = marks.next() else { continue };
        if let Some(again) = marks.next() {
            return Err(Error::new_spanned(again, "`#[key]` is given twice"));
        }
        drop(marks);
        if !matches!(mark.meta, Meta::Path(_)) {
            return Err(Error::new_spanned(
                mark,
                "`#[key]` takes no arguments: the whole parameter is a part of the key",
            ));
        }
        let name = match input {
            FnArg::Typed(parameter) => match &*parameter.pat {
                Pat::Ident(name) => Some(&name.ident),
                _ => None,
            },
            FnArg::Receiver(_) => None,
        };
        let name = name.ok_or_else(|| {
            Error::new_spanned(
                mark,
                "`#[key]` goes on a parameter with a plain name: for others write `key = \"..{self.id}\"`",
            )
        })?;
        parts.push(name.clone());
    }
    Ok(parts)
}

/// The item as it was, without the `#[key]` marks, for the case that it is not taken apart.
pub(crate) fn without_key_marks(item: TokenStream) -> TokenStream {
    let is_mark = |token: &TokenTree| {
        matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket
            && group.stream().into_iter().next().is_some_and(|word| word.to_string() == "key"))
    };
    let unmarked = |list: TokenStream| {
        let mut tokens = list.into_iter().peekable();
        std::iter::from_fn(move || {
            loop {
                let token = tokens.next()?;
                let hash = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
                if !hash || tokens.next_if(is_mark).is_none() {
                    return Some(token);
                }
            }
        })
        .collect()
    };
    let strip = |token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
            let mut stripped = Group::new(Delimiter::Parenthesis, unmarked(group.stream()));
            stripped.set_span(group.span());
            TokenTree::Group(stripped)
        }
        other => other,
    };
    item.into_iter().map(strip).collect()
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

impl Rewritten {
    /// Recognises the two functions without `async` that can wait for a lock.
    fn of(signature: &Signature, body: &Group) -> Option<Self> {
        let Block {
            stmts: mut statements,
            ..
        } = syn::parse2(body.to_token_stream()).ok()?;
        let written = match &signature.output {
            ReturnType::Type(_, output) => Some(&**output),
            ReturnType::Default => None,
        };
        let output = if first_future(&mut statements).is_some() {
            written.cloned()
        } else {
            last_future(&mut statements)?;
            Some(boxed_output(written?)?)
        };
        let mut rewritten = Self {
            statements,
            prologue: Vec::new(),
            output,
        };
        if let Some(Expr::Async(future)) = rewritten.future() {
            let statements = &mut future.block.stmts;
            let written = statements
                .iter()
                .position(|statement| !is_preamble(statement));
            // `let __self = self;` stays: the key is written with `self`, which it would take away.
            rewritten.prologue = statements
                .extract_if(..written.unwrap_or(statements.len()), |statement| {
                    rebinds(statement)
                })
                .collect();
        }
        Some(rewritten)
    }

    /// The `async` block that was the body of the function.
    pub(crate) fn future(&mut self) -> Option<&mut Expr> {
        // The order of the two tests is that of the borrow checker: what is tried last may keep the borrow.
        if first_future(&mut self.statements).is_some() {
            return first_future(&mut self.statements);
        }
        last_future(&mut self.statements)
    }
}

/// What `#[async_trait]` puts in front of the body that the user wrote.
fn is_preamble(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(Expr::If(_), _) => true,
        Stmt::Local(local) => {
            rebinds(statement) || matches!(&local.pat, Pat::Ident(name) if name.ident == "__self")
        }
        _ => false,
    }
}

/// `let id = id;` or `let (x, y) = { let __arg1 = __arg1; __arg1 };`, as `#[async_trait]` writes them.
fn rebinds(statement: &Stmt) -> bool {
    let Stmt::Local(local) = statement else {
        return false;
    };
    let Some(value) = local.init.as_ref().and_then(|init| last_name(&init.expr)) else {
        return false;
    };
    match &local.pat {
        Pat::Ident(name) if name.ident == *value => true,
        _ => value.to_string().starts_with("__arg"),
    }
}

/// The name that an expression is, or that a block ends in.
fn last_name(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Block(block) => match block.block.stmts.last()? {
            Stmt::Expr(last, None) => last_name(last),
            _ => None,
        },
        _ => None,
    }
}

/// What `#[tokio::test]` and `#[tokio::main]` make: a body that begins with `let body = async { .. };`.
fn first_future(statements: &mut [Stmt]) -> Option<&mut Expr> {
    let Stmt::Local(local) = statements.first_mut()? else {
        return None;
    };
    let is_body = matches!(&local.pat, Pat::Ident(name) if name.ident == "body");
    let future = &mut local.init.as_mut()?.expr;
    (is_body && matches!(**future, Expr::Async(_))).then_some(future)
}

/// What `#[async_trait]` makes: a body that ends in `Box::pin(async move { .. })`.
fn last_future(statements: &mut [Stmt]) -> Option<&mut Expr> {
    let Stmt::Expr(Expr::Call(call), None) = statements.last_mut()? else {
        return None;
    };
    let Expr::Path(function) = &*call.func else {
        return None;
    };
    let segments = function.path.segments.iter().rev();
    let mut names = segments.map(|segment| &segment.ident);
    if !(names.next()? == "pin" && names.next()? == "Box" && call.args.len() == 1) {
        return None;
    }
    let future = call.args.first_mut()?;
    matches!(future, Expr::Async(_)).then_some(future)
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

/// Refuses a function without `async` whose work would go on after its return, at the token that says so.
fn refuse_future(signature: &Signature) -> Result<()> {
    if let Some(keyword) = signature.constness {
        return Err(Error::new(
            keyword.span,
            "a `const fn` cannot wait for a lock: `#[distributed_lock]` goes on an `async fn`",
        ));
    }
    let ReturnType::Type(_, output) = &signature.output else {
        return Ok(());
    };
    if let Some(stream) = stream(output) {
        return Err(stream);
    }
    let of = |name| generic_argument(output, name).is_some();
    let why = if let Type::ImplTrait(output) = &**output
        && future_output(output.bounds.iter()).is_some()
    {
        "`#[distributed_lock]` goes on an `async fn`: write `async fn` instead of `impl Future`"
    } else if boxed_output(output).is_some() || of("BoxFuture") || of("LocalBoxFuture") {
        "`#[distributed_lock]` cannot see the body of this boxed future: end the function in `Box::pin(async move { .. })`"
    } else {
        return Ok(());
    };
    Err(Error::new_spanned(output, why))
}

/// The names that the parameters of a function bind.
pub(crate) struct Bindings {
    names: Vec<String>,
    /// A pattern made by a macro may bind anything.
    unknown: bool,
}

impl Bindings {
    pub(crate) fn of(function: &Function) -> Self {
        let mut bindings = Self {
            names: Vec::new(),
            unknown: false,
        };
        for input in &function.signature.inputs {
            match input {
                FnArg::Receiver(_) => bindings.names.push("self".into()),
                FnArg::Typed(parameter) => bindings.visit_pat(&parameter.pat),
            }
        }
        for statement in function
            .rewritten
            .iter()
            .flat_map(|rewritten| &rewritten.prologue)
        {
            if let Stmt::Local(local) = statement {
                bindings.visit_pat(&local.pat);
            }
        }
        bindings
    }

    /// Whether the name (without `r#`) stands for what the caller passed, and not for a constant of the program.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.unknown || self.names.iter().any(|bound| bound == name)
    }

    /// Whether one of the names stands anywhere in these tokens.
    pub(crate) fn are_in(&self, tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Group(group) => self.are_in(group.stream()),
            TokenTree::Ident(name) => self.contains(&name.unraw().to_string()),
            // A format string captures.
            TokenTree::Literal(literal) => literal.to_string().contains('{'),
            TokenTree::Punct(_) => false,
        })
    }
}

impl<'ast> Visit<'ast> for Bindings {
    fn visit_pat(&mut self, pattern: &'ast Pat) {
        self.unknown |= matches!(pattern, Pat::Macro(_));
        visit::visit_pat(self, pattern);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        self.names.push(pattern.ident.unraw().to_string());
        visit::visit_pat_ident(self, pattern);
    }
}
