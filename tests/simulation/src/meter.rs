//! The limits of a run, and what was found in it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use lock_core::sim;

use crate::trace::{Trace, micros};

/// So many polls go by between two looks at the time.
const STEP: u64 = 256;

/// Where a run ends that would not end by itself. Each is a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Polls of tasks during one millisecond of virtual time: more are a livelock.
    pub polls_per_instant: u64,
    /// Virtual time.
    pub time: Duration,
    /// Commands that the server is sent.
    pub commands: u64,
    /// The only rule whose findings count, where not all do.
    pub only: Option<&'static str>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            polls_per_instant: 200_000,
            time: Duration::from_secs(30 * 24 * 3600),
            commands: 50_000_000,
            only: None,
        }
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The virtual time since the run began.
    pub at: Duration,
    /// Which rule is broken, in a word.
    pub rule: &'static str,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, rule, what } = self;
        write!(f, "{rule} at {} ms: {what}", at.as_millis())
    }
}

/// Counts polls, and ends the run at its first finding. Cheap to clone; clones are the same meter.
#[derive(Clone)]
pub(crate) struct Meter(Arc<Inner>);

struct Inner {
    limits: Limits,
    trace: Trace,
    polls: AtomicU64,
    /// When the time was last seen to move on, and with how many polls.
    moved: Mutex<(u64, u64)>,
    halted: AtomicBool,
    findings: Mutex<Vec<Finding>>,
    main: Mutex<Option<Waker>>,
}

impl Meter {
    pub(crate) fn new(limits: Limits, trace: Trace) -> Self {
        Self(Arc::new(Inner {
            limits,
            trace,
            polls: AtomicU64::new(0),
            moved: Mutex::default(),
            halted: AtomicBool::new(false),
            findings: Mutex::default(),
            main: Mutex::default(),
        }))
    }

    pub(crate) fn limits(&self) -> Limits {
        self.0.limits
    }

    /// Counts a poll. False once the run has ended.
    pub(crate) fn polled(&self) -> bool {
        if self.is_halted() {
            return false;
        }
        let polls = self.0.polls.fetch_add(1, Ordering::Relaxed) + 1;
        if polls.is_multiple_of(STEP) {
            self.look(polls);
        }
        true
    }

    fn look(&self, polls: u64) {
        let now = micros();
        let stuck = {
            let mut moved = self.0.moved.lock().unwrap_or_else(PoisonError::into_inner);
            if moved.0 != now {
                *moved = (now, polls);
            }
            polls - moved.1
        };
        if stuck > self.0.limits.polls_per_instant {
            self.find(
                "livelock",
                format!("{stuck} polls, and the time does not move on"),
            );
        }
    }

    pub(crate) fn polls(&self) -> u64 {
        self.0.polls.load(Ordering::Relaxed)
    }

    pub(crate) fn commands(&self, count: u64) {
        if count > self.0.limits.commands && !self.is_halted() {
            self.find("commands", format!("more than {}", self.0.limits.commands));
        }
    }

    pub(crate) fn find(&self, rule: &'static str, what: String) {
        if self.0.limits.only.is_some_and(|only| only != rule) {
            return;
        }
        self.0.trace.line("FOUND", format_args!("{rule}: {what}"));
        let at = sim::elapsed();
        let mut findings = self
            .0
            .findings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        findings.push(Finding { at, rule, what });
        drop(findings);
        self.0.halted.store(true, Ordering::Relaxed);
        let main = self
            .0
            .main
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(main) = main {
            main.wake();
        }
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.0.halted.load(Ordering::Relaxed)
    }

    /// Who is woken when the run has ended.
    pub(crate) fn wakes(&self, main: &Waker) {
        let mut known = self.0.main.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone_from(&Some(main.clone()));
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings = self
            .0
            .findings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut findings)
    }
}
