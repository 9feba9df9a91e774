//! The server, and the ways to have work done against it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lock_tests::{Proxy, Sentinel, TestCluster, TestServer};
use redis::aio::MultiplexedConnection;

use crate::clock;
use crate::commands::Snapshot;
use crate::contestant::Who;
use crate::crew::{Crew, Urls};
use crate::grants::{Account, account};
use crate::network::Network;
use crate::worker::{Alternate, Contend, Outcome, Window, Work};

/// Time for the workers to hear that they may begin.
const LEAD: Duration = Duration::from_millis(20);

/// A server of the run's own, and what is needed around it.
pub(crate) struct Stage {
    program: PathBuf,
    server: TestServer,
    _sentinel: Option<Sentinel>,
    _cluster: TestCluster,
    urls: Urls,
    admin: MultiplexedConnection,
    /// Of the masters of the cluster.
    admins: Vec<MultiplexedConnection>,
}

/// What a contest came to.
pub(crate) struct Contest {
    pub(crate) account: Account,
    pub(crate) commands: u64,
    /// Work of the server, in nanoseconds a second.
    pub(crate) server_cpu: f64,
    /// Work of all clients, in nanoseconds a second.
    pub(crate) client_cpu: f64,
}

impl Stage {
    /// With `watched`, our locks find the server through a sentinel.
    pub(crate) async fn open(watched: bool) -> Result<Self> {
        let server = TestServer::builder().in_own_session().start().await;
        let cluster = TestCluster::start_as(3, || TestServer::builder().in_own_session()).await;
        let mut admins = Vec::new();
        for node in &cluster.nodes {
            admins.push(node.server.connection().await);
        }
        let mut urls = Urls {
            cluster: cluster.url(),
            ..Urls::default()
        };
        let sentinel = if watched {
            let sentinel = Sentinel::start("mymaster", server.addr()).await;
            let (plain, at) = (server.url(), sentinel.addr());
            urls.sentinel = format!("{plain} redis+sentinel://{at}/mymaster");
            Some(sentinel)
        } else {
            None
        };
        let admin = server.connection().await;
        Ok(Self {
            program: std::env::current_exe().context("this program has no file")?,
            server,
            _sentinel: sentinel,
            _cluster: cluster,
            urls,
            admin,
            admins,
        })
    }

    pub(crate) fn server(&self) -> &TestServer {
        &self.server
    }

    pub(crate) fn admin(&self) -> MultiplexedConnection {
        self.admin.clone()
    }

    /// A way to the server that takes this long in each direction.
    pub(crate) fn far_away(&self, delay: Duration) -> Result<Network> {
        Network::start(self.server.addr(), delay)
    }

    /// The times of each side of one worker. `then` is done when it has connected, and before it begins.
    pub(crate) async fn alternate(
        &mut self,
        work: Alternate,
        then: impl FnOnce(),
    ) -> Result<Vec<Vec<u64>>> {
        self.clear().await?;
        let crew = Crew::start(&self.program, &[Work::Alternate(work)], &self.urls).await?;
        then();
        times(crew).await
    }

    /// Requests that a worker sends for its calls, as the network sees them and as the server counts them.
    pub(crate) async fn requests(&mut self, who: Who, mut work: Alternate) -> Result<(u64, u64)> {
        self.clear().await?;
        let proxy = Proxy::start(&self.server);
        work.urls = vec![proxy.url()];
        let crew = Crew::start(&self.program, &[Work::Alternate(work)], &self.urls).await?;
        let first = Snapshot::take(&mut self.admin).await?;
        let seen = proxy.requests().len();
        times(crew).await?;
        let last = Snapshot::take(&mut self.admin).await?;
        let seen = proxy.requests().len() - seen;
        Ok((seen as u64, last.commands_since(&first, who)))
    }

    /// Has one worker a process contend for `warm_up` and then for `span`, which is what counts.
    pub(crate) async fn contest(
        &mut self,
        works: Vec<Contend>,
        warm_up: Duration,
        span: Duration,
    ) -> Result<Contest> {
        self.clear().await?;
        let who = works.first().context("nobody contends")?.who;
        let works: Vec<Work> = works.into_iter().map(Work::Contend).collect();
        let mut crew = Crew::start(&self.program, &works, &self.urls).await?;
        let from = clock::now() + nanos(LEAD);
        let window = Window {
            from,
            // Longer than what counts, because the last word of the server is only asked for then.
            to: from + nanos(warm_up + span + LEAD),
        };
        crew.go(window);
        tokio::time::sleep(clock::until(from + nanos(warm_up))).await;
        let first = self.snapshot(who).await?;
        tokio::time::sleep(clock::until(first.at + nanos(span))).await;
        let last = self.snapshot(who).await?;
        let mut processes = Vec::new();
        let mut cpu = 0;
        for outcome in crew.outcomes(window).await? {
            let Outcome::Logs { logs, cpu: worked } = outcome else {
                bail!("a worker answered another question");
            };
            processes.push(logs);
            cpu += worked;
        }
        let seconds = |from, to| (to - from) as f64 / 1e9;
        Ok(Contest {
            account: account(&processes, first.at, last.at.min(window.to)),
            commands: last.commands_since(&first, who),
            server_cpu: (last.cpu - first.cpu) as f64 / seconds(first.at, last.at),
            client_cpu: cpu as f64 / seconds(window.from, window.to),
        })
    }

    /// What the servers of this contestant have done.
    async fn snapshot(&mut self, who: Who) -> Result<Snapshot> {
        if who != Who::OursCluster {
            return Snapshot::take(&mut self.admin).await;
        }
        let mut all = Snapshot::take(&mut self.admins[0]).await?;
        for admin in &mut self.admins[1..] {
            all.add(Snapshot::take(admin).await?);
        }
        Ok(all)
    }

    /// Nothing is left of those before.
    pub(crate) async fn clear(&mut self) -> Result<()> {
        for admin in &mut self.admins {
            redis::cmd("FLUSHALL").exec_async(admin).await?;
        }
        Ok(redis::cmd("FLUSHALL").exec_async(&mut self.admin).await?)
    }
}

async fn times(mut crew: Crew) -> Result<Vec<Vec<u64>>> {
    // Such work is counted in calls, and ends when they are done.
    let now = clock::now();
    let window = Window { from: now, to: now };
    crew.go(window);
    match crew.outcomes(window).await?.pop() {
        Some(Outcome::Times(times)) => Ok(times),
        _ => bail!("a worker answered another question"),
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}
