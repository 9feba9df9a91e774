//! Processes that work on one lock, and what their history is.

use std::time::Duration;

use lock_tests::{History, LIMIT, TestServer, eventually};

use crate::contender::{Contender, stamp};

/// The ttl of the locks that the crew takes.
pub(crate) const TTL: Duration = Duration::from_millis(300);

const BETWEEN_FAULTS: usize = 50;

/// Processes that work on one lock; a killed one is replaced.
pub(crate) struct Crew {
    url: String,
    /// What is ordered of each, given its name and how many were started before.
    job: fn(&str, usize) -> String,
    pub(crate) members: Vec<Contender>,
    names: Vec<String>,
    started: usize,
    history: History,
}

impl Crew {
    pub(crate) async fn start(
        server: &TestServer,
        count: usize,
        job: fn(&str, usize) -> String,
    ) -> Self {
        let mut crew = Self {
            url: server.url(),
            job,
            members: Vec::new(),
            names: Vec::new(),
            started: 0,
            history: History::default(),
        };
        for _ in 0..count {
            let (name, member) = crew.hire().await;
            crew.names.push(name);
            crew.members.push(member);
        }
        crew
    }

    async fn hire(&mut self) -> (String, Contender) {
        self.started += 1;
        let flavour = if self.started.is_multiple_of(2) {
            "multi"
        } else {
            "current"
        };
        let name = format!("p{}", self.started);
        let mut member = Contender::start(&self.url, flavour).await;
        member.order(&(self.job)(&name, self.started));
        (name, member)
    }

    pub(crate) async fn kill(&mut self, victim: usize) {
        let (name, fresh) = self.hire().await;
        self.names[victim] = name;
        std::mem::replace(&mut self.members[victim], fresh)
            .kill_and_tell(&mut self.history)
            .await;
    }

    /// Whose process had the lock last, as far as is known.
    pub(crate) fn last_holder(&mut self) -> usize {
        self.read();
        let last = self.history.holds().iter().max_by_key(|hold| hold.fence);
        let owner = last.map_or("", |hold| hold.owner.as_str());
        self.names
            .iter()
            .position(|name| owner.starts_with(&format!("{name}.")))
            .unwrap_or_default()
    }

    /// Pauses a process in the middle of a hold.
    pub(crate) async fn pause_the_holder(&mut self) -> usize {
        loop {
            let victim = self.last_holder();
            self.members[victim].child.stop();
            // Had it let go, another one would have the lock by now. A slow machine may fool this, which makes the
            // fault a milder one, but not the test a wrong one.
            tokio::time::sleep(TTL / 10).await;
            if self.last_holder() == victim {
                return victim;
            }
            self.members[victim].child.cont();
        }
    }

    fn read(&mut self) {
        for member in &mut self.members {
            member.tell(&mut self.history);
        }
    }

    /// Waits until a process other than `victim` got the lock after `moment`.
    pub(crate) async fn others_go_on(&mut self, victim: usize, moment: u64) {
        eventually("another process got the lock", LIMIT, async || {
            self.read();
            let victim = format!("{}.", self.names[victim]);
            let mut latest = self.history.holds().iter().rev().take(1000);
            latest.any(|hold| hold.granted > moment && !hold.owner.starts_with(&victim))
        })
        .await;
    }

    pub(crate) async fn all_go_on(&mut self) {
        let before = self.history.holds().len();
        eventually("some holds without a fault", LIMIT, async || {
            self.read();
            self.history.holds().len() >= before + BETWEEN_FAULTS
        })
        .await;
    }

    pub(crate) async fn each_goes_on(&mut self) {
        let now = stamp();
        for index in 0..self.members.len() {
            let name = format!("{}.", self.names[index]);
            eventually("every process gets the lock again", LIMIT, async || {
                self.read();
                let mut holds = self.history.holds().iter().rev();
                holds.any(|hold| hold.granted > now && hold.owner.starts_with(&name))
            })
            .await;
        }
    }

    pub(crate) async fn stop(mut self) -> History {
        for member in &mut self.members {
            member.order("stop");
        }
        for member in &mut self.members {
            loop {
                let line = member.child.recv_line().await;
                if line == "done" {
                    break;
                }
                self.history.read(&line);
            }
        }
        self.history
    }
}
