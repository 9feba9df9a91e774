use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Below the range from which the kernel takes the ports of outgoing
/// connections. A server that is killed and comes back on its port must not
/// find that a client (perhaps one reconnecting to that very port) got it.
const RANGE: std::ops::Range<u16> = 10_000..32_000;

/// A loopback port that no other test server gets, in this process or another,
/// while this value lives: also while its own server is down. Else a client of
/// a killed server would talk to the server of another test.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    /// A name that one socket has at a time, and that is free again when its
    /// process has ended, however.
    _claim: UnixListener,
}

impl Port {
    /// A port that was free just now.
    ///
    /// Another program may take it before it is used: callers try again.
    pub(crate) fn free() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let clock = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos() as u64);
        let mut seed = clock ^ (u64::from(std::process::id()) << 32);
        for _ in 0..1000 {
            seed = mix(seed ^ COUNT.fetch_add(1, Ordering::Relaxed));
            let number = RANGE.start + (seed % RANGE.len() as u64) as u16;
            if let Some(port) = Self::claim(number)
                && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok()
            {
                return port;
            }
        }
        panic!("no free loopback port in {RANGE:?}");
    }

    fn claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("lock-tests-port-{number}")).ok()?;
        let claim = UnixListener::bind_addr(&name).ok()?;
        Some(Self {
            number,
            _claim: claim,
        })
    }
}

/// Spreads the bits (the finaliser of the splitmix64 generator).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::Port;

    #[test]
    fn a_port_belongs_to_one_until_it_is_dropped() {
        let port = Port::free();
        let number = port.number;
        assert!(Port::claim(number).is_none());
        drop(port);
        assert_eq!(Port::claim(number).unwrap().number, number);
    }
}
