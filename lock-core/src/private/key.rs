//! Keys put together from a template and its parts.

use std::fmt::{self, Write};

/// A key in the making.
///
/// What stands in the template is taken as it is. What comes from values is escaped, so that no value can look like a
/// part of the template: `order:{user}:{id}` gives different keys for different pairs, whatever the values hold.
#[derive(Debug, Default)]
pub struct Key(String);

impl Key {
    /// The empty key.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Text of the template.
    pub fn text(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// A value, with `%`, `{`, `}` and `:` in it percent-escaped.
    pub fn part(&mut self, value: fmt::Arguments<'_>) {
        // Writing to a string fails only if the value's own `Display` does; then the key holds what it wrote.
        let _ = Escape(&mut self.0).write_fmt(value);
    }

    /// A value as it is: `escape = false`.
    pub fn verbatim(&mut self, value: fmt::Arguments<'_>) {
        let _ = self.0.write_fmt(value);
    }

    /// The key.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

struct Escape<'a>(&'a mut String);

impl Write for Escape<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '%' => self.0.push_str("%25"),
                ':' => self.0.push_str("%3A"),
                '{' => self.0.push_str("%7B"),
                '}' => self.0.push_str("%7D"),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_never_breaks_out_of_its_place() {
        let key = |user: &str, id: &str| {
            let mut key = Key::new();
            key.text("order:");
            key.part(format_args!("{user}"));
            key.text(":");
            key.part(format_args!("{id}"));
            key.finish()
        };
        assert_eq!(key("a", "7"), "order:a:7");
        assert_eq!(key("a:b", "{c}"), "order:a%3Ab:%7Bc%7D");
        assert_ne!(key("a:b", "c"), key("a", "b:c"));
        assert_ne!(key("%3A", ""), key(":", ""));
    }

    #[test]
    fn verbatim_values_are_left_alone() {
        let mut key = Key::new();
        key.verbatim(format_args!("{:>03}:{{x}}", 7));
        assert_eq!(key.finish(), "007:{x}");
    }
}
