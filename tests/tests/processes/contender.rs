//! A process that takes locks by order: `src/bin/contender`, which lists the orders.

use std::collections::VecDeque;
use std::time::Duration;

use lock_core::{Lock, LockManager};
use lock_tests::{Child, History, LIMIT, TestServer, boottime_now, eventually};

pub(crate) const NO_ENV: [(&str, &str); 0] = [];

/// So long that a wait for it would be noticed, and that no slow machine loses the lock.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The only key that is meant to stay.
pub(crate) const FENCE: &str = "lock-core:fence";

pub(crate) struct Contender {
    pub(crate) child: Child,
    /// Tasks of its runtime when it was connected and held nothing.
    pub(crate) tasks: usize,
    unread: VecDeque<String>,
}

/// Stamps of the clock that all processes share, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    pub(crate) fence: u64,
    pub(crate) asked: u64,
    pub(crate) granted: u64,
    /// The lease does not end before this.
    pub(crate) ends: u64,
}

/// The clock of the stamps.
pub(crate) fn stamp() -> u64 {
    boottime_now().as_nanos() as u64
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl Contender {
    pub(crate) async fn start(url: &str, flavour: &str) -> Self {
        let args = [url, flavour];
        let mut child = Child::spawn(env!("CARGO_BIN_EXE_contender"), args, NO_ENV);
        let tasks = child.expect("ready").await.parse().unwrap();
        Self {
            child,
            tasks,
            unread: VecDeque::new(),
        }
    }

    pub(crate) async fn several<const N: usize>(server: &TestServer) -> [Self; N] {
        let mut started = Vec::new();
        for n in 0..N {
            // Both kinds of runtime, side by side.
            let flavour = if n % 2 == 0 { "current" } else { "multi" };
            started.push(Self::start(&server.url(), flavour).await);
        }
        started.try_into().ok().unwrap()
    }

    pub(crate) fn order(&mut self, line: &str) {
        self.child.send(line);
    }

    /// The words after `prefix` in the first unread line that begins with it.
    pub(crate) async fn answer(&mut self, prefix: &str) -> Vec<String> {
        let mut unread = std::mem::take(&mut self.unread);
        let rest = loop {
            let line = match unread.pop_front() {
                Some(line) => line,
                None => self.child.recv_line().await,
            };
            match line.strip_prefix(prefix) {
                Some(rest) if rest.is_empty() || rest.starts_with(' ') => break rest.to_owned(),
                _ => self.unread.push_back(line),
            }
        };
        self.unread.append(&mut unread);
        rest.split_whitespace().map(str::to_owned).collect()
    }

    pub(crate) async fn granted(&mut self, name: &str) -> Grant {
        let words = self.answer(&format!("granted {name}")).await;
        let numbers: Vec<u64> = words.iter().map(|word| word.parse().unwrap()).collect();
        let [fence, asked, granted, ends] = numbers[..] else {
            panic!("odd grant {words:?}");
        };
        Grant {
            fence,
            asked,
            granted,
            ends,
        }
    }

    /// Acquires a lock that is free.
    pub(crate) async fn acquire(&mut self, name: &str, key: &str, ttl: Duration) -> Grant {
        self.order(&format!("acquire {name} {key} {}", ttl.as_millis()));
        self.granted(name).await
    }

    /// Asks for a lock that is held, and returns once it is the `place`-th in the queue.
    pub(crate) async fn queue(&mut self, name: &str, lock: &Lock, ttl: Duration, place: u64) {
        self.order(&format!(
            "acquire {name} {} {}",
            lock.key(),
            ttl.as_millis()
        ));
        eventually("it has queued", LIMIT, async || {
            lock.inspect().await.unwrap().waiters() == place
        })
        .await;
    }

    /// Waits until so many wait for the lock, on the server and in line in this process.
    pub(crate) async fn until_waiting(&mut self, key: &str, count: usize) {
        loop {
            self.order(&format!("waiters {key}"));
            if self.answer("waiters").await == [count.to_string()] {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Releases; answers the stamp read just before.
    pub(crate) async fn release(&mut self, name: &str) -> u64 {
        self.order(&format!("release {name}"));
        let words = self.answer(&format!("released {name}")).await;
        words[0].parse().unwrap()
    }

    /// Whether the guard says that it is held, and a stamp read before it was asked.
    pub(crate) async fn look(&mut self, name: &str) -> (bool, u64) {
        self.order(&format!("look {name}"));
        let words = self.answer(&format!("held {name}")).await;
        (words[0] == "true", words[1].parse().unwrap())
    }

    /// When the loss of the lock was announced, and why.
    pub(crate) async fn lost(&mut self, name: &str) -> (u64, String) {
        let words = self.answer(&format!("lost {name}")).await;
        (words[0].parse().unwrap(), words[1].clone())
    }

    /// Adds the lines that have come so far to the history.
    pub(crate) fn tell(&mut self, history: &mut History) {
        while let Some(line) = self.child.try_line() {
            history.read(&line);
        }
    }

    /// Kills it, after which it has nothing more to say than what the history gets.
    pub(crate) async fn kill_and_tell(mut self, history: &mut History) {
        self.child.kill();
        while let Some(line) = self.child.next_line().await {
            history.read(&line);
        }
    }
}

/// A handle of the test's own, to look at a lock from outside.
pub(crate) async fn observer(server: &TestServer, key: &str) -> Lock {
    let patient = LockManager::builder().command_deadline(LIMIT);
    patient.connect(&server.url()).await.unwrap().lock(key)
}

/// Waits until the server holds nothing but the fencing counter.
pub(crate) async fn nothing_is_left(server: &TestServer, limit: Duration) {
    eventually("nothing is left", limit, async || {
        server.keys().await == [FENCE]
    })
    .await;
}
