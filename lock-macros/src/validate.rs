//! From arguments as they are written to a plan that can be carried out, or to every reason why not.

use std::time::Duration;

use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Error, Expr, Lit, LitStr, Result, parse_quote};

use crate::duration;
use crate::function::{Bindings, Function};
use crate::key::{Key, Keys};
use crate::output::Output;
use crate::parse::{Arguments, OnBusy, OnLost, WrittenKey, WrittenKeys, ungrouped};
use crate::plan::{Kind, Number, Plan, Time};

/// The shortest ttl that the library accepts.
const SHORTEST_TTL: Duration = Duration::from_millis(10);

const MILLISECOND: Duration = Duration::from_millis(1);

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
pub(crate) fn validate(
    mut arguments: Arguments,
    function: &Function,
    output: &Output,
) -> Result<Plan> {
    let mut problems = Problems::default();
    let label = arguments.label.as_ref().map(LitStr::value);
    let label = label.or_else(|| arguments.template());
    let keys = problems.note(keys(&mut arguments, function));
    conflicts(&arguments, function, output, &mut problems);

    let kind = problems.note(kind(&mut arguments));
    let mut time = |value: Option<Expr>, check: fn(Expr) -> Result<Time>| {
        value.and_then(|value| problems.note(check(value)))
    };
    let later_fixed = arguments.later("at_least", "ttl").cloned();
    let (later_limit, limits) = (
        arguments.later("at_least", "max_hold").cloned(),
        (
            time(arguments.max_hold, max_hold),
            time(arguments.at_least, |value| duration("at_least", value)),
        ),
    );
    let ttl = time(arguments.ttl, ttl);
    let wait = time(arguments.wait, |value| duration("wait", value));
    let unavailable_after = time(arguments.unavailable_after, |value| {
        no_less("unavailable_after", MILLISECOND, "1ms", value)
    });
    if let (Some(Time::Literal(most)), Some(Time::Literal(least))) = &limits
        && most < least
        && let Some(later) = later_limit
    {
        problems.add(Error::new(
            later.span(),
            "`at_least` is longer than `max_hold`: no hold could be both",
        ));
    }
    let (max_hold, at_least) = limits;
    if let (Some(false), Some(Time::Literal(ttl)), Some(Time::Literal(least))) =
        (arguments.renew, &ttl, &at_least)
        && ttl < least
        && let Some(later) = later_fixed
    {
        problems.add(Error::new(
            later.span(),
            "`at_least` is longer than `ttl`, which is not renewed",
        ));
    }

    let on_busy = arguments.on_busy.unwrap_or(OnBusy::Error);
    let on_lost = arguments.on_lost.unwrap_or(OnLost::Cancel);
    let bindings = Bindings::of(function);
    let late = [
        match &on_busy {
            OnBusy::Return(expr) | OnBusy::Call(expr) => Some(expr),
            OnBusy::Error | OnBusy::Skip => None,
        },
        match &on_lost {
            OnLost::Call(expr) => Some(expr),
            OnLost::Cancel | OnLost::Continue => None,
        },
        arguments.map_err.as_ref(),
    ];
    let parameters_are_needed = late
        .into_iter()
        .flatten()
        .any(|expr| bindings.are_in(expr.to_token_stream()));
    problems.note(output.check(&on_busy));

    match (problems.0, keys.zip(kind)) {
        (None, Some((keys, kind))) => Ok(Plan {
            keys,
            escape: arguments.escape.unwrap_or(true),
            kind,
            ttl,
            wait,
            unavailable_after,
            renew: arguments.renew.unwrap_or(true),
            max_hold,
            at_least,
            when: arguments.when,
            on_busy,
            on_lost,
            map_err: arguments.map_err,
            client: arguments.client,
            guard: arguments.guard,
            name: arguments.name,
            label,
            krate: arguments.krate.unwrap_or_else(|| parse_quote!(::lock_core)),
            parameters_are_needed,
        }),
        (Some(problems), _) => Err(problems),
        (None, None) => unreachable!("what is missing is a problem"),
    }
}

/// The kind of lock that the arguments name.
fn kind(arguments: &mut Arguments) -> Result<Kind> {
    let (permits, max) = (arguments.permits.take(), arguments.max.take());
    if arguments.reentrant == Some(true) {
        return Ok(Kind::Reentrant(arguments.owner.take()));
    }
    if let Some(mode) = arguments.mode {
        return Ok(Kind::ReadWrite(mode));
    }
    match (permits, max) {
        (None, None) => Ok(Kind::Exclusive),
        (Some(permits), None) => Err(Error::new_spanned(
            permits,
            "`permits` are those of a semaphore: write how many it has, such as `permits = 4, max = 8`",
        )),
        (permits, Some(max)) => {
            let written = permits.to_token_stream();
            let permits = permits.map_or(Ok(Number::Literal(1)), |it| number("permits", it))?;
            let max = number("max", max)?;
            if let (Number::Literal(permits), Number::Literal(max)) = (&permits, &max)
                && permits > max
            {
                return Err(Error::new_spanned(
                    written,
                    format!("the semaphore has {max} permits: `permits` is at most `max`"),
                ));
            }
            Ok(Kind::Semaphore { permits, max })
        }
    }
}

/// A number of permits: a literal is checked now, everything else is for the compiler.
fn number(name: &str, value: Expr) -> Result<Number> {
    let number = match ungrouped(&value) {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse::<u32>().ok(),
            _ => None,
        },
        Expr::Unary(negative) if matches!(*negative.expr, Expr::Lit(_)) => None,
        _ => return Ok(Number::Expr(value)),
    };
    match number.filter(|number| (1..=1 << 30).contains(number)) {
        Some(number) => Ok(Number::Literal(number)),
        None => Err(Error::new_spanned(
            value,
            format!("`{name}` takes a number from 1 to 2^30, or an expression of type `u32`"),
        )),
    }
}

/// The key, the keys, or what the marked parameters make.
fn keys(arguments: &mut Arguments, function: &Function) -> Result<Keys> {
    let parts = &function.key_parts;
    let bindings = Bindings::of(function);
    if let Some(later) = arguments.later("key", "keys") {
        return Err(Error::new(
            later.span(),
            "`key` and `keys` exclude each other: give one key or a list",
        ));
    }
    if let Some(several) = arguments.keys.take() {
        if let Some(part) = parts.first() {
            return Err(Error::new(
                part.span(),
                "`#[key]` and `keys` exclude each other: name the parameter in the keys",
            ));
        }
        let (brackets, list) = match several {
            WrittenKeys::List(brackets, list) => (brackets, list),
            WrittenKeys::Expr(expr) => {
                return match escape_of_an_expression(arguments, "keys") {
                    None => Ok(Keys::Made(expr)),
                    Some(problem) => Err(problem),
                };
            }
        };
        if list.is_empty() {
            return Err(Error::new(
                brackets.span.join(),
                "`keys` is empty: name at least one key",
            ));
        }
        let mut problems = Problems::default();
        let keys = list
            .into_iter()
            .filter_map(|key| problems.note(Key::new(key, &bindings)))
            .collect();
        return match problems.0 {
            None => Ok(Keys::Many(keys)),
            Some(problems) => Err(problems),
        };
    }
    let key = match arguments.key.take() {
        Some(key) => {
            if let (WrittenKey::Expr(_), [], Some(problem)) =
                (&key, &**parts, escape_of_an_expression(arguments, "key"))
            {
                return Err(problem);
            }
            Key::new(key, &bindings)?
        }
        None if parts.is_empty() => {
            return Err(Error::new(
                Span::call_site(),
                "`#[distributed_lock]` needs a key: write `key = \"..\"`, or mark parameters with `#[key]`",
            ));
        }
        None => Key::Function,
    };
    Ok(Keys::One(key, parts.clone()))
}

/// What is wrong with `escape` beside a key, or keys, that are an expression.
fn escape_of_an_expression(arguments: &Arguments, key: &str) -> Option<Error> {
    let escape = arguments.named("escape")?;
    Some(Error::new(
        arguments.later(key, "escape").unwrap_or(escape).span(),
        "`escape` is for the values in a format string: a key that is an expression is taken as it is",
    ))
}

/// Arguments that do not go together, or not with this function.
fn conflicts(arguments: &Arguments, function: &Function, output: &Output, problems: &mut Problems) {
    if let (Some(name), false) = (arguments.named("map_err"), output.is_result) {
        problems.add(Error::new(
            name.span(),
            "`map_err` makes an error to return: it needs a function whose return type is named `..Result`",
        ));
    }
    // Beside `when` it is also the value of work that is not due.
    if let (Some(name), Some(OnBusy::Skip | OnBusy::Return(_) | OnBusy::Call(_)), None, None) = (
        arguments.named("on_busy"),
        &arguments.on_busy,
        &arguments.wait,
        &arguments.when,
    ) {
        problems.add(Error::new(
            name.span(),
            "`on_busy` needs a limit, since without `wait` the function waits as long as it takes: write `wait = \"0s\"` to ask once, or a longer one",
        ));
    }
    let reentrant = arguments.reentrant == Some(true);
    if let (Some(name), false) = (arguments.named("owner"), reentrant) {
        problems.add(Error::new(
            name.span(),
            "`owner` says who takes a reentrant lock: write `reentrant, owner = ..`",
        ));
    }
    kinds_that_conflict(arguments, reentrant, problems);
    if let Some(guard) = &arguments.guard
        && Bindings::of(function).contains(&guard.unraw().to_string())
    {
        problems.add(Error::new(
            guard.span(),
            format!("`{guard}` is a parameter already: give the guard another name"),
        ));
    }
}

/// Arguments of two kinds of lock, or of the exclusive one and another.
fn kinds_that_conflict(arguments: &Arguments, reentrant: bool, problems: &mut Problems) {
    for (one, other) in [
        ("at_least", "reentrant"),
        ("at_least", "mode"),
        ("at_least", "max"),
        ("reentrant", "mode"),
        ("reentrant", "max"),
        ("reentrant", "permits"),
        ("mode", "max"),
        ("mode", "permits"),
    ] {
        let off = |name| name == "reentrant" && !reentrant;
        let Some(later) = arguments.later(one, other) else {
            continue;
        };
        if off(one) || off(other) {
            continue;
        }
        let why = if one == "at_least" {
            "only the exclusive lock can be kept for a while after the work"
        } else {
            "a lock is of one kind"
        };
        let message = format!("`{one}` and `{other}` exclude each other: {why}");
        problems.add(Error::new(later.span(), message));
    }
}

fn ttl(value: Expr) -> Result<Time> {
    no_less("ttl", SHORTEST_TTL, "10ms", value)
}

fn max_hold(value: Expr) -> Result<Time> {
    no_less("max_hold", MILLISECOND, "1ms", value)
}

/// A duration whose literal has a lower bound.
fn no_less(name: &str, least: Duration, written: &str, value: Expr) -> Result<Time> {
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
