//! The message of a grant of permits: `permit <token> <granted> <number> <kind> <ttl, ms> <lock>`.

use std::time::Duration;

use crate::base::kind::Kind;
use crate::store::Grant;

/// The token, the grant, and the name of the lock, which may contain spaces. A grant is newer than another one by its own number:
/// readers share their fencing token.
pub(in crate::store::redis) fn read(words: &str) -> Option<(&str, Grant, &str)> {
    let mut words = words.splitn(6, ' ');
    let mut next = || words.next();
    let (token, granted, number, kind, ttl) = (next()?, next()?, next()?, next()?, next()?);
    let grant = Grant {
        kind: Kind::named(kind)?,
        order: granted.parse().ok()?,
        fence: number.parse().ok()?,
        reserve: 0,
        contended: false,
        ttl: Duration::from_millis(ttl.parse().ok()?),
    };
    Some((token, grant, next()?))
}
