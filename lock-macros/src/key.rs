//! What a key literal gives away at compile time.
//!
//! The library checks every key when it is used; a literal can be checked before the program ever runs. What only the
//! formatting machinery of Rust can judge (a capture that names nothing, a stray brace) is left to it: its messages
//! point inside the literal.

/// The longest key, in bytes.
const LONGEST: usize = 1024;

/// A key literal, read as the format string it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// The text between the placeholders, with `{{` and `}}` read as the braces they stand for.
    text: String,
    placeholders: usize,
    /// A brace was opened or closed in a way that is no format string.
    malformed: bool,
}

impl Template {
    pub(crate) fn new(literal: &str) -> Self {
        let mut template = Self {
            text: String::new(),
            placeholders: 0,
            malformed: false,
        };
        let mut chars = literal.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' | '}' if chars.next_if_eq(&c).is_some() => template.text.push(c),
                '{' => {
                    template.placeholders += 1;
                    // A format spec holds no brace but an escaped fill, which is no key anyone writes.
                    if !chars.by_ref().any(|c| c == '}') {
                        template.malformed = true;
                    }
                    template.text.push(PLACEHOLDER);
                }
                '}' => template.malformed = true,
                other => template.text.push(other),
            }
        }
        template
    }

    /// The key is the literal itself: nothing to format, nothing to unescape.
    pub(crate) fn is_verbatim(&self, literal: &str) -> bool {
        self.placeholders == 0 && !self.malformed && self.text == literal
    }

    /// Why no value of the placeholders could make this a key, in one sentence.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.malformed {
            return None;
        }
        if self.text.is_empty() {
            return Some("the key is empty: a lock needs a name of 1 to 1024 bytes");
        }
        if self.text.len() - self.placeholders * PLACEHOLDER.len_utf8() > LONGEST {
            return Some("the key is too long: a lock's name has at most 1024 bytes");
        }
        if !tag_is_well_formed(&self.text) {
            return Some(
                "the braces of the key are not one `{tag}`: write at most one non-empty tag (`{{tag}}` in a format string)",
            );
        }
        None
    }
}

/// Stands for a value in [`Template::text`], so that a tag around a placeholder is not empty.
const PLACEHOLDER: char = '\0';

/// No braces at all, or one opening brace and one closing brace with something between them.
fn tag_is_well_formed(text: &str) -> bool {
    match (text.find('{'), text.find('}')) {
        (None, None) => true,
        (Some(open), Some(close)) => {
            close > open + 1 && !text[open + 1..].contains('{') && !text[close + 1..].contains('}')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn good(literal: &str) {
        assert_eq!(Template::new(literal).problem(), None, "{literal:?}");
    }

    #[track_caller]
    fn refused(literal: &str, because: &str) {
        let problem = Template::new(literal)
            .problem()
            .unwrap_or_else(|| panic!("{literal:?} passed"));
        assert!(problem.contains(because), "{literal:?} gave: {problem}");
    }

    #[test]
    fn plain_text_is_a_verbatim_key() {
        good("report:daily");
        assert!(Template::new("report:daily").is_verbatim("report:daily"));
    }

    #[test]
    fn placeholders_and_escapes_are_formatted() {
        assert!(!Template::new("order:{id}").is_verbatim("order:{id}"));
        assert!(!Template::new("{{order}}").is_verbatim("{{order}}"));
    }

    #[test]
    fn an_empty_key_is_refused() {
        refused("", "empty");
    }

    #[test]
    fn a_lone_placeholder_is_a_key() {
        good("{id}");
        good("{id:>8}");
    }

    #[test]
    fn a_key_has_at_most_1024_bytes() {
        good(&"k".repeat(1024));
        refused(&"k".repeat(1025), "too long");
        refused(&"é".repeat(513), "too long");
    }

    #[test]
    fn only_the_fixed_text_counts_towards_the_length() {
        good(&format!("{}{{a_long_parameter}}", "k".repeat(1024)));
        refused(&format!("{}{{id}}", "k".repeat(1025)), "too long");
    }

    #[test]
    fn escaped_braces_count_once() {
        good(&format!("{{{{t}}}}{}", "k".repeat(1021)));
    }

    #[test]
    fn one_tag_is_well_formed() {
        good("{{orders}}:1");
        good("{{orders}}:{id}");
        good("{{{user}}}:cart");
    }

    #[test]
    fn any_other_braces_are_refused() {
        for literal in [
            "{{}}",
            "a{{",
            "a}}",
            "}}a{{",
            "{{a}}{{b}}",
            "{{a{{b}}",
            "{{a}}b}}",
            "{{a:{id}",
        ] {
            refused(literal, "`{tag}`");
        }
    }

    #[test]
    fn a_malformed_format_string_is_left_to_the_compiler() {
        for literal in ["order:{", "order:}", "{a}}"] {
            good(literal);
            assert!(!Template::new(literal).is_verbatim(literal), "{literal:?}");
        }
    }
}
