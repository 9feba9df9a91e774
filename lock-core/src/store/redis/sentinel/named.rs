//! A master, as a sentinel names it, and what all sentinels say together. No I/O.
//!
//! Each configuration of a master has an epoch. A sentinel that names an older one only lags behind. In the newest epoch a majority
//! decides: sentinels that were restored from a copy, or set up by hand, may name two masters in one epoch.

/// A master as a sentinel names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis) struct Named {
    /// The name of the master at its sentinels.
    pub(in crate::store::redis) name: Box<str>,
    pub(in crate::store::redis) epoch: u64,
    pub(in crate::store::redis) host: Box<str>,
    pub(in crate::store::redis) port: u16,
}

impl Named {
    /// A message on the channel of the sentinels: `ip,port,run id,current epoch` of the sentinel and `name,ip,port,epoch` of the master.
    pub(in crate::store::redis) fn in_hello(message: &str) -> Option<Self> {
        let mut words = message.split(',').skip(4);
        let (name, host) = (words.next()?, words.next()?);
        let (port, epoch) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (!host.is_empty() && port > 0).then(|| Self {
            name: name.into(),
            epoch,
            host: host.into(),
            port,
        })
    }

    /// As it is shown.
    pub(in crate::store::redis) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(in crate::store::redis) fn is_at_address_of(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}

/// What the sentinels say together.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Agreement {
    /// None has answered.
    None,
    On(Named),
    /// In the newest epoch no master has a majority. Who names which.
    Split(String),
}

/// The agreement of these sentinels, each with the master that it names.
pub(in crate::store::redis) fn agreement<'a>(
    votes: impl Iterator<Item = (&'a str, &'a Named)>,
) -> Agreement {
    let mut votes: Vec<_> = votes.collect();
    let Some(newest) = votes.iter().map(|(_, named)| named.epoch).max() else {
        return Agreement::None;
    };
    votes.retain(|(_, named)| named.epoch == newest);
    let votes_for = |master: &Named| {
        let same = votes
            .iter()
            .filter(|(_, named)| named.is_at_address_of(master));
        same.count()
    };
    let majority = |(_, named): &&(&str, &Named)| votes_for(named) * 2 > votes.len();
    if let Some((_, named)) = votes.iter().find(majority) {
        return Agreement::On((*named).clone());
    }
    let each = votes.iter();
    let each = each.map(|(sentinel, named)| format!("{sentinel} names {}", named.address()));
    Agreement::Split(each.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(epoch: u64, port: u16) -> Named {
        let hello = format!("h,1,r,1,orders,10.0.0.1,{port},{epoch}");
        Named::in_hello(&hello).unwrap()
    }

    fn of(votes: &[(u64, u16)]) -> Agreement {
        let votes: Vec<_> = votes
            .iter()
            .map(|(epoch, port)| named(*epoch, *port))
            .collect();
        agreement(votes.iter().map(|named| ("s", named)))
    }

    #[test]
    fn a_majority_in_the_newest_epoch_decides() {
        assert_eq!(of(&[]), Agreement::None);
        assert_eq!(of(&[(3, 1)]), Agreement::On(named(3, 1)));
        assert_eq!(of(&[(3, 2), (3, 1), (3, 1)]), Agreement::On(named(3, 1)));
        // The leader of a failover is the first to know.
        assert_eq!(of(&[(3, 1), (3, 1), (4, 2)]), Agreement::On(named(4, 2)));
        let split = Agreement::Split("s names 10.0.0.1:1, s names 10.0.0.1:2".to_owned());
        assert_eq!(of(&[(2, 1), (3, 1), (3, 2)]), split);
    }

    #[test]
    fn a_message_that_is_no_hello_is_nothing() {
        for message in [
            "",
            "a,b",
            "h,1,r,1,m,,1,1",
            "h,1,r,1,m,h,0,1",
            "h,1,r,1,m,h,70000,1",
            "h,1,r,1,m,h,1,-1",
        ] {
            assert_eq!(Named::in_hello(message), None, "{message}");
        }
    }
}
