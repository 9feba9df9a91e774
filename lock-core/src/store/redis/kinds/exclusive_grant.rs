//! The message of a grant of an exclusive lock: `granted <token> <fence> <reserve> <0|1 others queue> <ttl, ms> <lock>`.

use std::time::Duration;

use crate::base::kind::Kind;
use crate::store::Grant;

/// The token, the grant, and the name of the lock, which may contain spaces.
pub(in crate::store::redis) fn read(words: &str) -> Option<(&str, Grant, &str)> {
    let mut words = words.splitn(6, ' ');
    let mut next = || words.next();
    let (token, fence, reserve, others, ttl) = (next()?, next()?, next()?, next()?, next()?);
    let fence = fence.parse().ok()?;
    let grant = Grant {
        kind: Kind::Exclusive,
        order: fence,
        fence,
        reserve: reserve.parse().ok()?,
        contended: others.split(',').next() == Some("1"),
        ttl: Duration::from_millis(ttl.parse().ok()?),
    };
    Some((token, grant, next()?))
}
