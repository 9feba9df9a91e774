//! From a plan to code: the lock around the body, and as little else as possible.
//!
//! ```text
//! async fn pay(order_id: u64) -> Result<Receipt, PayError> {
//!     use ::lock_core::__private as __lock_core;
//!     let key = __lock_core::format!("order:{order_id}");
//!     let options = __lock_core::Options { function: .., ttl: .., .. };
//!     let entered = __lock_core::enter(None, &options, key).await;
//!     let error = match entered {
//!         Ok(hold) => {
//!             let outcome = __lock_core::run(&hold, &options, async move { .. }).await;
//!             match outcome {
//!                 Ok(output) => return output,
//!                 Err(error) => error,
//!             }
//!         }
//!         Err(error) => error,
//!     };
//!     <Result<Receipt, PayError> as __lock_core::FromLockError>::from_lock_error(error)
//! }
//! ```
//!
//! What is decided at run time is decided in the library, in code that is typed and tested there.

use proc_macro2::{Delimiter, Group, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, ExprAsync, Result, Token, Type};

use crate::function::{BoxedFuture, Function};
use crate::parse::{Arguments, OnBusy, OnLost};
use crate::validate::{Key, Plan, Time, validate};

/// The function with the lock around its body.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: Function = syn::parse2(item)?;
    let arguments: Arguments = syn::parse2(arguments)?;
    let plan = validate(arguments, &function)?;

    let lock = Lock {
        plan: &plan,
        name: function.signature.ident.unraw().to_string(),
        output: Output::of(&function),
    };
    let Function {
        attributes,
        inner_attributes,
        visibility,
        signature,
        body,
        boxed,
    } = function;
    let braces = body.span();
    let statements = match boxed {
        None => lock.around(Some(Token![move](site())), &body),
        Some(boxed) => lock.inside(*boxed),
    };
    let mut body = Group::new(Delimiter::Brace, quote!(#(#inner_attributes)* #statements));
    // The function begins and ends where the user's does: lints judge it as the user's code.
    body.set_span(braces);
    Ok(quote!(#(#attributes)* #visibility #signature #body))
}

/// Where our own names live: no local of ours meets a parameter of the same name.
fn site() -> Span {
    Span::mixed_site()
}

/// The lock around a body.
struct Lock<'a> {
    plan: &'a Plan,
    name: String,
    output: Output,
}

impl Lock<'_> {
    /// A boxed future that takes the lock, in place of one that does not.
    fn inside(&self, future: BoxedFuture) -> TokenStream {
        let BoxedFuture {
            before,
            mut pin,
            block,
            output: _,
        } = future;
        let ExprAsync {
            attrs,
            capture,
            block,
            ..
        } = block;
        let statements = block.stmts;
        let mut body = Group::new(Delimiter::Brace, quote!(#(#statements)*));
        body.set_span(block.brace_token.span.join());
        let locked = self.around(capture, &body);
        pin.args.push(Expr::Verbatim(
            quote_spanned!(site()=> #(#attrs)* async #capture { #locked }),
        ));
        quote!(#(#before)* #pin)
    }

    /// The statements that take the lock, run the body under it and give it back.
    fn around(&self, capture: Option<Token![move]>, body: &Group) -> TokenStream {
        let krate = &self.plan.krate;
        let options = self.options();
        let (client, manager) = self.client();
        let key = self.key();
        let guard = self.plan.guard.as_ref().map(|name| {
            quote_spanned!(site()=> let #name: &__lock_core::LockGuard = __lock_core::Hold::guard(&hold);)
        });
        let edge = self.output.edge();
        let statements = body.stream();
        // The body has a block of its own: a `use` in it must not change what the return type beside it means.
        let inside = site().located_at(body.span());
        let inner = quote_spanned!(inside=> #edge { #statements });
        let mut block = Group::new(Delimiter::Brace, inner);
        block.set_span(body.span());
        let run = self.run(&quote_spanned!(site()=> async #capture #block));
        let busy = self.busy();
        let failed = self.failed();
        // The alias makes a wrong `crate = ..` one error instead of one for each use.
        quote_spanned! {site()=>
            use #krate::__private as __lock_core;
            #edge
            #client
            #key
            #options
            let entered = __lock_core::enter(#manager, &options, key).await;
            let error = match entered {
                __lock_core::Result::Ok(hold) => {
                    #guard
                    #run
                }
                #busy
                __lock_core::Result::Err(error) => error,
            };
            #failed
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

    /// The key is complete before the body takes the parameters away.
    fn key(&self) -> TokenStream {
        let key = match &self.plan.key {
            Key::Verbatim(literal) => quote!(#literal),
            Key::Format(arguments) => quote_spanned!(site()=> __lock_core::format!(#arguments)),
            Key::Expr(expr) => {
                let reference = quote_spanned!(located_at(expr)=> &(#expr));
                quote_spanned!(located_at(expr)=> __lock_core::key(#reference))
            }
        };
        quote_spanned!(site()=> let key = #key;)
    }

    fn options(&self) -> TokenStream {
        let name = &self.name;
        let renew = self.plan.renew;
        let ttl = time(self.plan.ttl.as_ref());
        let wait = time(self.plan.wait.as_ref());
        let max_hold = time(self.plan.max_hold.as_ref());
        quote_spanned! {site()=>
            let options = __lock_core::Options {
                function: __lock_core::concat!(__lock_core::module_path!(), "::", #name),
                ttl: #ttl,
                wait: #wait,
                renew: #renew,
                max_hold: #max_hold,
                at_least: __lock_core::Duration::ZERO,
            };
        }
    }

    /// Runs the body. The value of these statements is the error of a lock that was lost.
    fn run(&self, body: &TokenStream) -> TokenStream {
        match self.plan.on_lost {
            OnLost::Cancel => quote_spanned! {site()=>
                let outcome = __lock_core::run(&hold, &options, __lock_core::pin!(#body)).await;
                match outcome {
                    __lock_core::Result::Ok(output) => return output,
                    __lock_core::Result::Err(error) => error,
                }
            },
            OnLost::Continue => {
                quote_spanned!(site()=> return __lock_core::run_to_end(&hold, &options, __lock_core::pin!(#body)).await;)
            }
        }
    }

    /// The arm for a busy lock, where a `Result` has room for the other errors.
    fn busy(&self) -> Option<TokenStream> {
        match &self.plan.on_busy {
            OnBusy::Return(value) if self.output.is_result => Some(quote_spanned! {site()=>
                __lock_core::Result::Err(error) if __lock_core::is_busy(&error) => return #value,
            }),
            _ => None,
        }
    }

    /// What the caller gets for `error`.
    fn failed(&self) -> TokenStream {
        let output = &self.output.written;
        match &self.plan.on_busy {
            OnBusy::Skip => quote_spanned! {located_at(output)=>
                <#output as __lock_core::Skip>::skip(error, options.function)
            },
            OnBusy::Return(value) if !self.output.is_result => quote_spanned! {site()=>
                __lock_core::trace_swallowed(&error, options.function);
                #value
            },
            OnBusy::Error | OnBusy::Return(_) => quote_spanned! {located_at(output)=>
                <#output as __lock_core::FromLockError>::from_lock_error(error)
            },
        }
    }
}

/// What the function's future gives.
struct Output {
    /// The type as it was written, with every `impl Trait` in it left to inference.
    written: TokenStream,
    /// By its name a `Result`: `io::Result<()>` and an alias `PayResult` are.
    is_result: bool,
}

impl Output {
    fn of(function: &Function) -> Self {
        let Some(output) = function.output() else {
            // There is no type to point at, so that messages point at the function's name.
            return Self {
                written: quote_spanned!(function.signature.ident.span()=> ()),
                is_result: false,
            };
        };
        let mut output = output.clone();
        EraseImplTrait.visit_type_mut(&mut output);
        let is_result = match &output {
            Type::Path(path) => path
                .path
                .segments
                .last()
                .is_some_and(|last| last.ident.to_string().ends_with("Result")),
            _ => false,
        };
        Self {
            written: output.into_token_stream(),
            is_result,
        }
    }

    /// A branch that is never taken and tells the compiler the type of the block that it stands in, so that `?` and
    /// an early `return` know what to convert to.
    fn edge(&self) -> TokenStream {
        let output = &self.written;
        quote_spanned! {located_at(output)=>
            if false {
                return __lock_core::returned::<#output>();
            }
        }
    }
}

/// Replaces `impl Trait`, which may not stand inside a body, with `_`.
struct EraseImplTrait;

impl VisitMut for EraseImplTrait {
    fn visit_type_mut(&mut self, node: &mut Type) {
        if let Type::ImplTrait(_) = node {
            *node = Type::Infer(syn::TypeInfer {
                underscore_token: Token![_](site()),
            });
        } else {
            visit_mut::visit_type_mut(self, node);
        }
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

/// Our names at the place of the user's tokens: messages point there, names still do not clash.
fn located_at(tokens: &impl ToTokens) -> Span {
    let first = tokens.to_token_stream().into_iter().next();
    first.map_or_else(site, |first| site().located_at(first.span()))
}
