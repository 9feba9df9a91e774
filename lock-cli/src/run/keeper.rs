//! The keeper: the parent of the command. It ends the command before the lease ends, also if lockctl is stopped or killed.
//!
//! | state | event | what it does |
//! |---|---|---|
//! | `Waiting` | `begin` | lets the command begin, unless the lease is about to end: `Running` |
//! | `Waiting`, `Running` | the lease is about to end; `lost`; lockctl has died | SIGTERM: `Ending` |
//! | `Ending` | the moment to kill | SIGKILL |
//! | `Waiting`, `Running` | the command has ended by itself | reports it |
//! | `Running` | a signal has ended the command, or was passed on to it | reports it when no process of the group is left |
//! | `Ending` | no process of the group is left | reports it |
//!
//! With `--on-lost warn` it never ends the command. It has no runtime: threads wait for lockctl and for the command, and the main
//! thread looks at the clock at least each [`HEARTBEAT`], since timers stop while the machine is suspended.

use std::io::{self, BufRead, BufReader, Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use super::clock::{Moment, now};
use super::group::Group;
use super::limits::Limits;
use super::signals::Signals;
use super::words::{Cause, Order, Report};
use super::{pass, this_program};
use crate::exit::Failure;
use crate::options::{OnLost, RunKeeper};
use crate::shown;

const HEARTBEAT: Duration = Duration::from_millis(100);
/// Interval between two looks at processes whose leader has ended.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy)]
enum Event {
    Order(Order),
    LockctlDied,
    Stopped(i32),
    Ended(u8),
    /// A signal has ended it.
    Killed(u8),
}

enum State {
    /// The process of the command waits for its stdin.
    Waiting {
        gate: UnixStream,
        stdin: OwnedFd,
    },
    Running,
    /// It has got SIGTERM.
    Ending {
        kill_at: Moment,
    },
}

struct Keeper {
    limits: Limits,
    on_lost: OnLost,
    lockctl: UnixStream,
    child: Child,
    group: Group,
    /// The last that lockctl has told.
    deadline: Moment,
    state: State,
    /// The exit code, when the leader of the group has ended.
    ended: Option<u8>,
    /// Whether a signal was to end the command: then the rest of its group is to end, and may still clean up.
    is_signalled: bool,
}

pub(crate) fn run(options: &RunKeeper) -> Result<ExitCode, Failure> {
    swallow_signals().map_err(|error| Failure::system("no signals", &error))?;
    let socket = stdin().as_fd().try_clone_to_owned();
    let keeper = socket.and_then(|socket| Keeper::new(options, UnixStream::from(socket)));
    let ended = match keeper {
        Ok(Some(keeper)) => keeper.run(),
        // lockctl has died.
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    ended.map_err(|error| Failure::system("no keeper of the command", &error))?;
    Ok(ExitCode::SUCCESS)
}

/// The signals that end a session or a service also reach the keeper, which must not end before the command.
fn swallow_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let _entered = runtime.enter();
    // They stay handled when the runtime has ended.
    Signals::handle().map(drop)
}

impl Keeper {
    fn new(options: &RunKeeper, lockctl: UnixStream) -> io::Result<Option<Self>> {
        let Some(stdin) = pass::receive(&lockctl)? else {
            return Ok(None);
        };
        let (gate, end) = UnixStream::pair()?;
        let mut start = this_program()?;
        start.arg("run-start");
        if options.on_lost == OnLost::Kill {
            start.arg("--with-parent");
        }
        start.arg("--").args(&options.command);
        let child = start.stdin(OwnedFd::from(end)).process_group(0).spawn()?;
        let group = Group::led_by(child.id().cast_signed());
        Ok(Some(Self {
            limits: options.limits.clone(),
            on_lost: options.on_lost,
            lockctl,
            child,
            group: group.ok_or(io::ErrorKind::NotFound)?,
            deadline: Moment::ZERO,
            state: State::Waiting { gate, stdin },
            ended: None,
            is_signalled: false,
        }))
    }

    fn run(mut self) -> io::Result<()> {
        let (events, coming) = channel();
        watch_lockctl(self.lockctl.try_clone()?, events.clone());
        watch_command(self.group, events);
        self.report(Report::Ready(self.group.pid().as_raw_nonzero().get()));
        let cause = self.until_ended(&coming);
        // Nothing follows the report: the number of the process is free again when it was waited for.
        self.report(Report::Ended(self.ended.unwrap_or(u8::MAX), cause));
        self.child.wait().map(drop)
    }

    fn until_ended(&mut self, coming: &Receiver<Event>) -> Cause {
        loop {
            let wait = self.step();
            if self.ended.is_some() {
                match self.state {
                    State::Ending { .. } if self.group.runs() => {}
                    State::Ending { .. } => return Cause::Loss,
                    State::Running if self.is_signalled && self.group.runs() => {}
                    // What it has left behind is its user's.
                    State::Waiting { .. } | State::Running => return Cause::Own,
                }
            }
            match coming.recv_timeout(wait) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                // Both threads have ended, and a wait is still due.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(wait),
            }
        }
    }

    /// What is due by the clock. Returns when to look again.
    fn step(&mut self) -> Duration {
        let now = now();
        let most = if self.ended.is_some() {
            LOOK
        } else {
            HEARTBEAT
        };
        if let State::Ending { kill_at } = self.state {
            if now >= kill_at {
                // Again and again: a process may have come into the group since.
                self.group.send(Signal::KILL);
                return LOOK;
            }
            return kill_at.saturating_sub(now).min(most);
        }
        let end_at = self.limits.end_at(self.deadline);
        let is_told = self.deadline > Moment::ZERO;
        if self.on_lost == OnLost::Warn || !is_told {
            return most;
        }
        if now >= end_at {
            self.end(self.limits.kill_at(self.deadline));
            return Duration::ZERO;
        }
        end_at.saturating_sub(now).min(most)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Order(Order::Deadline(at)) => self.deadline = at,
            Event::Order(Order::Begin) => self.begin(),
            Event::Order(Order::Signal(number)) => self.pass_on(number),
            Event::Order(Order::Lost) => {
                let kill_at = now() + self.limits.grace_when_lost();
                self.end(kill_at.min(self.limits.kill_at(self.deadline)));
            }
            Event::LockctlDied => self.without_lockctl(),
            Event::Stopped(signal) => self.report(Report::Stopped(signal)),
            Event::Ended(code) => self.ended = Some(code),
            Event::Killed(code) => {
                self.ended = Some(code);
                self.is_signalled = true;
            }
        }
    }

    fn begin(&mut self) {
        let is_late = now() >= self.limits.end_at(self.deadline);
        if is_late && self.on_lost == OnLost::Kill {
            return;
        }
        // Not if it is ending already.
        if let State::Waiting { gate, stdin } = &self.state {
            // An error means that a signal has ended the process already.
            let _ = pass::send(gate, stdin.as_fd());
            self.state = State::Running;
        }
    }

    fn pass_on(&mut self, number: i32) {
        // The number of the group is taken until the leader was waited for.
        if let Some(signal) = Signal::from_named_raw(number) {
            self.group.send(signal);
            self.is_signalled |= !matches!(signal, Signal::USR1 | Signal::USR2 | Signal::CONT);
            if matches!(signal, Signal::TERM | Signal::HUP) {
                self.group.send(Signal::CONT);
            }
        }
    }

    fn without_lockctl(&mut self) {
        if !self.may_end() {
            shown::warn(format_args!(
                "lockctl has died: the command goes on without the lock"
            ));
            return;
        }
        let by_lease = self.limits.kill_at(self.deadline);
        let by_grace = self.limits.grace.and_then(|grace| now().checked_add(grace));
        self.end(by_grace.map_or(by_lease, |at| at.min(by_lease)));
    }

    /// A command that has not begun does not begin without the lock.
    fn may_end(&self) -> bool {
        self.on_lost == OnLost::Kill || matches!(self.state, State::Waiting { .. })
    }

    fn end(&mut self, kill_at: Moment) {
        if !self.may_end() {
            return;
        }
        let kill_at = match self.state {
            State::Ending { kill_at: earlier } => earlier.min(kill_at),
            State::Waiting { .. } | State::Running => {
                self.group.end();
                kill_at
            }
        };
        // If the command has not begun, its process ends, since the other end of its stdin is closed.
        self.state = State::Ending { kill_at };
    }

    fn report(&mut self, report: Report) {
        // An error means that lockctl has died, and another thread tells that.
        let _ = writeln!(self.lockctl, "{report}");
    }
}

fn watch_lockctl(socket: UnixStream, events: Sender<Event>) {
    thread::spawn(move || {
        let lines = BufReader::new(socket).lines().map_while(Result::ok);
        for order in lines.filter_map(|line| Order::parse(&line)) {
            let _ = events.send(Event::Order(order));
        }
        let _ = events.send(Event::LockctlDied);
    });
}

fn watch_command(group: Group, events: Sender<Event>) {
    thread::spawn(move || {
        while let Some(event) = next_change(group) {
            let is_end = matches!(event, Event::Ended(_) | Event::Killed(_));
            if events.send(event).is_err() || is_end {
                return;
            }
        }
    });
}

/// Leaves an ended process to be waited for, so that its number, which is also the group's, stays taken.
fn next_change(group: Group) -> Option<Event> {
    let leader = WaitId::Pid(group.pid());
    let changes = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
    loop {
        let status = match waitid(leader.clone(), changes | WaitIdOptions::NOWAIT) {
            Ok(status) => status?,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        };
        if let Some(code) = status.exit_status() {
            return Some(Event::Ended(code as u8));
        }
        if let Some(signal) = status.terminating_signal() {
            return Some(Event::Killed(128 + signal as u8));
        }
        // A stop is reported until a wait has taken the report.
        let taken = waitid(
            leader.clone(),
            WaitIdOptions::STOPPED | WaitIdOptions::NOHANG,
        );
        if let Some(signal) = status.stopping_signal()
            && matches!(taken, Ok(Some(_)))
        {
            return Some(Event::Stopped(signal));
        }
    }
}
