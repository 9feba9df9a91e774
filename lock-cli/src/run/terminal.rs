//! The terminal, if lockctl runs in its foreground: it is the command's while the command runs.

use std::io::{IsTerminal, stdin, stdout};
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::group::Group;

#[derive(Debug, Default)]
pub(super) struct Terminal {
    /// The group that has the terminal from us.
    lent_to: Option<Pid>,
}

impl Terminal {
    /// At the beginning of the command. If the output goes elsewhere, for example to a pager, another process of our group may need
    /// the terminal; the command gets it when it reads from it.
    pub(super) fn lend_at_start(&mut self, group: Group) {
        if stdout().is_terminal() {
            self.lend(group);
        }
    }

    /// Whether the command has the terminal now.
    pub(super) fn lend(&mut self, group: Group) -> bool {
        let is_ours = stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|at| at == getpgrp());
        if is_ours && tcsetpgrp(stdin(), group.pid()).is_ok() {
            self.lent_to = Some(group.pid());
        }
        self.lent_to.is_some()
    }

    pub(super) fn take_back(&mut self) {
        let Some(lent_to) = self.lent_to.take() else {
            return;
        };
        // A command that has given the terminal to others, or a shell that has taken it.
        if tcgetpgrp(stdin()).is_ok_and(|at| at != lent_to) {
            return;
        }
        // A process in the background is stopped when it takes the terminal, unless the thread blocks that signal. A thread of its
        // own, since processes inherit what the thread that starts them blocks.
        let taken = thread::spawn(|| {
            let mut stop = SigSet::empty();
            stop.add(Signal::SIGTTOU);
            if stop.thread_block().is_ok() {
                let _ = tcsetpgrp(stdin(), getpgrp());
            }
        });
        let _ = taken.join();
    }
}
