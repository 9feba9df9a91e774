//! Worker processes, from the parent's side.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lock_tests::Child;

use crate::clock;
use crate::contestant::{BEHIND_SENTINEL, OF_CLUSTER};
use crate::worker::{self, Outcome, Window, Work};

/// How long a worker may take over what it was given before it counts as hung. The harness gives up after 30 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// The URLs of our locks, beside that of the server.
#[derive(Debug, Default)]
pub(crate) struct Urls {
    /// Empty, or the server and the URL of its sentinel.
    pub(crate) sentinel: String,
    pub(crate) cluster: String,
}

/// Worker processes that begin together; they are ended with this.
pub(crate) struct Crew(Vec<Child>);

impl Crew {
    /// Starts a process for each piece of work, and waits until all are ready.
    ///
    /// `urls` is what [`url`](crate::contestant::url) needs.
    pub(crate) async fn start(program: &Path, works: &[Work], urls: &Urls) -> Result<Self> {
        Self::start_under(&[], program, works, urls).await
    }

    /// As [`start`](Self::start), each process under this command.
    pub(crate) async fn start_under(
        under: &[&str],
        program: &Path,
        works: &[Work],
        urls: &Urls,
    ) -> Result<Self> {
        let mut crew = Vec::new();
        for work in works {
            let work = serde_json::to_string(work)?;
            let mut command: Vec<&OsStr> = under.iter().map(OsStr::new).collect();
            command.extend([
                program.as_os_str(),
                worker::ARGUMENT.as_ref(),
                work.as_ref(),
            ]);
            crew.push(Child::spawn(
                command[0],
                &command[1..],
                [
                    ("RUST_BACKTRACE", "0"),
                    (BEHIND_SENTINEL, &*urls.sentinel),
                    (OF_CLUSTER, &*urls.cluster),
                ],
            ));
        }
        let mut crew = Self(crew);
        crew.ready().await?;
        Ok(crew)
    }

    /// Waits until all say that they are ready.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        for child in &mut self.0 {
            let line = said(child).await?;
            if line != "ready" {
                outcome(&line)?;
                bail!("a worker is not ready, but has ended");
            }
        }
        Ok(())
    }

    /// The ids of the processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::pid).collect()
    }

    pub(crate) fn go(&mut self, window: Window) {
        for child in &mut self.0 {
            child.send(&window.line());
        }
    }

    /// What each of them found, once the window has ended.
    pub(crate) async fn outcomes(mut self, window: Window) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for child in &mut self.0 {
            let line = line(child, clock::until(window.to)).await?;
            outcomes.push(outcome(&line)?);
        }
        Ok(outcomes)
    }
}

async fn line(child: &mut Child, working: Duration) -> Result<String> {
    // In two steps, because the harness has a limit of its own.
    tokio::time::sleep(working).await;
    said(child).await
}

/// The next line of a process that has all it needs to say it.
pub(crate) async fn said(child: &mut Child) -> Result<String> {
    tokio::time::timeout(PATIENCE, child.next_line())
        .await
        .context("a worker hung")?
        .context("a worker ended without a word")
}

fn outcome(line: &str) -> Result<Outcome> {
    match serde_json::from_str(line).context("a worker spoke unclearly")? {
        Outcome::Failed(why) => bail!(why),
        outcome => Ok(outcome),
    }
}
