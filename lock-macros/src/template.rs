//! A key literal, taken apart at compile time.
//!
//! The library checks every key when it is used; a literal can be checked before the program ever runs. What only the
//! formatting machinery of Rust can judge (a capture that names nothing, a stray brace) is left to it: its messages
//! point inside the literal.

/// The longest key, in bytes.
const LONGEST: usize = 1024;

/// A key literal, read as the format string it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) pieces: Vec<Piece>,
    /// A brace was opened or closed in a way that is no format string.
    pub(crate) malformed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// With `{{` and `}}` read as the braces they stand for.
    Text(String),
    /// What stands before the colon, and the format spec with its colon.
    Placeholder { argument: String, spec: String },
}

impl Template {
    pub(crate) fn new(literal: &str) -> Self {
        let mut template = Self::default();
        let mut text = String::new();
        let mut chars = literal.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' | '}' if chars.next_if_eq(&c).is_some() => text.push(c),
                '{' => {
                    template.text(&mut text);
                    let mut inside = String::new();
                    // A format spec holds no brace but an escaped fill, which is no key anyone writes.
                    loop {
                        match chars.next() {
                            Some('}') => break,
                            Some(c) => inside.push(c),
                            None => {
                                template.malformed = true;
                                break;
                            }
                        }
                    }
                    let (argument, spec) = inside.split_at(end_of_argument(&inside));
                    template.pieces.push(Piece::Placeholder {
                        argument: argument.into(),
                        spec: spec.into(),
                    });
                }
                '}' => template.malformed = true,
                other => text.push(other),
            }
        }
        template.text(&mut text);
        template
    }

    fn text(&mut self, text: &mut String) {
        if !text.is_empty() {
            self.pieces.push(Piece::Text(std::mem::take(text)));
        }
    }

    /// The key itself, where there is nothing to format.
    pub(crate) fn verbatim(&self) -> Option<&str> {
        match &*self.pieces {
            [Piece::Text(text)] if !self.malformed => Some(text),
            _ => None,
        }
    }

    /// Why no value of the placeholders could make this a key, in one sentence.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.malformed {
            return None;
        }
        let mut fixed = 0;
        let mut whole = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => {
                    fixed += text.len();
                    whole.push_str(text);
                }
                // Any text, so that a tag around a placeholder is not empty.
                Piece::Placeholder { .. } => whole.push('\0'),
            }
        }
        if whole.is_empty() {
            return Some("the key is empty: a lock needs a name of 1 to 1024 bytes");
        }
        if fixed > LONGEST {
            return Some("the key is too long: a lock's name has at most 1024 bytes");
        }
        if !tag_is_well_formed(&whole) {
            return Some(
                "the braces of the key are not one `{tag}`: write at most one non-empty tag (`{{tag}}` in a format string)",
            );
        }
        None
    }
}

/// Where the format spec of a placeholder begins: at the first colon that is not part of a path or of a call's arguments.
fn end_of_argument(inside: &str) -> usize {
    let mut depth = 0_usize;
    let mut in_path = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if in_path => in_path = false,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => {
                let after = inside[at + 1..].strip_prefix(':').unwrap_or_default();
                // `{a::B}` is a path; `{a::>8}` fills with colons.
                in_path = after.starts_with(|c: char| c.is_alphabetic() || c == '_');
                if !in_path {
                    return at;
                }
            }
            _ => {}
        }
    }
    inside.len()
}

/// The argument that the spec takes as a width or precision (`5` of `:>5$`), and whether it takes one by order (`.*`).
pub(crate) fn counts(spec: &str) -> (Vec<&str>, bool) {
    let ends_word = |c: char| !(c.is_alphanumeric() || c == '_');
    let named = spec.match_indices('$').filter_map(|(end, _)| {
        let before = &spec[..end];
        let start = before.rfind(ends_word).map_or(0, |at| at + 1);
        (start < end).then_some(&before[start..])
    });
    (named.collect(), spec.contains(".*"))
}

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
        assert_eq!(
            Template::new("report:daily").verbatim(),
            Some("report:daily")
        );
    }

    #[test]
    fn escaped_braces_need_no_formatting_and_placeholders_do() {
        assert_eq!(Template::new("order:{id}").verbatim(), None);
        assert_eq!(Template::new("{{order}}:1").verbatim(), Some("{order}:1"));
    }

    #[track_caller]
    fn placeholder(literal: &str, argument: &str, spec: &str) {
        let expected = Piece::Placeholder {
            argument: argument.into(),
            spec: spec.into(),
        };
        assert_eq!(Template::new(literal).pieces, [expected], "{literal:?}");
    }

    #[test]
    fn a_placeholder_is_an_argument_and_a_spec() {
        placeholder("{}", "", "");
        placeholder("{0}", "0", "");
        placeholder("{id:>08}", "id", ":>08");
        placeholder("{x:?}", "x", ":?");
        placeholder("{self.tenant}", "self.tenant", "");
        placeholder("{order.id():>4}", "order.id()", ":>4");
        placeholder("{pair.0.1:?}", "pair.0.1", ":?");
    }

    #[test]
    fn a_double_colon_is_a_path_where_a_name_follows() {
        placeholder("{Self::PREFIX}", "Self::PREFIX", "");
        placeholder("{Self::PREFIX:>4}", "Self::PREFIX", ":>4");
        placeholder("{id::>8}", "id", "::>8");
        placeholder("{x.of(a::B):?}", "x.of(a::B)", ":?");
    }

    #[test]
    fn widths_and_precisions_are_counts() {
        assert_eq!(counts(":>width$"), (vec!["width"], false));
        assert_eq!(counts(":>1$.precision$"), (vec!["1", "precision"], false));
        assert_eq!(counts(":.*"), (vec![], true));
        assert_eq!(counts(":$>8"), (vec![], false));
        assert_eq!(counts(":?"), (vec![], false));
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
            assert_eq!(Template::new(literal).verbatim(), None, "{literal:?}");
        }
    }
}
