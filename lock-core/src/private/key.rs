//! Keys put together from a template and its values.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Display, Formatter, Write};

/// A key under construction.
///
/// The text of the template is copied. Values are escaped, so that no value can look like a part of the template:
/// `order:{user}:{id}` gives different keys for different pairs, whatever the values contain.
///
/// The template and its values come in one call of `format_args!`; a `Value` marks the text that it writes.
#[derive(Debug)]
pub struct Key {
    text: RefCell<String>,
    escape: bool,
    /// Whether a value is being written.
    in_value: Cell<bool>,
}

impl Key {
    /// The empty key.
    #[must_use]
    pub fn new(escape: bool) -> Self {
        Self {
            // Most keys fit, so this is the only allocation.
            text: RefCell::new(String::with_capacity(48)),
            escape,
            in_value: Cell::new(false),
        }
    }

    /// Adds text without escaping.
    pub fn text<T: AsRef<str> + ?Sized>(&self, text: &T) {
        self.text.borrow_mut().push_str(text.as_ref());
    }

    /// Adds a template with its values.
    pub fn write(&self, template: fmt::Arguments<'_>) {
        // Writing fails only if the `Display` of a value fails; then the key has the text written so far.
        let _ = Escape(self).write_fmt(template);
    }

    /// A value of a template.
    #[must_use]
    pub fn value<'a, T: ?Sized>(&'a self, value: &'a T) -> Value<'a, T> {
        Value { key: self, value }
    }

    /// A parameter marked with `#[key]`.
    pub fn part<T: ?Sized>(&self, value: &Shown<'_, T>) {
        self.write(format_args!(":{value}"));
    }

    /// The key.
    #[must_use]
    pub fn finish(self) -> String {
        self.text.into_inner()
    }
}

/// A part of a key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a lock's key",
    label = "a part of a key is text, a number, or another type with `Display`",
    note = "name what is inside it, such as a field of a struct, or the value of an `Option`"
)]
pub trait KeyPart {
    /// Writes the value as the key shows it, before special characters are escaped.
    fn show(&self, f: &mut Formatter<'_>) -> fmt::Result;

    #[doc(hidden)]
    fn in_key<'a>(&'a self, key: &'a Key) -> Shown<'a, Self> {
        Shown {
            value: Value { key, value: self },
            show: Self::show,
        }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyPart for T {
    fn show(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.fmt(f)
    }
}

/// A value that is shown by its `Display`. Its type has no bound, so that a wrong type is one error, not two.
#[derive(Debug)]
pub struct Shown<'a, T: ?Sized> {
    value: Value<'a, T>,
    show: fn(&T, &mut Formatter<'_>) -> fmt::Result,
}

impl<T: ?Sized> Display for Shown<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Value { key, value } = self.value;
        key.in_value.set(true);
        let result = (self.show)(value, f);
        key.in_value.set(false);
        result
    }
}

/// A key that is made by an expression.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key of a lock",
    label = "a key that is an expression is a `String` or a `&str`",
    note = "or write the key as a format string, with the value in braces"
)]
pub trait KeyText {
    /// The key.
    fn to_key(&self) -> String;
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<str> + ?Sized> KeyText for T {
    fn to_key(&self) -> String {
        self.as_ref().to_owned()
    }
}

/// A value on its way into a key. Formats as the value itself does, with every flag of the placeholder.
#[derive(Clone, Copy)]
pub struct Value<'a, T: ?Sized> {
    key: &'a Key,
    value: &'a T,
}

macro_rules! as_the_value {
    ($($format:ident)*) => {$(
        impl<T: fmt::$format + ?Sized> fmt::$format for Value<'_, T> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                self.key.in_value.set(true);
                let result = self.value.fmt(f);
                self.key.in_value.set(false);
                result
            }
        }
    )*};
}

as_the_value! { Display Debug LowerHex UpperHex LowerExp UpperExp Octal Binary Pointer }

struct Escape<'a>(&'a Key);

impl Write for Escape<'_> {
    fn write_str(&mut self, mut rest: &str) -> fmt::Result {
        let mut text = self.0.text.borrow_mut();
        if self.0.escape && self.0.in_value.get() {
            while let Some(at) = rest.find(['%', ':', '{', '}']) {
                text.push_str(&rest[..at]);
                text.push_str(match rest.as_bytes()[at] {
                    b'%' => "%25",
                    b':' => "%3A",
                    b'{' => "%7B",
                    _ => "%7D",
                });
                rest = &rest[at + 1..];
            }
        }
        text.push_str(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(escape: bool, user: &str, id: &str) -> String {
        let key = Key::new(escape);
        key.write(format_args!(
            "order:{}:{id}",
            key.value(user),
            id = key.value(id)
        ));
        key.finish()
    }

    #[test]
    fn a_value_never_breaks_out_of_its_place() {
        assert_eq!(order(true, "a", "7"), "order:a:7");
        assert_eq!(order(true, "a:b", "{c}"), "order:a%3Ab:%7Bc%7D");
        assert_ne!(order(true, "a:b", "c"), order(true, "a", "b:c"));
        assert_ne!(order(true, "%3A", ""), order(true, ":", ""));
        assert_eq!(order(true, "käse", "%"), "order:käse:%25");
    }

    #[test]
    fn without_escaping_values_are_left_alone() {
        assert_eq!(order(false, "a:b", "{c}"), "order:a:b:{c}");
    }

    #[test]
    fn the_flags_of_a_placeholder_reach_the_value() {
        let key = Key::new(true);
        key.write(format_args!(
            "{:>05}|{:#x}|{:?}|{:.1}",
            key.value(&7),
            key.value(&255),
            key.value("a:b"),
            key.value(&0.25)
        ));
        assert_eq!(key.finish(), "00007|0xff|\"a%3Ab\"|0.2");
    }

    #[test]
    fn parts_follow_with_a_colon() {
        let key = Key::new(true);
        key.text("shop::pay");
        key.part(&7.in_key(&key));
        key.part(&"a:b".in_key(&key));
        assert_eq!(key.finish(), "shop::pay:7:a%3Ab");
    }

    /// A value whose text is made with another key.
    struct Nested;

    impl Display for Nested {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            f.write_str(&order(true, ":", "1"))?;
            f.write_str(":end")
        }
    }

    #[test]
    fn keys_may_be_made_while_a_key_is_made() {
        let key = Key::new(true);
        key.part(&Nested.in_key(&key));
        assert_eq!(key.finish(), ":order%3A%253A%3A1%3Aend");
    }
}
