//! The command while it runs: what lockctl tells the keeper, and what it hears from it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use lock_core::{LockGuard, LossReason};
use rustix::process::{Signal, kill_current_process_group};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::clock::{Moment, now};
use super::group::Group;
use super::signals::Signals;
use super::terminal::Terminal;
use super::words::{Cause, Order, Report};
use super::{pass, this_program};
use crate::options::{OnLost, Run};
use crate::shown;

/// How long the kernel may take to end a process.
const KERNEL_WAIT: Duration = Duration::from_secs(2);
/// How late a keeper may be before it counts as stopped.
const KEEPER_LATE: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(10);

/// How the command has ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Ended(u8),
    /// It was ended, or never began, since the lock was lost, or the lease was about to end.
    Lost(Option<LossReason>),
    KeeperDied,
    Unkillable,
}

pub(super) struct Session<'a> {
    options: &'a Run,
    guard: &'a LockGuard,
    keeper: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    terminal: Terminal,
    group: Option<Group>,
    /// The last deadline that the keeper was told.
    told: Moment,
    lost: Option<LossReason>,
}

impl<'a> Session<'a> {
    /// Starts the keeper.
    pub(super) fn begin(options: &'a Run, guard: &'a LockGuard) -> io::Result<Self> {
        let (socket, end) = StdStream::pair()?;
        pass::send(&socket, io::stdin().as_fd())?;
        let mut keeper = this_program()?;
        keeper.arg("run-keeper");
        let limits = &options.limits;
        let mut state = |name, time: Duration| {
            let time = humantime::format_duration(time).to_string();
            keeper.arg(name).arg(time);
        };
        state("--ttl", limits.ttl);
        if let Some(grace) = limits.grace {
            state("--grace", grace);
        }
        if options.on_lost == OnLost::Warn {
            keeper.args(["--on-lost", "warn"]);
        }
        keeper.arg("--").args(&options.command);
        keeper.env("LOCK_KEY", &options.lock.key);
        keeper.env(
            "LOCK_FENCING_TOKEN",
            guard.fencing_token().get().to_string(),
        );
        keeper.stdin(OwnedFd::from(end));
        socket.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(socket)?.into_split();
        Ok(Self {
            options,
            guard,
            // Signals of the terminal do not reach a group of its own.
            keeper: Command::from(keeper).process_group(0).spawn()?,
            reports: BufReader::new(reports).lines(),
            orders,
            terminal: Terminal::default(),
            group: None,
            told: Moment::ZERO,
            lost: None,
        })
    }

    pub(super) async fn run(&mut self, signals: &mut Signals) -> Outcome {
        let outcome = self.until_ended(signals).await;
        self.terminal.take_back();
        let _ = timeout(KERNEL_WAIT, self.keeper.wait()).await;
        outcome
    }

    async fn until_ended(&mut self, signals: &mut Signals) -> Outcome {
        let guard = self.guard;
        let mut lost = std::pin::pin!(guard.lost());
        let mut look = interval(self.options.limits.interval());
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // When the keeper must have ended the command.
        let mut overdue = None;
        loop {
            let kill_keeper_at = overdue.unwrap_or_else(Instant::now);
            tokio::select! {
                report = self.reports.next_line() => {
                    let Ok(Some(line)) = report else {
                        return self.without_keeper().await;
                    };
                    match Report::parse(&line) {
                        Some(Report::Ready(pid)) => self.start(pid).await,
                        Some(Report::Stopped(signal)) => self.stopped(signal).await,
                        Some(Report::Ended(code, Cause::Own)) => return Outcome::Ended(code),
                        Some(Report::Ended(..)) => return Outcome::Lost(self.lost),
                        None => {}
                    }
                }
                number = signals.next() => self.order(Order::Signal(number)).await,
                _ = look.tick(), if self.lost.is_none() => self.tell_deadline().await,
                reason = &mut lost, if self.lost.is_none() => {
                    self.lost = Some(reason);
                    self.tell_loss(reason).await;
                    if self.options.on_lost == OnLost::Kill {
                        overdue = Some(Instant::now() + self.time_to_end());
                    }
                }
                // A keeper that is stopped itself: without it, the command is killed here.
                () = sleep_until(kill_keeper_at), if overdue.is_some() => {
                    let _ = self.keeper.start_kill();
                    overdue = None;
                }
            }
        }
    }

    /// Between this and the first order the command does not run.
    async fn start(&mut self, pid: i32) {
        self.group = Group::led_by(pid);
        if !self.guard.is_held() {
            self.order(Order::Lost).await;
            return;
        }
        if let Some(group) = self.group {
            self.terminal.lend_at_start(group);
        }
        self.tell_deadline().await;
        self.order(Order::Begin).await;
    }

    fn began(&self) -> bool {
        self.told > Moment::ZERO
    }

    /// The clock is read first: a pause between the two makes the deadline earlier, never later.
    async fn tell_deadline(&mut self) {
        let now = now();
        let deadline = now + self.guard.remaining();
        if self.group.is_some()
            && self.guard.is_held()
            && deadline > self.told + Duration::from_millis(1)
        {
            self.told = deadline;
            self.order(Order::Deadline(deadline)).await;
        }
    }

    /// How long the keeper may take to end the command of a lock that is lost.
    fn time_to_end(&self) -> Duration {
        let grace = self.options.limits.grace_when_lost();
        (grace + KEEPER_LATE).min(self.told.saturating_sub(now()))
    }

    async fn tell_loss(&mut self, reason: LossReason) {
        if self.options.on_lost == OnLost::Warn && self.began() {
            let key = self.options.lock.shown();
            shown::warn(format_args!(
                "the lock `{key}` was lost, and the command goes on: {reason}"
            ));
            return;
        }
        self.order(Order::Lost).await;
    }

    /// The job of the shell is lockctl, so lockctl stops when the terminal has stopped the command. It goes on when the shell
    /// continues it; without such a shell, the kernel does not stop it.
    async fn stopped(&mut self, signal: i32) {
        let Some(group) = self.group else { return };
        let is_by_terminal = [Signal::TSTP, Signal::TTIN, Signal::TTOU]
            .iter()
            .any(|by| by.as_raw() == signal);
        if !is_by_terminal {
            return;
        }
        // The command has asked for the terminal, and the terminal is lockctl's.
        let asks = signal != Signal::TSTP.as_raw();
        if !(asks && self.terminal.lend(group)) {
            self.terminal.take_back();
            let _ = kill_current_process_group(Signal::TSTP);
            // The stop comes within this time.
            sleep(Duration::from_millis(50)).await;
            self.terminal.lend_at_start(group);
        }
        self.order(Order::Signal(Signal::CONT.as_raw())).await;
    }

    async fn order(&mut self, order: Order) {
        // An error means that the keeper has died, and the end of its reports tells that.
        let line = format!("{order}\n");
        let _ = self.orders.write_all(line.as_bytes()).await;
    }

    async fn without_keeper(&mut self) -> Outcome {
        let give_up = Instant::now() + KERNEL_WAIT;
        let Some(group) = self.group else {
            return Outcome::KeeperDied;
        };
        if self.options.on_lost == OnLost::Warn && self.began() {
            // It goes on, under the lock.
            while group.runs() {
                sleep(POLL).await;
            }
            return Outcome::KeeperDied;
        }
        group.send(Signal::KILL);
        while group.runs() {
            if Instant::now() > give_up {
                return Outcome::Unkillable;
            }
            sleep(POLL).await;
            group.send(Signal::KILL);
        }
        match self.lost {
            Some(_) => Outcome::Lost(self.lost),
            None => Outcome::KeeperDied,
        }
    }
}
