//! A master, as a sentinel names it.

/// A master as a sentinel names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// The name of the master at its sentinels.
    pub(super) name: Box<str>,
    pub(super) epoch: u64,
    pub(super) host: Box<str>,
    pub(super) port: u16,
}

impl Named {
    /// A message on the channel of the sentinels: `ip,port,run id,current epoch` of the sentinel and `name,ip,port,epoch` of the master.
    pub(super) fn in_hello(message: &str) -> Option<Self> {
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
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(super) fn is_at_address_of(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }
}
