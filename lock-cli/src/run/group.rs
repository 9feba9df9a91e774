//! The process group of the command.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// A group by the process that leads it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group(Pid);

impl Group {
    pub(super) fn led_by(pid: i32) -> Option<Self> {
        Pid::from_raw(pid).map(Self)
    }

    pub(super) fn pid(self) -> Pid {
        self.0
    }

    /// An error means that no process is left, or that it belongs to another user.
    pub(super) fn send(self, signal: Signal) {
        let _ = kill_process_group(self.0, signal);
    }

    /// Asks all processes to end. A stopped process must continue to do so.
    pub(super) fn end(self) {
        self.send(Signal::TERM);
        self.send(Signal::CONT);
    }

    /// Whether a process of the group runs, also as another user. A process that has ended and was not waited for does not run.
    pub(super) fn runs(self) -> bool {
        test_kill_process_group(self.0) != Err(Errno::SRCH) && self.has_process().unwrap_or(true)
    }

    /// By the list of processes; `None` if the system has none.
    fn has_process(self) -> Option<bool> {
        let processes = std::fs::read_dir("/proc").ok()?.flatten();
        let mut stats = processes
            .filter(|process| {
                let name = process.file_name();
                name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
            })
            // A process that has ended since has no file.
            .filter_map(|process| std::fs::read(process.path().join("stat")).ok())
            .peekable();
        stats.peek()?;
        Some(stats.any(|stat| self.is_led(&stat).unwrap_or(false)))
    }

    /// `stat` is `pid (name) state parent group ..`, and the name is anything.
    fn is_led(self, stat: &[u8]) -> Option<bool> {
        let name_ends = stat.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(&stat[name_ends + 1..]).ok()?;
        let mut words = rest.split_whitespace();
        let (state, group) = (words.next()?, words.nth(1)?);
        let own = self.0.as_raw_nonzero().get();
        Some(!matches!(state, "Z" | "X") && group.parse() == Ok(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_parent_that_waits_counts_as_ended() {
        let group = Group::led_by(7).unwrap();
        for (stat, runs) in [
            ("8 (sh) S 1 7 7", true),
            ("8 (a) b) Z 1) S 1 7 7", true),
            ("7 (sh) Z 1 7 7", false),
            ("8 (sh) S 7 8 7", false),
        ] {
            assert_eq!(group.is_led(stat.as_bytes()), Some(runs), "{stat}");
        }
    }
}
