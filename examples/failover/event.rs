//! The events that make the sentinels promote a replica, and what the servers did.

use std::time::Duration;

use lock_examples::{Outcome, PrivateServer};
use redis::Role;
use tokio::time::sleep;

use crate::line::{Micros, now};
use crate::stage::{Stage, ask, connect, replica_of, within};

/// How long a master is stopped.
const STOP: Micros = 4_000_000;
/// How long a killed master stays away after the switch.
const AWAY: Duration = Duration::from_secs(3);
/// Time from a promotion to the end of the event. A sentinel closes a silent connection if it is older than 15 s, and connects to a
/// server at most once a second. If it does so shortly before a switch, it cannot reach the new master within down-after, and a
/// second failover follows. So all connections shall be older when the next event comes.
const REST: Micros = 15_000_000;
/// From this time on, clients begin no request on the old master.
const GRACE: Micros = 100_000;
/// How long the requests on the old master are counted.
const COUNT: Micros = 1_400_000;

/// What happens to the master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SIGKILL. A few seconds later it starts again, as an empty replica.
    Kill,
    /// The sentinels are told to promote a replica.
    Failover,
    /// SIGSTOP, and SIGCONT later.
    Stop,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Kill, Self::Failover, Self::Stop];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Failover => "failover",
            Self::Stop => "stop",
        }
    }
}

/// An event, and when the servers did what.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) at: Micros,
    /// The promoted replica was last seen as a replica.
    pub(crate) unpromoted: Micros,
    /// It was first seen as the master.
    pub(crate) promoted: Micros,
    /// A sentinel first said `+switch-master`.
    pub(crate) switched: Micros,
    /// The sentinels have failed over once more than they should.
    pub(crate) is_repeated: bool,
    /// Scripts called on the old master too late: after the switch, or after it went on; `None` if it was killed.
    pub(crate) late_calls: Option<u64>,
    /// All servers were in step again.
    pub(crate) until: Micros,
}

impl Event {
    /// Lets it happen to this master, and waits until all servers are in step again.
    pub(crate) async fn run(kind: Kind, stage: &mut Stage, master: usize) -> Outcome<Self> {
        let ports = stage.servers.iter().map(PrivateServer::port);
        let mut replicas: Vec<u16> = ports.collect();
        let old = replicas.remove(master);
        let promotion = tokio::spawn(watch_promotion(replicas));

        let mut at = now();
        match kind {
            Kind::Kill => stage.servers[master].kill()?,
            Kind::Failover => at = stage.order_failover().await?,
            Kind::Stop => stage.servers[master].signal("STOP")?,
        }
        let (new, unpromoted, promoted) = within("a replica is promoted", promotion).await???;
        let switched = within("a sentinel names the new master", stage.switches.recv()).await?;
        let switched = switched.ok_or("the sentinels have ended")?;

        let late_calls = match kind {
            Kind::Kill => {
                sleep(AWAY).await;
                stage.servers[master].restart_with(&replica_of(new))?;
                None
            }
            Kind::Failover => Some(late_calls(old, switched).await?),
            Kind::Stop => {
                sleep_until(at + STOP).await;
                stage.servers[master].signal("CONT")?;
                Some(late_calls(old, now()).await?)
            }
        };
        sleep_until(promoted + REST).await;
        stage.in_step().await?;
        // Each of the three sentinels says it once.
        let is_repeated = std::iter::from_fn(|| stage.switches.try_recv().ok()).count() > 2;
        Ok(Self {
            kind,
            at,
            unpromoted,
            promoted,
            switched,
            is_repeated,
            late_calls,
            until: now(),
        })
    }
}

/// Asks for the roles of these servers until one is the master. Returns its port, when it was last seen as a replica, and when it was
/// first seen as the master.
async fn watch_promotion(ports: Vec<u16>) -> Outcome<(u16, Micros, Micros)> {
    let mut replicas = Vec::new();
    for port in ports {
        replicas.push((port, connect(port).await?, now()));
    }
    loop {
        for (port, connection, seen) in &mut replicas {
            let asked = now();
            match redis::cmd("ROLE").query_async(connection).await {
                Ok(Role::Replica { .. }) => *seen = asked,
                Ok(_) => return Ok((*port, *seen, now())),
                // A sentinel closes all connections of the server that it promotes.
                Err(_) => *connection = connect(*port).await?,
            }
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// Scripts that are called on this server too late after a moment.
async fn late_calls(port: u16, moment: Micros) -> Outcome<u64> {
    sleep_until(moment + GRACE).await;
    let before = script_calls(port).await?;
    sleep_until(moment + GRACE + COUNT).await;
    Ok(script_calls(port).await? - before)
}

async fn script_calls(port: u16) -> Outcome<u64> {
    let info: String = ask(port, &["INFO", "commandstats"]).await?;
    let calls = |line: &str| {
        let heads = ["cmdstat_evalsha:calls=", "cmdstat_eval:calls="];
        let rest = heads.iter().find_map(|head| line.strip_prefix(head))?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    Ok(info.lines().filter_map(calls).sum())
}

async fn sleep_until(at: Micros) {
    sleep(Duration::from_micros(at.saturating_sub(now()))).await;
}
