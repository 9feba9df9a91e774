//! The handles of programs without async code: each kind of lock names in its own file what its async handle has.

/// The blocking face of a kind of lock: the options of its handle, the verbs that give a guard, and other calls.
macro_rules! blocking_face {
    (
        $Handle:ident:
        $(options { $($option:ident),+ })? $(sets { $($set:ident($value:ident: $set_type:ty)),+ })?
        $(takes { $($acquire:ident $within:ident $try:ident -> $Guard:ident;)+ })?
        calls { $(fn $call:ident($($call_arg:ident: $call_type:ty),*) -> $output:ty $(, $made:ident)?;)* }
    ) => {
        impl $crate::face::blocking::Blocking<$Handle> {
            $(
                $crate::face::options::options! { $($option),+ }

                fn each(self, change: impl Fn(&mut $crate::face::handle::LockHandle)) -> Self {
                    self.map(|handle| handle.each(change))
                }
            )?

            $($(
                #[doc = concat!("As [`", stringify!($Handle), "::", stringify!($set), "`].")]
                pub fn $set(self, $value: $set_type) -> Self {
                    self.map(|handle| handle.$set($value))
                }
            )+)?

            $crate::face::blocking_face::blocking_calls! { $Handle:
                $($(
                    fn $acquire() -> $crate::face::blocking_guard::BlockingGuard<$Guard>, held;
                    fn $within(limit: Duration) -> $crate::face::blocking_guard::BlockingGuard<$Guard>, held;
                    fn $try() -> Option<$crate::face::blocking_guard::BlockingGuard<$Guard>>, tried;
                )+)?
                $(fn $call($($call_arg: $call_type),*) -> $output $(, $made)?;)*
            }
        }
    };
}

/// Methods that are those of the async handle, on this thread.
macro_rules! blocking_calls {
    ($Handle:ident: $(fn $call:ident($($arg:ident: $type:ty),*) -> $output:ty $(, $made:ident)?;)*) => {
        $(
            #[doc = concat!("As [`", stringify!($Handle), "::", stringify!($call), "`], on this thread, which waits.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`", stringify!($Handle), "::", stringify!($call), "`].")]
            ///
            /// # Panics
            ///
            /// In an async task.
            #[track_caller]
            pub fn $call(&self, $($arg: $type),*) -> Result<$output, LockError> {
                let done = self.block_on(self.face().$call($($arg),*));
                $(let done = done.map(|taken| self.$made(taken));)?
                done
            }
        )*
    };
}

pub(crate) use {blocking_calls, blocking_face};
