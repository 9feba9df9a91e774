//! The options that the handles of several kinds share: each is defined once.

/// Options of a handle, inside its `impl`. Its method `each` changes the settings of its locks. Without docs an option is as that of a
/// `Lock`; a text after its name says what is different.
macro_rules! options {
    (@ $(#[$doc:meta])+ ttl) => { options!(@ $(#[$doc])+ ttl(ttl: Duration) Some(ttl)); };
    (@ $(#[$doc:meta])+ renew) => { options!(@ $(#[$doc])+ renew(renew: bool) renew); };
    (@ $(#[$doc:meta])+ max_hold) => { options!(@ $(#[$doc])+ max_hold(most: Duration) Some(most)); };
    (@ $(#[$doc:meta])+ at_least) => { options!(@ $(#[$doc])+ at_least(least: Duration) least); };
    (@ $(#[$doc:meta])+ default_wait) => { options!(@ $(#[$doc])+ default_wait(limit: Duration) Some(limit)); };
    (@ $(#[$doc:meta])+ unavailable_after) => { options!(@ $(#[$doc])+ unavailable_after(after: Duration) Some(after)); };
    (@ $(#[$doc:meta])+ label) => { options!(@ $(#[$doc])+ label(label: &'static str) label); };
    (@ $(#[$doc:meta])+ $option:ident($value:ident: $type:ty) $set:expr) => {
        $(#[$doc])+
        pub fn $option(self, $value: $type) -> Self {
            self.each(|lock| lock.$option = $set)
        }
    };
    ($($(#[$doc:meta])+ $option:ident)+) => {
        $(options! { @ $(#[$doc])+ $option })+
    };
    ($($option:ident $($more:literal)?),+) => {
        $(options! {
            @ #[doc = concat!("As [`Lock::", stringify!($option), "`](crate::Lock::", stringify!($option), ")", $($more,)? ".")]
            $option
        })+
    };
}

/// What a handle to one key has, beside its options: its name, and what a log shows of it.
macro_rules! named {
    ($Handle:ident) => {
        impl std::fmt::Debug for $Handle {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($Handle))
                    .field("key", &self.key())
                    .field("ttl", &self.handle.ttl)
                    .field("max_hold", &self.handle.max_hold)
                    .field("renew", &self.handle.renew)
                    .finish_non_exhaustive()
            }
        }

        impl $Handle {
            /// The key as it was given, without the prefix.
            #[must_use]
            pub fn key(&self) -> &str {
                self.handle.name()
            }

            pub(crate) fn each(mut self, change: impl Fn(&mut LockHandle)) -> Self {
                change(&mut self.handle);
                self
            }
        }
    };
}

pub(crate) use {named, options};
