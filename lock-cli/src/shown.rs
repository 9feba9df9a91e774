//! What people read: times, tables, and the state of a lock as JSON.

use std::fmt::{Display, Write as _};
use std::io::{self, ErrorKind, Write as _};
use std::time::{Duration, SystemTime};

use lock_core::{FencingToken, LockInfo};
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::exit::SYSTEM;

/// Prints to stdout. A reader that has gone (`| head`) has seen enough.
pub(crate) fn print(text: impl AsRef<[u8]>) {
    let mut out = io::stdout();
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            warn(format_args!("the output: {error}"));
            std::process::exit(i32::from(SYSTEM));
        }
    }
}

/// Says this on stderr. If it cannot be written, the exit code alone tells.
pub(crate) fn warn(line: impl Display) {
    let _ = writeln!(io::stderr(), "lockctl: {line}");
}

/// Prints a line to stdout.
pub(crate) fn say(line: impl Display) {
    print(format!("{line}\n"));
}

/// A time of at least a second in two units, a shorter one in milliseconds.
pub(crate) fn time(time: Duration) -> String {
    let rounded = match time {
        short if short < Duration::from_secs(1) => Duration::from_millis(short.as_millis() as u64),
        short if short < Duration::from_secs(60) => {
            Duration::from_millis(short.as_millis() as u64 / 100 * 100)
        }
        long => Duration::from_secs(long.as_secs()),
    };
    let text = humantime::format_duration(rounded).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// How long ago; a clock that is ahead counts as now.
pub(crate) fn ago(since: SystemTime) -> String {
    time(SystemTime::now().duration_since(since).unwrap_or_default())
}

/// The time as text, for programs.
pub(crate) fn stamp(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// Text that others have chosen, on one line and without what a terminal would carry out.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        if c.is_control() {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// The name of the holder, or of the first one, and the number of the others. A client of another kind may have no name.
pub(crate) fn holder(info: &LockInfo) -> String {
    let name = match info.holder() {
        None | Some("") => "?".to_owned(),
        Some(name) => plain(name),
    };
    match info.holders().len() {
        0 | 1 => name,
        several => format!("{name} and {} more", several - 1),
    }
}

/// Columns as wide as their longest cell, the last one without padding.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].width());
        cells.chain([head[column].width()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let padding = width - cell.width() + 2;
            let _ = write!(line, "{cell}{:padding$}", "");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The state of a lock, without what would permit others to release it.
pub(crate) fn lock(key: &str, info: &LockInfo) -> Value {
    let millis = |time: Duration| time.as_millis() as u64;
    let queue = info
        .queue()
        .iter()
        .map(|waiter| json!({ "name": waiter.name(), "since": waiter.since().map(stamp) }));
    let holders = info.holders().iter().map(|holder| {
        json!({
            "name": holder.name(),
            "since": holder.since().map(stamp),
            "permits": holder.permits(),
            "remaining_ms": millis(holder.remaining()),
        })
    });
    let permits = info
        .permits()
        .map(|(used, max)| json!({ "used": used, "max": max }));
    let mut shown = json!({
        "key": key,
        "held": info.is_held(),
        "holder": info.holder(),
        "held_since": info.held_since().map(stamp),
        "remaining_ms": info.remaining().map(millis),
        "holds": info.holds(),
        "permits": permits,
        "holders": holders.collect::<Vec<_>>(),
        "fence": info.fence().map(FencingToken::get),
        "waiters": info.waiters(),
        "queue": queue.collect::<Vec<_>>(),
        "foreign": info.foreign(),
    });
    if !info.nodes().is_empty() {
        let nodes = info.nodes().iter().map(|node| {
            json!({
                "address": node.address(),
                "holder": node.holder(),
                "remaining_ms": node.remaining().map(millis),
                "error": node.error(),
            })
        });
        shown["nodes"] = nodes.collect();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_at_most_two_units() {
        for (millis, text) in [
            (0, "0s"),
            (7, "7ms"),
            (1234, "1s 200ms"),
            (61_500, "1m 1s"),
            (90_061_000, "1day 1h"),
        ] {
            assert_eq!(time(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn text_of_others_does_nothing_to_a_terminal() {
        assert_eq!(plain("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(plain("k\u{e4}se \u{1f512}"), "k\u{e4}se \u{1f512}");
        let rows = [vec!["\u{9375}".to_owned(), "1".to_owned()]];
        assert_eq!(table(&["K", "N"], &rows), "K   N\n\u{9375}  1\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [
            vec!["a".to_owned(), "1".to_owned()],
            vec!["order:7".to_owned(), String::new()],
        ];
        assert_eq!(
            table(&["KEY", "N"], &rows),
            "KEY      N\na        1\norder:7\n"
        );
    }
}
