//! The signals that are for the command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

const PASSED_ON: [Signal; 6] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// The signals that this process handles from now on.
pub(super) struct Signals(Vec<(i32, unix::Signal)>);

impl Signals {
    /// A signal that is ignored stays so, for the command as well: `nohup` and shells without job control rely on it.
    pub(super) fn handle() -> io::Result<Self> {
        let ignored = ignored();
        let handled = PASSED_ON
            .into_iter()
            .map(Signal::as_raw)
            .filter(|number| ignored & (1 << (number - 1)) == 0)
            .map(|number| Ok((number, signal(SignalKind::from_raw(number))?)));
        handled.collect::<io::Result<_>>().map(Self)
    }

    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            for (number, stream) in &mut self.0 {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// A bit for each signal that this process ignores; none if the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or(0)
}
