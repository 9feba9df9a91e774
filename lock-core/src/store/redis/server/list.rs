//! The locks of a server, page by page.

use redis::{Cmd, Value, cmd, from_redis_value};

use crate::store::Cursor;
use crate::store::redis::error::garbled;
use crate::store::redis::reply::Parsed;
use crate::store::redis::wire::beginning_with;

/// Number of keys that the server looks at for one page.
const KEYS: u32 = 500;

/// Asks for the values of a type whose names begin so, from this cursor on.
pub(in crate::store::redis) fn page(prefix: &str, of_type: &str, cursor: u64) -> Cmd {
    let mut scan = cmd("SCAN");
    scan.arg(cursor)
        .arg("MATCH")
        .arg(beginning_with(prefix))
        .arg("COUNT")
        .arg(KEYS);
    scan.arg("TYPE").arg(of_type);
    scan
}

/// The names, and the next cursor, 0 after the last page. A name that is no text cannot be that of a lock.
pub(in crate::store) fn scanned(answer: Value) -> Parsed<(Vec<String>, u64)> {
    let (cursor, names): (u64, Vec<Vec<u8>>) = from_redis_value(answer).map_err(|_| garbled())?;
    let names = names
        .into_iter()
        .filter_map(|name| String::from_utf8(name).ok());
    Ok((names.collect(), cursor))
}

/// The names, and the next place on the same server.
pub(in crate::store::redis) fn read(
    answer: Value,
    cursor: Cursor,
) -> Parsed<(Vec<String>, Option<Cursor>)> {
    let (names, on_node) = scanned(answer)?;
    let next = (on_node != 0).then_some(Cursor { on_node, ..cursor });
    Ok((names, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_meant_literally() {
        let scan = page("shop[1]*:", "string", 7).get_packed_command();
        let sent = String::from_utf8(scan).unwrap();
        assert!(sent.contains("\r\nshop\\[1\\]\\*:*\r\n"), "{sent}");
    }
}
