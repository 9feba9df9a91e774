//! The owner for which an annotated function acquires a reentrant lock.

use crate::base::owner::Owner;

/// The possible values of `owner = expr`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no owner of a lock",
    label = "`owner` takes an `Owner`, or an `Option<Owner>` where there may be none",
    note = "`Owner::parse(text)?` makes an owner of the text that came with a request"
)]
pub trait NamesOwner {
    /// The owner, if there is one.
    fn named(&self) -> Option<&Owner>;
}

impl NamesOwner for Owner {
    fn named(&self) -> Option<&Owner> {
        Some(self)
    }
}

#[diagnostic::do_not_recommend]
impl<O: NamesOwner> NamesOwner for Option<O> {
    fn named(&self) -> Option<&Owner> {
        self.as_ref().and_then(O::named)
    }
}

#[diagnostic::do_not_recommend]
impl<O: NamesOwner + ?Sized> NamesOwner for &O {
    fn named(&self) -> Option<&Owner> {
        (**self).named()
    }
}

/// `owner = expr`. A request without an owner counts as a call without one.
pub fn owner<O: NamesOwner + ?Sized>(given: &O) -> Owner {
    given.named().cloned().unwrap_or_else(enclosing_owner)
}

/// The owner of the enclosing scope, or, outside of any, a new one, in whose scope the body runs.
#[must_use]
pub fn enclosing_owner() -> Owner {
    Owner::current().unwrap_or_else(Owner::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_owner_that_is_named_goes_before_the_enclosing_one() {
        let (outer, given) = (Owner::new(), Owner::new());
        outer
            .scope(async {
                assert_eq!(enclosing_owner(), outer);
                assert_eq!(owner(&given), given);
                assert_eq!(owner(&&given), given);
                assert_eq!(owner(&Some(&given)), given);
                assert_eq!(owner(&Some(given.clone()).as_ref()), given);
                assert_eq!(owner(&None::<Owner>), outer);
            })
            .await;
        assert_ne!(enclosing_owner(), enclosing_owner());
    }
}
