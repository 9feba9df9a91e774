//! Durations as they are written in the attribute: `"30s"`, `"1m30s"`.

use std::time::Duration;

/// The longest duration a literal may give.
///
/// Servers and timers count milliseconds in 32 bits here and there; 24 days is the last whole day below that edge.
pub(crate) const LONGEST: Duration = Duration::from_secs(24 * 24 * 60 * 60);

/// The units from the longest to the shortest, with the milliseconds of each.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration literal.
///
/// A literal is one or more whole numbers, each with its unit, from the longest unit to the shortest: no spaces, signs
/// or fractions, so that there is one obvious way to write a duration.
///
/// # Errors
///
/// One sentence that says how to write it instead.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text.is_empty() {
        return Err("an empty duration: write a number with its unit, such as \"30s\"".into());
    }
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (digits, after) = split(rest, |c| c.is_ascii_digit());
        let (unit, after) = split(after, char::is_alphabetic);
        if digits.is_empty() || (unit.is_empty() && !after.is_empty()) {
            return Err(format!(
                "`{text}` is not a duration: write whole numbers with units and nothing between them, such as \"1m30s\""
            ));
        }
        if unit.is_empty() {
            return Err(format!(
                "`{text}` lacks a unit: write a unit, such as \"{text}s\" (the units are ms, s, m and h)"
            ));
        }
        if !UNITS.iter().any(|(name, _)| *name == unit) {
            return Err(format!(
                "unknown unit `{unit}`: the units are ms, s, m and h"
            ));
        }
        // The iterator only moves forward, so a unit that comes twice or too late is not found any more.
        let Some((_, millis)) = units.find(|(name, _)| *name == unit) else {
            return Err(format!(
                "`{text}` mixes up its units: write each unit once, from the longest to the shortest, such as \"1m30s\""
            ));
        };
        total = digits
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(*millis))
            .and_then(|part| total.checked_add(part))
            .filter(|total| *total <= LONGEST.as_millis() as u64)
            .ok_or_else(|| format!("`{text}` is too long: a duration here is at most 24 days"))?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

/// The longest prefix whose characters all pass, and what follows it.
fn split(text: &str, pass: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !pass(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn millis(text: &str) -> u128 {
        parse(text).unwrap().as_millis()
    }

    #[track_caller]
    fn refused(text: &str, because: &str) {
        let message = parse(text).unwrap_err();
        assert!(message.contains(because), "{text:?} gave: {message}");
    }

    #[test]
    fn each_unit_counts_its_milliseconds() {
        assert_eq!(millis("1ms"), 1);
        assert_eq!(millis("1s"), 1_000);
        assert_eq!(millis("1m"), 60_000);
        assert_eq!(millis("1h"), 3_600_000);
    }

    #[test]
    fn units_add_up_from_the_longest_to_the_shortest() {
        assert_eq!(millis("1m30s"), 90_000);
        assert_eq!(millis("1h2m3s4ms"), 3_723_004);
        assert_eq!(millis("2h5ms"), 7_200_005);
    }

    #[test]
    fn a_number_may_exceed_the_next_unit() {
        assert_eq!(millis("90s"), 90_000);
        assert_eq!(millis("1m90s"), 150_000);
    }

    #[test]
    fn zero_is_a_duration() {
        assert_eq!(millis("0s"), 0);
        assert_eq!(millis("0ms"), 0);
    }

    #[test]
    fn the_longest_duration_is_24_days() {
        assert_eq!(parse("576h").unwrap(), LONGEST);
        refused("576h1ms", "at most 24 days");
        refused("577h", "at most 24 days");
    }

    #[test]
    fn numbers_beyond_64_bits_are_too_long() {
        refused("18446744073709551615h", "at most 24 days");
        refused("99999999999999999999999s", "at most 24 days");
    }

    #[test]
    fn a_number_without_a_unit_is_refused() {
        refused("30", "\"30s\"");
        refused("1m30", "lacks a unit");
    }

    #[test]
    fn an_unknown_unit_is_named() {
        refused("3d", "`d`");
        refused("3S", "`S`");
        refused("3us", "`us`");
        refused("3µs", "`µs`");
    }

    #[test]
    fn a_unit_twice_or_out_of_order_is_refused() {
        refused("1s1s", "mixes up");
        refused("30s1m", "mixes up");
    }

    #[test]
    fn anything_else_is_not_a_duration() {
        for text in [
            "s", "-1s", "+1s", "1.5s", "1 s", " 1s", "1s ", "1_000ms", "1s,2ms", "٣s",
        ] {
            refused(text, "not a duration");
        }
        refused("", "empty");
    }
}
