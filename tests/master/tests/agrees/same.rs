//! What counts as the same answer, where a real clock moves on.

/// The server looks at its clock a little later than the master was told the time.
const LATE_SECONDS: i128 = 2;

/// Whether two answers are the same but for how late it is. All that is not a number is compared byte for byte. `in_seconds` tells
/// whether the answer is a ttl in seconds, which is too small a number to be known as a time.
pub(crate) fn same(real: &[u8], ours: &[u8], now_micros: u64, in_seconds: bool) -> bool {
    if real == ours {
        return true;
    }
    let (mut real, mut ours) = (words(real), words(ours));
    loop {
        match (real.next(), ours.next()) {
            (None, None) => return true,
            (Some(real), Some(ours))
                if real == ours || close(real, ours, now_micros, in_seconds) => {}
            _ => return false,
        }
    }
}

/// Cut where numbers may begin.
fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b':' | b';'))
}

fn close(real: &[u8], ours: &[u8], now_micros: u64, in_seconds: bool) -> bool {
    let (Some(real), Some(ours)) = (number(real), number(ours)) else {
        return false;
    };
    let (now, apart) = (i128::from(now_micros), (real - ours).abs());
    // A time of the clock in this unit, or one not far from it.
    let is_time = |unit: i128| {
        let second = 1_000_000 / unit;
        (now / unit - real).abs() < 100 * second && apart <= LATE_SECONDS * second
    };
    // Numbers of sixteen digits are fencing tokens.
    let is_token = real.to_string().len() == 16;
    let is_ttl = real >= 1_000 && !is_token && apart <= LATE_SECONDS * 1_000;
    let is_ttl = is_ttl || (in_seconds && real > 0 && ours > 0 && apart <= LATE_SECONDS);
    is_ttl || is_time(1) || is_time(1_000) || is_time(1_000_000)
}

fn number(text: &[u8]) -> Option<i128> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
