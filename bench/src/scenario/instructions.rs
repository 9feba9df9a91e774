//! What a cycle costs, in instructions: (l). Two runs on a quiet machine differ by about a percent.

use std::time::Duration;

use anyhow::Result;
use lock_tests::{TestCluster, TestServer, TestServerBuilder};

use super::{Figures, Kind, Step};
use crate::callgrind::{COUNTING, counted, is_installed};
use crate::clock;
use crate::contestant::Who;
use crate::crew::{Crew, Urls};
use crate::masters::Masters;
use crate::options::Options;
use crate::stats::Sorted;
use crate::worker::{Count, What, Window, Work};

/// The variants: what is done, and where.
pub(crate) const LONELY: &str = "lock + release";
pub(crate) const NODE: &str = "lock + release, each of 5 masters";
const RENEWAL: &str = "a renewal of one of 1,000 locks";
const HAND_OVER: &str = "lock + release, local hand-over";

/// Time in which a server ends what the client does not wait for: the last votes.
const REST: Duration = Duration::from_millis(40);

pub(super) struct Spec {
    pub(super) who: Who,
    what: What,
    servers: Kinds,
}

#[derive(Clone, Copy)]
enum Kinds {
    One,
    Cluster,
    Quorum,
}

pub(super) fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |variant: &str, who, what, servers| {
        steps.push(Step {
            scenario: "l",
            variant: variant.to_owned(),
            kind: Kind::Instructions(Spec { who, what, servers }),
        });
    };
    for who in [
        Who::Floor,
        Who::Ours,
        Who::Rslock,
        Who::AsyncRedisLock,
        Who::OursSemaphore,
        Who::OursReader,
    ] {
        add(LONELY, who, What::Cycles, Kinds::One);
    }
    add(LONELY, Who::OursCluster, What::Cycles, Kinds::Cluster);
    for who in [Who::Floor, Who::Ours] {
        add(NODE, who, What::Cycles, Kinds::Quorum);
    }
    add(RENEWAL, Who::Ours, What::Renewals, Kinds::One);
    add(HAND_OVER, Who::Ours, What::HandOvers, Kinds::One);
    steps
}

impl Spec {
    /// The figures; without valgrind none, and a sentence that says so.
    pub(super) async fn measure(&self, options: &Options) -> Result<Result<Figures, String>> {
        if !is_installed() {
            let rows = steps().len();
            return Ok(Err(format!(
                "(l) is skipped, all its {rows} rows: valgrind is not installed"
            )));
        }
        let servers = Servers::start(self.servers).await?;
        // Short blocks: the timers of a server, which work each second, leave most of them alone. Two of the hand-overs of a block are
        // none.
        let (blocks, times) = match (self.what, self.servers) {
            (What::Renewals, _) => (5, 1_000),
            (What::HandOvers, _) => (5, 4_000),
            (_, Kinds::Quorum) => (20, 20),
            _ => (30, 20),
        };
        let work = Count {
            urls: servers.urls(),
            who: self.who,
            what: self.what,
            blocks: if options.quick { 2 } else { blocks },
            times,
        };
        servers.counted(work).await.map(Ok)
    }
}

/// Servers whose instructions are counted. They end with this.
enum Servers {
    One(TestServer),
    /// Of one master: which of them has a lock makes no difference to it.
    Cluster(TestCluster),
    Quorum(Masters),
}

/// A server that is counted, and looks as rarely as it can whether its timer has something to do.
fn server() -> TestServerBuilder {
    TestServer::builder().under(COUNTING).arg("--hz", "1")
}

impl Servers {
    async fn start(kinds: Kinds) -> Result<Self> {
        Ok(match kinds {
            Kinds::One => Self::One(server().start().await),
            Kinds::Cluster => Self::Cluster(TestCluster::start_as(1, server).await),
            Kinds::Quorum => Self::Quorum(Masters::start_as(server).await?),
        })
    }

    fn urls(&self) -> Vec<String> {
        match self {
            Self::One(server) => vec![server.url()],
            Self::Cluster(cluster) => vec![cluster.url()],
            Self::Quorum(masters) => masters.urls(),
        }
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Self::One(server) => vec![server.pid()],
            Self::Cluster(cluster) => cluster.nodes.iter().map(|node| node.server.pid()).collect(),
            Self::Quorum(masters) => masters.pids(),
        }
    }

    /// The instructions of each time that the work is done, in the block that has the fewest: timers only add to them.
    async fn counted(&self, work: Count) -> Result<Figures> {
        let urls = Urls {
            cluster: self.urls().swap_remove(0),
            ..Urls::default()
        };
        let (blocks, times) = (work.blocks, work.times as f64);
        let program = std::env::current_exe()?;
        let mut crew = Crew::start_under(&COUNTING, &program, &[Work::Count(work)], &urls).await?;
        let processes = [self.pids(), crew.pids()];
        let now = clock::now();
        let window = Window { from: now, to: now };
        let mut found = [Vec::new(), Vec::new()];
        for block in 0..blocks {
            if block > 0 {
                crew.ready().await?;
            }
            let before = counts(&processes)?;
            crew.go(window);
            crew.ready().await?;
            if matches!(self, Self::Quorum(_)) {
                tokio::time::sleep(REST).await;
            }
            let after = counts(&processes)?;
            for ((found, before), after) in found.iter_mut().zip(before).zip(after) {
                let both = before.into_iter().zip(after);
                found.extend(both.map(|(before, after)| after - before));
            }
            crew.go(window);
        }
        let [server, client] = found.map(Sorted::of);
        let each = |count: Option<u64>| count.map(|count| count as f64 / times);
        Ok(vec![
            ("server_instructions", each(server.least())),
            ("client_instructions", each(client.least())),
        ])
    }
}

fn counts(processes: &[Vec<u32>; 2]) -> Result<[Vec<u64>; 2]> {
    let [servers, clients] = processes;
    let of = |pids: &[u32]| pids.iter().map(|&pid| counted(pid)).collect::<Result<_>>();
    Ok([of(servers)?, of(clients)?])
}
