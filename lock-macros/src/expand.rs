//! From a plan to code: the lock around the body, and as little else as possible.
//!
//! ```text
//! async fn pay(order_id: u64) -> Result<Receipt, PayError> {
//!     use ::lock_core::__private as __lock_core;
//!     let keys = {
//!         let key = __lock_core::Key::new(true);
//!         key.write(__lock_core::format_args!("order:{order_id}", order_id = __lock_core::KeyPart::in_key(&order_id, &key)));
//!         key.finish()
//!     };
//!     let options = &const { __lock_core::Options { function: .., ttl: .., .. } };
//!     let hold = &__lock_core::BodyHold::new();
//!     let entering = __lock_core::enter(None, options, None, keys);
//!     let body = pin!(Some(async move { .. }));
//!     let error = 'lock: {
//!         match hold.fill(entering.await) {
//!             Ok(()) => {}
//!             Err(error) => break 'lock error,
//!         }
//!         match __lock_core::run(hold, body).await {
//!             Ok(output) => return output,
//!             Err(error) => error,
//!         }
//!     };
//!     <Result<Receipt, PayError> as __lock_core::FromLockError>::from_lock_error(error)
//! }
//! ```
//!
//! What is decided at run time is decided in the library, in code that is typed and tested there.

use proc_macro2::{Delimiter, Group, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Expr, ExprAsync, Ident, Result, Token};

use crate::function::{Function, Rewritten};
use crate::key::{Keys, Made};
use crate::output::Output;
use crate::parse::{Arguments, Mode, OnLost};
use crate::plan::{Kind, Number, Plan, Time};
use crate::site::{located_at, site};
use crate::validate::validate;

/// The function with the lock around its body.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: Function = syn::parse2(item)?;
    let arguments: Arguments = syn::parse2(arguments)?;
    let output = Output::of(&function);
    let plan = validate(arguments, &function, &output)?;

    let lock = Lock {
        plan: &plan,
        function: function.signature.ident.unraw().to_string(),
        output,
        is_blocking: function.is_blocking,
    };
    let Function {
        attributes,
        inner_attributes,
        visibility,
        signature,
        key_parts: _,
        body,
        rewritten,
        is_blocking: _,
    } = function;
    let braces = body.span();
    let statements = match rewritten {
        None => lock.around(Some(Token![move](site())), &body),
        Some(rewritten) => lock.inside(rewritten),
    };
    let mut body = Group::new(Delimiter::Brace, quote!(#(#inner_attributes)* #statements));
    // The function begins and ends where the user's does: lints judge it as the user's code.
    body.set_span(braces);
    Ok(quote!(#(#attributes)* #visibility #signature #body))
}

/// The lock around a body.
struct Lock<'a> {
    plan: &'a Plan,
    /// The function's name.
    function: String,
    output: Output,
    /// The function is not async.
    is_blocking: bool,
}

impl Lock<'_> {
    /// Puts a future that takes the lock in the place of one that does not.
    fn inside(&self, mut rewritten: Rewritten) -> TokenStream {
        let prologue = std::mem::take(&mut rewritten.prologue);
        if let Some(future) = rewritten.future()
            && let Expr::Async(ExprAsync {
                attrs,
                capture,
                block,
                ..
            }) = future
        {
            let statements = &block.stmts;
            let mut body = Group::new(Delimiter::Brace, quote!(#(#statements)*));
            body.set_span(block.brace_token.span.join());
            let locked = self.around(*capture, &body);
            *future = Expr::Verbatim(
                quote_spanned!(site()=> #(#attrs)* async #capture { #(#prologue)* #locked }),
            );
        }
        let statements = rewritten.statements;
        quote!(#(#statements)*)
    }

    /// The statements that take the lock, run the body under it and give it back.
    fn around(&self, capture: Option<Token![move]>, body: &Group) -> TokenStream {
        let krate = &self.plan.krate;
        let options = self.options();
        let (client, manager) = self.client();
        let (find_owner, owner) = self.owner();
        let keys = self.keys();
        let (enter, guard) = self.enter();
        let (enter, wait) = self.call(enter);
        let edge = self.output.edge();
        let when = self.plan.when.as_ref();
        let when = when.map(|when| self.output.unless(when, &self.plan.on_busy));
        let statements = body.stream();
        // The body has a block of its own: a `use` in it must not change what the return type beside it means.
        let inside = site().located_at(body.span());
        let inner = quote_spanned!(inside=> #guard #edge { #statements });
        let mut block = Group::new(Delimiter::Brace, inner);
        block.set_span(body.span());
        let (early, late, body) = self.body(capture, &block);
        let run = self.run(&body);
        let busy = self.output.busy(self.plan);
        let failed = self.output.failed(self.plan);
        // The alias makes a wrong `crate = ..` one error instead of one for each use. The hold is declared before the
        // body, and so outlives it when the future is dropped.
        quote_spanned! {site()=>
            use #krate::__private as __lock_core;
            #edge
            #when
            #client
            #find_owner
            #keys
            #options
            let hold = &__lock_core::BodyHold::new();
            let entering = #enter(#manager, options, #owner, keys);
            #early
            let error = 'lock: {
                match hold.fill(entering #wait) {
                    __lock_core::Result::Ok(()) => {}
                    #busy
                    __lock_core::Result::Err(error) => break 'lock error,
                }
                #late
                #run
            };
            #failed
        }
    }

    /// The statement that makes the body before the lock is asked for, or after, and the body as it is passed on.
    fn body(
        &self,
        capture: Option<Token![move]>,
        block: &Group,
    ) -> (Option<TokenStream>, Option<TokenStream>, TokenStream) {
        if self.is_blocking {
            // Where it is called, so that the compiler knows that it is called once.
            return (None, None, quote_spanned!(site()=> #capture || #block));
        }
        // Pinned by us: taken by value it would lie in two places of the function's future.
        let pinned = Some(quote_spanned! {site()=>
            let body = __lock_core::pin!(__lock_core::Option::Some(async #capture #block));
        });
        let body = quote_spanned!(site()=> body);
        // Made before the lock is asked for, the body takes the parameters out of the way, so that they are not stored
        // twice. Where another expression may still need them, it is made after.
        if self.plan.parameters_are_needed {
            (None, pinned, body)
        } else {
            (pinned, None, body)
        }
    }

    /// The function that takes the lock or the locks, and the statement that binds the guard.
    fn enter(&self) -> (&'static str, Option<TokenStream>) {
        let name = self.plan.guard.as_ref();
        match self.plan.keys {
            Keys::One(..) => (
                "enter",
                name.map(|name| quote_spanned!(site()=> let #name: &__lock_core::LockGuard = hold.guard();)),
            ),
            Keys::Many(_) | Keys::Made(_) => (
                "enter_all",
                name.map(|name| quote_spanned!(site()=> let #name: &[__lock_core::LockGuard] = hold.guards();)),
            ),
        }
    }

    /// A function of the library that waits, and what follows its call.
    fn call(&self, name: &str) -> (TokenStream, Option<TokenStream>) {
        let name = Ident::new(name, site());
        if self.is_blocking {
            (quote_spanned!(site()=> __lock_core::blocking::#name), None)
        } else {
            (
                quote_spanned!(site()=> __lock_core::#name),
                Some(quote_spanned!(site()=> .await)),
            )
        }
    }

    fn client(&self) -> (Option<TokenStream>, TokenStream) {
        let Some(client) = &self.plan.client else {
            return (None, quote_spanned!(site()=> __lock_core::Option::None));
        };
        // A reference to the expression takes a manager, a reference to one, or an `Arc`: deref coercion sorts it out.
        let reference = quote_spanned!(located_at(client)=> &(#client));
        (
            Some(quote_spanned!(site()=> let client: &__lock_core::LockManager = #reference;)),
            quote_spanned!(site()=> __lock_core::Option::Some(client)),
        )
    }

    /// The statement that finds the owner, and what tells the library: the kind of the lock follows from it.
    fn owner(&self) -> (Option<TokenStream>, TokenStream) {
        let owner = match &self.plan.kind {
            Kind::Exclusive | Kind::ReadWrite(_) | Kind::Semaphore { .. } => {
                return (None, quote_spanned!(site()=> __lock_core::Option::None));
            }
            Kind::Reentrant(None) => quote_spanned!(site()=> __lock_core::enclosing_owner()),
            Kind::Reentrant(Some(owner)) => {
                let reference = quote_spanned!(located_at(owner)=> &(#owner));
                quote_spanned!(located_at(owner)=> __lock_core::owner(#reference))
            }
        };
        (
            Some(quote_spanned!(site()=> let owner = #owner;)),
            quote_spanned!(site()=> __lock_core::Option::Some(owner)),
        )
    }

    /// The keys are complete before the body takes the parameters away.
    fn keys(&self) -> TokenStream {
        let keys = self.plan.keys.code(Made {
            escape: self.plan.escape,
            function: &self.function,
        });
        quote_spanned!(site()=> let keys = #keys;)
    }

    fn options(&self) -> TokenStream {
        let function = &self.function;
        let name = match &self.plan.name {
            Some(name) => name.to_token_stream(),
            None => {
                quote_spanned!(site()=> __lock_core::concat!(__lock_core::module_path!(), "::", #function))
            }
        };
        let label = self.plan.label.as_ref();
        let label = label.map_or_else(|| name.clone(), ToTokens::to_token_stream);
        let renew = self.plan.renew;
        let ttl = time(self.plan.ttl.as_ref());
        let wait = time(self.plan.wait.as_ref());
        let unavailable_after = time(self.plan.unavailable_after.as_ref());
        let max_hold = time(self.plan.max_hold.as_ref());
        let at_least = time(self.plan.at_least.as_ref());
        let (sharing, is_constant) = self.sharing();
        let options = quote_spanned! {site()=>
            __lock_core::Options {
                function: #name,
                label: #label,
                ttl: #ttl,
                wait: #wait,
                unavailable_after: #unavailable_after,
                renew: #renew,
                max_hold: #max_hold,
                at_least: #at_least,
                sharing: #sharing,
            }
        };
        // Literals alone make a constant, which takes no room in the function's future.
        let times = [
            &self.plan.ttl,
            &self.plan.wait,
            &self.plan.unavailable_after,
            &self.plan.max_hold,
            &self.plan.at_least,
        ];
        let is_time = |time: &&Option<Time>| matches!(time, Some(Time::Expr(_)));
        if !is_constant || times.iter().any(is_time) {
            quote_spanned!(site()=> let options = &#options;)
        } else {
            quote_spanned!(site()=> let options = &const { #options };)
        }
    }

    /// What several callers share of the lock, and whether it is a constant.
    fn sharing(&self) -> (TokenStream, bool) {
        match &self.plan.kind {
            Kind::Exclusive | Kind::Reentrant(_) => {
                (quote_spanned!(site()=> __lock_core::Sharing::None), true)
            }
            Kind::ReadWrite(Mode::Read) => {
                (quote_spanned!(site()=> __lock_core::Sharing::Read), true)
            }
            Kind::ReadWrite(Mode::Write) => {
                (quote_spanned!(site()=> __lock_core::Sharing::Write), true)
            }
            Kind::Semaphore { permits, max } => {
                let is_constant = [permits, max]
                    .iter()
                    .all(|number| matches!(number, Number::Literal(_)));
                let (permits, max) = (number(permits), number(max));
                let sharing = quote_spanned! {site()=>
                    __lock_core::Sharing::Permits { permits: #permits, max: #max }
                };
                (sharing, is_constant)
            }
        }
    }

    /// Runs the body. The value of these statements is the error of a lock that was lost.
    fn run(&self, body: &TokenStream) -> TokenStream {
        let lost = match &self.plan.on_lost {
            OnLost::Continue => {
                let (run, wait) = self.call("run_to_end");
                let output =
                    self.returned(quote_spanned!(site()=> #run(hold, options, #body) #wait));
                return quote_spanned!(site()=> return #output;);
            }
            OnLost::Cancel => quote_spanned!(site()=> error),
            OnLost::Call(function) => {
                let value = self.output.called(function);
                quote_spanned!(site()=> return #value)
            }
        };
        let (run, wait) = self.call("run");
        let output = self.returned(quote_spanned!(site()=> output));
        quote_spanned! {site()=>
            match #run(hold, #body) #wait {
                __lock_core::Result::Ok(output) => return #output,
                __lock_core::Result::Err(error) => #lost,
            }
        }
    }

    /// What the function returns: of one that is not async no future, whose work would be done later.
    fn returned(&self, output: TokenStream) -> TokenStream {
        if self.is_blocking {
            quote_spanned!(site()=> __lock_core::blocking::no_future(#output))
        } else {
            output
        }
    }
}

/// A number of permits, whose type the binding states.
fn number(number: &Number) -> TokenStream {
    match number {
        Number::Literal(number) => number.to_token_stream(),
        Number::Expr(expr) => quote_spanned! {site()=>
            {
                let number: __lock_core::u32 = #expr;
                number
            }
        },
    }
}

/// A duration as a field of the options.
fn time(time: Option<&Time>) -> TokenStream {
    match time {
        None => quote_spanned!(site()=> __lock_core::Option::None),
        Some(Time::Literal(duration)) => {
            let millis = duration.as_millis() as u64;
            quote_spanned!(site()=> __lock_core::Option::Some(__lock_core::Duration::from_millis(#millis)))
        }
        // The binding states the type, so that a mismatch is about the expression and not about `Some`.
        Some(Time::Expr(expr)) => quote_spanned! {site()=>
            __lock_core::Option::Some({
                let duration: __lock_core::Duration = #expr;
                duration
            })
        },
    }
}
