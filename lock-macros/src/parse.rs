//! The arguments as they are written: their shape, not yet their sense.

use proc_macro2::{Group, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Error, Expr, Ident, LitBool, LitStr, Path, Result, Token, bracketed, parenthesized, token,
};

/// Every argument, in the order in which the docs explain them.
const NAMES: &str = "key, keys, escape, reentrant, owner, mode, permits, max, ttl, wait, unavailable_after, renew, max_hold, at_least, when, on_busy, on_lost, map_err, client, guard, name, label and crate";

/// What stands between the parentheses of `#[distributed_lock(..)]`.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) key: Option<WrittenKey>,
    pub(crate) keys: Option<WrittenKeys>,
    pub(crate) escape: Option<bool>,
    pub(crate) reentrant: Option<bool>,
    pub(crate) owner: Option<Expr>,
    pub(crate) mode: Option<Mode>,
    pub(crate) permits: Option<Expr>,
    pub(crate) max: Option<Expr>,
    pub(crate) ttl: Option<Expr>,
    pub(crate) wait: Option<Expr>,
    pub(crate) unavailable_after: Option<Expr>,
    pub(crate) renew: Option<bool>,
    pub(crate) max_hold: Option<Expr>,
    pub(crate) at_least: Option<Expr>,
    pub(crate) when: Option<Expr>,
    pub(crate) on_busy: Option<OnBusy>,
    pub(crate) on_lost: Option<OnLost>,
    pub(crate) map_err: Option<Expr>,
    pub(crate) client: Option<Expr>,
    pub(crate) guard: Option<Ident>,
    pub(crate) name: Option<LitStr>,
    pub(crate) label: Option<LitStr>,
    pub(crate) krate: Option<Path>,
    /// The names in the order in which they were written.
    order: Vec<Ident>,
}

/// The three ways to write a key.
pub(crate) enum WrittenKey {
    /// `key = "order:{id}"`
    Literal(LitStr),
    /// `key = ("order:{}", order.id)`: the literal, and all that follows its comma.
    Format(LitStr, TokenStream),
    /// `key = order.lock_name()`
    Expr(Expr),
}

/// The two ways to write several keys.
pub(crate) enum WrittenKeys {
    /// `keys = ["account:{from}", "account:{to}"]`
    List(token::Bracket, Vec<WrittenKey>),
    /// `keys = accounts.iter().map(|id| format!("account:{id}"))`
    Expr(Expr),
}

/// The side of a read-write lock.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// What the caller gets when the lock is busy.
pub(crate) enum OnBusy {
    Error,
    Skip,
    Return(Expr),
    Call(Expr),
}

/// What becomes of the body when the lock is lost under it.
pub(crate) enum OnLost {
    Cancel,
    Continue,
    Call(Expr),
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self::default();
        while !input.is_empty() {
            arguments.parse_one(input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(arguments)
    }
}

impl Arguments {
    /// Of two arguments that are both given, the name of the one that was written later.
    pub(crate) fn later(&self, one: &str, other: &str) -> Option<&Ident> {
        let place = |name| self.order.iter().position(|given| given == name);
        let later = place(one)?.max(place(other)?);
        Some(&self.order[later])
    }

    /// The name of an argument, as it was written.
    pub(crate) fn named(&self, name: &str) -> Option<&Ident> {
        self.order.iter().find(|given| *given == name)
    }

    /// The key as it was written, or the keys with commas between them. `None` if one is an expression.
    pub(crate) fn template(&self) -> Option<String> {
        let keys: &[_] = match &self.keys {
            None => &[],
            Some(WrittenKeys::List(_, list)) => list,
            Some(WrittenKeys::Expr(_)) => return None,
        };
        let keys = keys.iter().chain(&self.key);
        let templates: Option<Vec<_>> = keys.map(WrittenKey::template).collect();
        templates
            .filter(|all| !all.is_empty())
            .map(|all| all.join(","))
    }

    /// Whether a value of a key like `"order:{}"` stands here, right behind it and without the parentheses around both.
    fn is_value_of_key(&self, input: ParseStream<'_>) -> bool {
        let Some(WrittenKey::Literal(key)) = &self.key else {
            return false;
        };
        let (key, last) = (key.value(), self.order.last());
        if !(key.contains("{}") || key.contains("{:")) || last.is_none_or(|last| last != "key") {
            return false;
        }
        let ahead = input.fork();
        let name = ahead.call(Ident::parse_any);
        !name.is_ok_and(|name| ahead.peek(Token![=]) || name == "reentrant")
    }

    fn parse_one(&mut self, input: ParseStream<'_>) -> Result<()> {
        if self.is_value_of_key(input) {
            return Err(input.error(
                "a key and the values for its `{}` stand in parentheses: write `key = (\"order:{}\", id)`",
            ));
        }
        if input.peek(LitStr) {
            return Err(input.error("an argument without a name: write `key = \"..\"`"));
        }
        let name = input.call(Ident::parse_any)?;
        self.order.push(name.clone());
        match name.to_string().as_str() {
            "key" => set(&mut self.key, &name, input, WrittenKey::parse),
            "keys" => set(&mut self.keys, &name, input, WrittenKeys::parse),
            "escape" => set(&mut self.escape, &name, input, |input| {
                switch(input, "escape")
            }),
            "reentrant" => flag(&mut self.reentrant, &name, input),
            "owner" => set(&mut self.owner, &name, input, Expr::parse),
            "mode" => set(&mut self.mode, &name, input, Mode::parse),
            "permits" => set(&mut self.permits, &name, input, Expr::parse),
            "max" => set(&mut self.max, &name, input, Expr::parse),
            "ttl" => set(&mut self.ttl, &name, input, Expr::parse),
            "wait" => set(&mut self.wait, &name, input, Expr::parse),
            "unavailable_after" => set(&mut self.unavailable_after, &name, input, Expr::parse),
            "renew" => set(&mut self.renew, &name, input, |input| {
                switch(input, "renew")
            }),
            "max_hold" => set(&mut self.max_hold, &name, input, Expr::parse),
            "at_least" => set(&mut self.at_least, &name, input, Expr::parse),
            "when" => set(&mut self.when, &name, input, Expr::parse),
            "on_busy" => set(&mut self.on_busy, &name, input, OnBusy::parse),
            "on_lost" => set(&mut self.on_lost, &name, input, OnLost::parse),
            "map_err" => set(&mut self.map_err, &name, input, |input| {
                callee(input, "`map_err`")
            }),
            "client" => set(&mut self.client, &name, input, Expr::parse),
            "guard" => set(&mut self.guard, &name, input, guard),
            "name" => set(&mut self.name, &name, input, traced_name),
            "label" => set(&mut self.label, &name, input, label),
            "crate" => set(&mut self.krate, &name, input, krate),
            word => Err(Error::new(
                name.span(),
                match meant_by(word) {
                    Some(meant) => format!("unknown argument `{name}`: did you mean `{meant}`?"),
                    None => format!("unknown argument `{name}`: the arguments are {NAMES}"),
                },
            )),
        }
    }
}

/// The argument that a word of another library means.
fn meant_by(word: &str) -> Option<&'static str> {
    Some(match word {
        "timeout" | "acquire_timeout" | "wait_timeout" | "wait_time" | "max_wait" => "wait",
        "expire" | "expires" | "expiry" | "expiration" | "lease" | "lease_time" | "duration" => {
            "ttl"
        }
        "auto_renew" | "auto_extend" | "watchdog" => "renew",
        "lock" | "lock_name" | "resource" | "id" => "key",
        "if_locked" | "on_locked" | "on_timeout" | "skip_if_locked" => "on_busy",
        "manager" | "locks" | "redis" | "connection" => "client",
        "lock_at_least" | "at_least_for" | "lock_at_least_for" => "at_least",
        "lock_at_most" | "at_most_for" | "lock_at_most_for" => "max_hold",
        "condition" | "unless" => "when",
        "read" | "write" | "shared" => "mode",
        "count" | "permit" => "permits",
        "max_permits" | "limit" | "concurrency" => "max",
        _ => return None,
    })
}

/// Reads ` = value` into the place of the argument, which must be empty.
fn set<T>(
    place: &mut Option<T>,
    name: &Ident,
    input: ParseStream<'_>,
    value: impl FnOnce(ParseStream<'_>) -> Result<T>,
) -> Result<()> {
    if place.is_some() {
        return Err(Error::new(name.span(), format!("`{name}` is given twice")));
    }
    if !input.peek(Token![=]) {
        return Err(Error::new(
            name.span(),
            format!("`{name}` has no value: write `{name} = ..`"),
        ));
    }
    input.parse::<Token![=]>()?;
    if at_end(input) {
        return Err(Error::new(
            name.span(),
            format!("`{name}` has no value: write one after the `=`"),
        ));
    }
    *place = Some(value(input)?);
    Ok(())
}

/// Reads a switch whose name alone turns it on.
fn flag(place: &mut Option<bool>, name: &Ident, input: ParseStream<'_>) -> Result<()> {
    if place.is_none() && at_end(input) {
        *place = Some(true);
        return Ok(());
    }
    set(place, name, input, |input| switch(input, &name.to_string()))
}

/// Nothing more belongs to this argument.
fn at_end(input: ParseStream<'_>) -> bool {
    input.is_empty() || input.peek(Token![,])
}

/// Reads one token as a `T` that ends the argument, or fails on that token with `message`.
fn only<T: Parse>(input: ParseStream<'_>, message: &str) -> Result<T> {
    let ahead = input.fork();
    if ahead.parse::<T>().is_ok() && at_end(&ahead) {
        return input.parse();
    }
    Err(input.error(message))
}

impl WrittenKey {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        // Parentheses around a string and whatever follows it are a format string and its arguments. The arguments
        // stay tokens, because `name = value` is one of them and no expression.
        if input.peek(token::Paren) {
            let ahead = input.fork();
            let inside;
            parenthesized!(inside in ahead);
            if inside.peek(LitStr) && at_end(&ahead) {
                let inside;
                parenthesized!(inside in input);
                let literal = inside.parse()?;
                if inside.is_empty() {
                    return Ok(Self::Literal(literal));
                }
                inside.parse::<Token![,]>()?;
                return inside.parse().map(|rest| Self::Format(literal, rest));
            }
        }
        let ahead = input.fork();
        if ahead.parse::<LitStr>().is_ok() && at_end(&ahead) {
            return input.parse().map(Self::Literal);
        }
        input.parse().map(Self::Expr)
    }

    fn template(&self) -> Option<String> {
        match self {
            Self::Literal(literal) | Self::Format(literal, _) => Some(literal.value()),
            Self::Expr(_) => None,
        }
    }
}

impl WrittenKeys {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let ahead = input.fork();
        if ahead.parse::<LitStr>().is_ok() && at_end(&ahead) {
            return Err(input.error(
                "`keys` takes a list: write `keys = [\"account:{from}\", \"account:{to}\"]`, or an expression of keys",
            ));
        }
        // An array whose method is called is an expression.
        let ahead = input.fork();
        let is_list = input.peek(token::Bracket) && ahead.parse::<Group>().is_ok();
        if !(is_list && at_end(&ahead)) {
            return input.parse().map(Self::Expr);
        }
        let inside;
        let brackets = bracketed!(inside in input);
        let list =
            Punctuated::<WrittenKey, Token![,]>::parse_terminated_with(&inside, WrittenKey::parse)?;
        Ok(Self::List(brackets, list.into_iter().collect()))
    }
}

impl Mode {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let message =
            "`mode` is that of a read-write lock: write `mode = \"read\"` or `mode = \"write\"`";
        let word: LitStr = only(input, message)?;
        match word.value().as_str() {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            _ => Err(Error::new(word.span(), message)),
        }
    }
}

impl OnBusy {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(Token![return]) {
            let keyword = input.parse::<Token![return]>()?;
            if !input.peek(Token![=]) {
                return Err(Error::new(
                    keyword.span,
                    "the value to return follows a second `=`: write `on_busy = return = value`",
                ));
            }
            input.parse::<Token![=]>()?;
            return input.parse().map(Self::Return);
        }
        let message = "`on_busy` takes `error`, `skip`, `return = value` or `call = path`";
        if let Some(path) = call(input, "on_busy")? {
            return Ok(Self::Call(path));
        }
        let word: Ident = only(input, message)?;
        match word.to_string().as_str() {
            "error" => Ok(Self::Error),
            "skip" => Ok(Self::Skip),
            _ => Err(Error::new(word.span(), message)),
        }
    }
}

impl OnLost {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let message = "`on_lost` takes `cancel`, `continue` or `call = path`";
        if let Some(path) = call(input, "on_lost")? {
            return Ok(Self::Call(path));
        }
        let span = input.span();
        // `continue` is a keyword, so no plain identifier.
        let word = input
            .call(Ident::parse_any)
            .map_err(|_| Error::new(span, message))?;
        match word.to_string().as_str() {
            "cancel" if at_end(input) => Ok(Self::Cancel),
            "continue" if at_end(input) => Ok(Self::Continue),
            _ => Err(Error::new(span, message)),
        }
    }
}

/// `call = path`, where that stands there.
fn call(input: ParseStream<'_>, of: &str) -> Result<Option<Expr>> {
    let ahead = input.fork();
    if !ahead.parse::<Ident>().is_ok_and(|word| word == "call") {
        return Ok(None);
    }
    let word: Ident = input.parse()?;
    if !input.peek(Token![=]) {
        return Err(Error::new(
            word.span(),
            format!("the function to call follows a second `=`: write `{of} = call = path`"),
        ));
    }
    input.parse::<Token![=]>()?;
    callee(input, "`call`").map(Some)
}

/// What a `LockError` can be given to.
fn callee(input: ParseStream<'_>, of: &str) -> Result<Expr> {
    let expr: Expr = input.parse()?;
    match ungrouped(&expr) {
        Expr::Path(_) | Expr::Closure(_) => Ok(expr),
        _ => Err(Error::new_spanned(
            expr,
            format!("{of} takes a function of a `LockError`: write its path, or a closure"),
        )),
    }
}

/// The expression inside the invisible parentheses around what `macro_rules!` passes on.
pub(crate) fn ungrouped(mut expr: &Expr) -> &Expr {
    while let Expr::Group(group) = expr {
        expr = &group.expr;
    }
    expr
}

fn switch(input: ParseStream<'_>, of: &str) -> Result<bool> {
    only::<LitBool>(input, &format!("`{of}` takes `true` or `false`")).map(|literal| literal.value)
}

fn traced_name(input: ParseStream<'_>) -> Result<LitStr> {
    text(
        input,
        "`name` takes the text that traces call the function by, such as `name = \"pay\"`",
    )
}

fn label(input: ParseStream<'_>) -> Result<LitStr> {
    text(
        input,
        "`label` takes the text that metrics call the lock by, such as `label = \"order\"`",
    )
}

/// Reads a string literal that is not empty.
fn text(input: ParseStream<'_>, message: &str) -> Result<LitStr> {
    let text: LitStr = only(input, message)?;
    if text.value().is_empty() {
        return Err(Error::new(text.span(), message));
    }
    Ok(text)
}

fn guard(input: ParseStream<'_>) -> Result<Ident> {
    only(
        input,
        "`guard` takes the name that the guard gets in the body, such as `guard = held`",
    )
}

fn krate(input: ParseStream<'_>) -> Result<Path> {
    let message = "`crate` takes the path of lock-core, such as `crate = my_crate::lock_core`";
    if input.peek(LitStr) {
        let literal: LitStr = only(input, message)?;
        return literal
            .parse_with(Path::parse_mod_style)
            .map_err(|_| Error::new(literal.span(), message));
    }
    let span = input.span();
    match input.call(Path::parse_mod_style) {
        Ok(path) if at_end(input) => Ok(path),
        _ => Err(Error::new(span, message)),
    }
}
