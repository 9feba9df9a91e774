use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Below the range from which the kernel takes the ports of outgoing
/// connections. A server that is killed and comes back on its port must not
/// find that a client (perhaps one reconnecting to that very port) got it.
const RANGE: std::ops::Range<u16> = 10_000..32_000;

/// A loopback port that was free just now.
///
/// Another process may take it before it is used: callers try again.
pub(crate) fn free() -> u16 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64);
    let mut seed = clock ^ (u64::from(std::process::id()) << 32);
    for _ in 0..1000 {
        seed = mix(seed ^ COUNT.fetch_add(1, Ordering::Relaxed));
        let port = RANGE.start + (seed % RANGE.len() as u64) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free loopback port in {RANGE:?}");
}

/// Spreads the bits (the finaliser of the splitmix64 generator).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
