//! From arguments as they are written to a plan that can be carried out, or to every reason why not.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::{Error, Expr, Ident, Lit, Path, Result, Type, parse_quote};

use crate::duration;
use crate::function::Function;
use crate::key::Template;
use crate::parse::{self, Arguments, OnBusy, OnLost};

/// The shortest ttl that the library accepts.
const SHORTEST_TTL: Duration = Duration::from_millis(10);

/// What to generate.
pub(crate) struct Plan {
    pub(crate) key: Key,
    pub(crate) ttl: Option<Time>,
    pub(crate) wait: Option<Time>,
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Time>,
    pub(crate) on_busy: OnBusy,
    pub(crate) on_lost: OnLost,
    pub(crate) client: Option<Expr>,
    pub(crate) guard: Option<Ident>,
    pub(crate) krate: Path,
}

/// Where the key comes from.
pub(crate) enum Key {
    /// The literal is the key.
    Verbatim(TokenStream),
    /// The arguments of `format!`.
    Format(TokenStream),
    /// A value that implements `AsRef<str>`.
    Expr(Expr),
}

/// A duration.
pub(crate) enum Time {
    Literal(Duration),
    Expr(Expr),
}

/// Collects errors, so that one build shows them all.
#[derive(Default)]
struct Problems(Option<Error>);

impl Problems {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            none => *none = Some(error),
        }
    }

    /// The value, or `None` and the problem noted.
    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }
}

/// Makes sense of the arguments for this function.
pub(crate) fn validate(arguments: Arguments, function: &Function) -> Result<Plan> {
    let mut problems = Problems::default();
    let mut time = |value: Option<Expr>, check: fn(Expr) -> Result<Time>| {
        value.and_then(|value| problems.note(check(value)))
    };
    let ttl = time(arguments.ttl, ttl);
    let wait = time(arguments.wait, |value| duration("wait", value));
    let max_hold = time(arguments.max_hold, max_hold);

    let on_busy = arguments.on_busy.unwrap_or(OnBusy::Error);
    problems.note(return_type(function.output(), &on_busy));

    let missing = || {
        Error::new(
            Span::call_site(),
            "`#[distributed_lock]` needs a key: write `key = \"..\"`",
        )
    };
    let key = problems.note(arguments.key.ok_or_else(missing).and_then(key));
    match (problems.0, key) {
        (None, Some(key)) => Ok(Plan {
            key,
            ttl,
            wait,
            renew: arguments.renew.unwrap_or(true),
            max_hold,
            on_busy,
            on_lost: arguments.on_lost.unwrap_or(OnLost::Cancel),
            client: arguments.client,
            guard: arguments.guard,
            krate: arguments.krate.unwrap_or_else(|| parse_quote!(::lock_core)),
        }),
        (Some(problems), _) => Err(problems),
        (None, None) => unreachable!("a key that is missing is a problem"),
    }
}

fn key(written: parse::Key) -> Result<Key> {
    let (literal, rest) = match written {
        parse::Key::Expr(expr) => return Ok(Key::Expr(expr)),
        parse::Key::Literal(literal) => (literal, TokenStream::new()),
        parse::Key::Format(literal, rest) => (literal, rest),
    };
    let text = literal.value();
    let template = Template::new(&text);
    if let Some(problem) = template.problem() {
        return Err(Error::new(literal.span(), problem));
    }
    let verbatim = rest.is_empty() && template.is_verbatim(&text);
    // The very token of the user goes into `format!`: the compiler then points inside it.
    let mut tokens = literal.into_token_stream();
    tokens.extend(rest);
    Ok(if verbatim {
        Key::Verbatim(tokens)
    } else {
        Key::Format(tokens)
    })
}

fn ttl(value: Expr) -> Result<Time> {
    at_least("ttl", SHORTEST_TTL, "10ms", value)
}

fn max_hold(value: Expr) -> Result<Time> {
    at_least("max_hold", Duration::from_millis(1), "1ms", value)
}

/// A duration whose literal has a lower bound.
fn at_least(name: &str, least: Duration, written: &str, value: Expr) -> Result<Time> {
    let tokens = value.to_token_stream();
    match duration(name, value)? {
        Time::Literal(literal) if literal < least => Err(Error::new_spanned(
            tokens,
            format!("`{name}` is at least \"{written}\""),
        )),
        time => Ok(time),
    }
}

/// A string literal is a duration to read now, any other literal is a mistake, everything else is for the compiler.
fn duration(name: &str, value: Expr) -> Result<Time> {
    let bare = match ungrouped(&value) {
        Expr::Unary(negative) => &negative.expr,
        other => other,
    };
    let Expr::Lit(literal) = bare else {
        return Ok(Time::Expr(value));
    };
    let problem = match (&literal.lit, ungrouped(&value)) {
        (Lit::Str(text), Expr::Lit(_)) => match duration::parse(&text.value()) {
            Ok(duration) => return Ok(Time::Literal(duration)),
            Err(problem) => problem,
        },
        (Lit::Int(number), _) if duration::parse(&number.to_string()).is_ok() => {
            format!("a duration is a string: write `{name} = \"{number}\"`")
        }
        (Lit::Int(number), _) => {
            let digits = number.base10_digits();
            format!("a number without a unit: write a unit, such as `{name} = \"{digits}s\"`")
        }
        _ => format!(
            "`{name}` takes a duration such as \"30s\", or an expression of type `Duration`"
        ),
    };
    Err(Error::new_spanned(value, problem))
}

/// The expression inside the invisible parentheses around what `macro_rules!` passes on.
fn ungrouped(mut value: &Expr) -> &Expr {
    while let Expr::Group(group) = value {
        value = &group.expr;
    }
    value
}

/// Refuses the return types that can hold nothing but what the body makes.
fn return_type(output: Option<&Type>, on_busy: &OnBusy) -> Result<()> {
    match (output, on_busy) {
        (Some(never @ Type::Never(_)), _) => Err(Error::new_spanned(
            never,
            "a function that never returns cannot tell its caller that the lock was not obtained",
        )),
        (Some(opaque @ Type::ImplTrait(_)), OnBusy::Error | OnBusy::Skip) => {
            Err(Error::new_spanned(
                opaque,
                "`impl Trait` cannot tell the caller that the lock was not obtained: \
             return a `Result`, or give a value with `on_busy = return = value`",
            ))
        }
        _ => Ok(()),
    }
}
