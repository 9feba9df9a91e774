//! What the function returns, and what it returns where the body does not run.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote_spanned};
use syn::visit_mut::{self, VisitMut};
use syn::{Error, Expr, Result, Token, Type};

use crate::function::Function;
use crate::parse::OnBusy;
use crate::plan::Plan;
use crate::site::{located_at, site};
use crate::stream::stream;

/// What the function's future gives.
pub(crate) struct Output {
    /// The type as it was written, with every `impl Trait` in it left to inference.
    written: TokenStream,
    /// The type itself.
    original: Option<Type>,
    /// By its name a `Result`: `io::Result<()>` and an alias `PayResult` are.
    pub(crate) is_result: bool,
    /// Perhaps a `Result` by another name, which only the compiler knows.
    may_be_result: bool,
}

impl Output {
    pub(crate) fn of(function: &Function) -> Self {
        let Some(output) = function.output() else {
            // There is no type to point at, so that messages point at the function's name.
            return Self {
                written: quote_spanned!(function.signature.ident.span()=> ()),
                original: None,
                is_result: false,
                may_be_result: false,
            };
        };
        let original = Some(output.clone());
        let written = output.to_token_stream().to_string();
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
        let may_be_result = !is_result
            && matches!(output, Type::Path(_))
            && output.to_token_stream().to_string() == written;
        Self {
            written: output.into_token_stream(),
            original,
            is_result,
            may_be_result,
        }
    }

    /// Refuses the return types that can hold nothing but what the body makes, or that let work out of the lock.
    pub(crate) fn check(&self, on_busy: &OnBusy) -> Result<()> {
        let Some(output) = &self.original else {
            return Ok(());
        };
        if let Some(stream) = stream(output) {
            return Err(stream);
        }
        match (output, on_busy) {
            (Type::Never(_), _) => Err(Error::new_spanned(
                output,
                "a function that never returns cannot tell its caller that the lock was not obtained",
            )),
            (Type::ImplTrait(_), OnBusy::Error | OnBusy::Skip) => Err(Error::new_spanned(
                output,
                "`impl Trait` cannot tell the caller that the lock was not obtained: \
                 return a `Result`, or give a value with `on_busy = return = value`",
            )),
            _ => Ok(()),
        }
    }

    /// A branch that is never taken and tells the compiler the type of the block that it stands in, so that `?` and
    /// an early `return` know what to convert to.
    pub(crate) fn edge(&self) -> TokenStream {
        let output = &self.written;
        quote_spanned! {located_at(output)=>
            if false {
                return __lock_core::returned::<#output>();
            }
        }
    }

    /// The statement that returns where the condition does not hold.
    pub(crate) fn unless(&self, when: &Expr, on_busy: &OnBusy) -> TokenStream {
        let value = match on_busy {
            OnBusy::Return(value) => value.to_token_stream(),
            OnBusy::Error | OnBusy::Skip | OnBusy::Call(_) => self.not_due(),
        };
        // The binding states the type, so that a mismatch is about the expression.
        quote_spanned! {site()=>
            let due: __lock_core::bool = #when;
            if !due {
                return #value;
            }
        }
    }

    /// The arm for a busy lock, where a `Result` has room for the other errors.
    pub(crate) fn busy(&self, plan: &Plan) -> Option<TokenStream> {
        if !self.is_result {
            return None;
        }
        let value = match (&plan.on_busy, &plan.map_err) {
            (OnBusy::Error, _) | (OnBusy::Skip, None) => return None,
            (OnBusy::Skip, Some(_)) => self.not_due(),
            (OnBusy::Return(value), _) => value.to_token_stream(),
            (OnBusy::Call(function), _) => self.called(function),
        };
        // The function that is called gets the error, and may say what it likes.
        let is_busy = if matches!(plan.on_busy, OnBusy::Call(_)) {
            quote_spanned!(site()=> is_busy(&error))
        } else {
            quote_spanned!(site()=> is_skipped(&error, options))
        };
        Some(quote_spanned! {site()=>
            __lock_core::Result::Err(error) if __lock_core::#is_busy => return #value,
        })
    }

    /// What the caller gets for `error`.
    pub(crate) fn failed(&self, plan: &Plan) -> TokenStream {
        let output = &self.written;
        if let Some(map) = &plan.map_err {
            return quote_spanned!(located_at(map)=> __lock_core::mapped::<#output>(error, #map));
        }
        match &plan.on_busy {
            OnBusy::Skip => quote_spanned! {located_at(output)=>
                <#output as __lock_core::Skip>::skip(error, options)
            },
            OnBusy::Return(value) if !self.is_result => {
                let room = self.room();
                quote_spanned! {site()=>
                    #room
                    __lock_core::trace_swallowed(&error, options);
                    #value
                }
            }
            OnBusy::Call(function) if !self.is_result => {
                let (room, value) = (self.room(), self.called(function));
                quote_spanned!(site()=> #room #value)
            }
            OnBusy::Error | OnBusy::Return(_) | OnBusy::Call(_) => {
                quote_spanned! {located_at(output)=>
                    <#output as __lock_core::FromLockError>::from_lock_error(error)
                }
            }
        }
    }

    /// The statements that return an error other than contention, if the type turns out to be a `Result`.
    fn room(&self) -> Option<TokenStream> {
        let output = &self.written;
        self.may_be_result.then(|| {
            quote_spanned! {site()=>
                #[allow(unused_imports, reason = "only for a type that is no `Result`")]
                use __lock_core::NoRoom as _;
                let error = match __lock_core::Room::<#output>(__lock_core::PhantomData).failed(error) {
                    __lock_core::Result::Ok(output) => return output,
                    __lock_core::Result::Err(error) => error,
                };
            }
        })
    }

    /// What `function` makes of `error`.
    pub(crate) fn called(&self, function: &Expr) -> TokenStream {
        let output = &self.written;
        quote_spanned!(located_at(function)=> __lock_core::called::<#output>(error, #function))
    }

    /// The value of work that was left out.
    fn not_due(&self) -> TokenStream {
        let output = &self.written;
        quote_spanned!(located_at(output)=> <#output as __lock_core::NotDue>::not_due())
    }
}

/// Replaces `impl Trait`, which may not stand inside a body, with `_`.
struct EraseImplTrait;

impl VisitMut for EraseImplTrait {
    fn visit_type_mut(&mut self, node: &mut Type) {
        if let Type::ImplTrait(_) = node {
            *node = Type::Infer(syn::TypeInfer {
                attrs: Vec::new(),
                underscore_token: Token![_](site()),
            });
        } else {
            visit_mut::visit_type_mut(self, node);
        }
    }
}
