//! Numbers as the server reads and writes them.

/// The number a text stands for, where it is written as the server itself would write it: no sign of its own, no leading zero,
/// no space.
pub(crate) fn parse(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', ..] => digits.len() <= 19 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !canonical {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number of Lua as an argument of a command: `%.17g` of C.
pub(crate) fn argument(number: f64) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() {
            "-nan"
        } else {
            "nan"
        }
        .into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    // Seventeen digits and the exponent, as rounded by the standard library.
    let scientific = format!("{number:.16e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        return trimmed(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

/// Without the zeros behind the point, and without the point where nothing stands behind it.
fn trimmed(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{argument, parse};

    #[test]
    fn only_the_canonical_form_of_a_number_is_read() {
        assert_eq!(parse(b"0"), Some(0));
        assert_eq!(parse(b"-12"), Some(-12));
        assert_eq!(parse(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse(b"-9223372036854775808"), Some(i64::MIN));
        let others = [
            "",
            "-",
            "-0",
            "+1",
            "01",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "1e3",
        ];
        for other in others {
            assert_eq!(parse(other.as_bytes()), None, "{other:?}");
        }
    }

    #[test]
    fn a_number_of_lua_keeps_all_its_digits() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1500.0, "-1500"),
            (0.1, "0.10000000000000001"),
            (0.5, "0.5"),
            (1.5e-5, "1.5e-05"),
            (1_700_000_000_123_456.0, "1700000000123456"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.25e300, "1.2500000000000001e+300"),
            (2.5e-7, "2.4999999999999999e-07"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(argument(number), text);
        }
    }
}
