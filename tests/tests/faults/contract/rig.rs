//! Servers of one backend, with a proxy before each of them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{LockManager, LockManagerBuilder};
use lock_tests::kit::command;
use lock_tests::{
    DropMode, Dropped, LIMIT, Proxy, Request, Sentinel, TestCluster, TestServer, eventually,
};
use redis::aio::ConnectionManagerConfig;

use super::kinds::{Caller, Kind};

/// Longer than any test: nothing happens because a lease ran out.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A lease that is renewed: two thirds of it are left for that, also on a busy machine.
pub(crate) const RENEWED: Duration = Duration::from_secs(5);

/// A lease whose end is waited for.
pub(crate) const SHORT: Duration = Duration::from_millis(1500);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backend {
    Memory,
    Master,
    /// Our own connection, without messages.
    Resp2,
    /// A connection of the program.
    Connection,
    Sentinel,
    Cluster,
    Quorum,
}

pub(crate) const BACKENDS: [Backend; 7] = [
    Backend::Memory,
    Backend::Master,
    Backend::Resp2,
    Backend::Connection,
    Backend::Sentinel,
    Backend::Cluster,
    Backend::Quorum,
];

pub(crate) struct Rig {
    pub(crate) kind: Kind,
    backend: Backend,
    nodes: Nodes,
    pub(crate) proxies: Vec<Proxy>,
    sentinel: Option<Sentinel>,
    /// The store in memory, which lives as long as a manager of it.
    memory: String,
    anchor: Option<LockManager>,
}

enum Nodes {
    Servers(Vec<TestServer>),
    Cluster(Box<TestCluster>),
}

impl Rig {
    pub(crate) async fn start(kind: Kind, backend: Backend) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut rig = Self {
            kind,
            backend,
            nodes: Nodes::Servers(Vec::new()),
            proxies: Vec::new(),
            sentinel: None,
            memory: format!("memory://faults-{}", COUNT.fetch_add(1, Ordering::Relaxed)),
            anchor: None,
        };
        rig.nodes = match backend {
            Backend::Memory => Nodes::Servers(Vec::new()),
            Backend::Cluster => Nodes::Cluster(Box::new(TestCluster::start(1).await)),
            Backend::Quorum => Nodes::Servers(vec![
                TestServer::start().await,
                TestServer::start().await,
                TestServer::start().await,
            ]),
            _ => Nodes::Servers(vec![TestServer::start().await]),
        };
        rig.proxies = rig.servers().map(Proxy::start).collect();
        match backend {
            Backend::Memory => rig.anchor = Some(rig.manager(LONG).await),
            Backend::Sentinel => {
                let addr = rig.proxies[0].addr();
                rig.sentinel = Some(Sentinel::start("mymaster", addr).await);
            }
            Backend::Cluster => {
                // What a client is told leads to the proxy as well.
                let port = rig.proxies[0].addr().port();
                for option in [
                    "cluster-announce-ip 127.0.0.1".to_owned(),
                    format!("cluster-announce-port {port}"),
                ] {
                    rig.command(&format!("CONFIG SET {option}")).await;
                }
            }
            Backend::Quorum => {
                let builder = LockManager::builder()
                    .command_deadline(LIMIT)
                    .quorum_wait(LONG * 4);
                let urls = rig.proxies.iter().map(Proxy::url);
                builder.begin_quorum(urls).await.unwrap();
            }
            _ => {}
        }
        rig
    }

    fn servers(&self) -> Box<dyn Iterator<Item = &TestServer> + Send + '_> {
        match &self.nodes {
            Nodes::Servers(servers) => Box::new(servers.iter()),
            Nodes::Cluster(cluster) => Box::new(cluster.nodes.iter().map(|node| &node.server)),
        }
    }

    /// A manager behind the proxies.
    pub(crate) async fn manager(&self, ttl: Duration) -> LockManager {
        self.manager_with(ttl, |builder| builder).await
    }

    async fn manager_with(
        &self,
        ttl: Duration,
        tweak: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
    ) -> LockManager {
        let builder = LockManager::builder()
            .command_deadline(LIMIT)
            .default_ttl(ttl)
            .quorum_wait(LONG * 4)
            .poll_interval(Duration::from_millis(20));
        let builder = tweak(builder);
        match self.backend {
            Backend::Memory => builder.connect(&self.memory).await,
            Backend::Master => builder.connect(&self.proxies[0].url()).await,
            Backend::Resp2 => {
                let url = format!("{}/?protocol=resp2", self.proxies[0].url());
                builder.connect(&url).await
            }
            Backend::Connection => {
                let client = redis::Client::open(self.proxies[0].url()).unwrap();
                let config = ConnectionManagerConfig::new().set_response_timeout(Some(LIMIT));
                let connection = client.get_connection_manager_with_config(config).await;
                builder.from_connection(connection.unwrap())
            }
            Backend::Sentinel => {
                let sentinel = self.sentinel.as_ref().expect("it runs");
                let url = format!("redis+sentinel://{}/mymaster", sentinel.addr());
                builder.connect(&url).await
            }
            Backend::Cluster => {
                let url = format!("redis+cluster://{}", self.proxies[0].addr());
                builder.connect(&url).await
            }
            Backend::Quorum => {
                builder
                    .connect_quorum(self.proxies.iter().map(Proxy::url))
                    .await
            }
        }
        .unwrap()
    }

    /// A caller of a manager of its own: another process, as far as the store can tell.
    pub(crate) async fn caller(&self) -> Caller {
        self.caller_with(|builder| builder).await
    }

    pub(crate) async fn caller_with(
        &self,
        tweak: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
    ) -> Caller {
        Caller::new(self.kind, self.manager_with(LONG, tweak).await, LONG)
    }

    /// Connections so far: what happens to the next requests is meant for later ones.
    fn known(&self, proxy: usize) -> HashSet<u64> {
        let requests = self.proxies[proxy].requests();
        requests.iter().map(Request::connection).collect()
    }

    /// A rule for the next such request of a client, other than those that have asked something before.
    fn next(
        script: &'static str,
        of: &Clients,
    ) -> Vec<impl FnMut(&Request) -> bool + Send + use<>> {
        let known = of.0.clone();
        let rules = known.into_iter().map(move |known| {
            move |request: &Request| {
                let called = request.script();
                called.is_some_and(|name| is(script, name))
                    && !known.contains(&request.connection())
            }
        });
        rules.collect()
    }

    /// No client: a rule is for the next request of any.
    pub(crate) fn any_client(&self) -> Clients {
        Clients(vec![HashSet::new(); self.proxies.len()])
    }

    /// The clients that have asked something so far.
    pub(crate) fn clients(&self) -> Clients {
        Clients(
            (0..self.proxies.len())
                .map(|proxy| self.known(proxy))
                .collect(),
        )
    }

    /// Each server does the next such request, and its reply is lost.
    pub(crate) fn lose_reply(
        &self,
        script: &'static str,
        mode: DropMode,
        of: &Clients,
    ) -> Vec<Dropped> {
        let rules = Self::next(script, of).into_iter();
        let proxies = self.proxies.iter().zip(rules);
        proxies
            .map(|(proxy, rule)| proxy.drop_next_reply_matching(rule, mode))
            .collect()
    }

    /// The next such request to each server is held back.
    pub(crate) fn hold(&self, script: &'static str, of: &Clients) -> Vec<lock_tests::Held> {
        let rules = Self::next(script, of).into_iter();
        let proxies = self.proxies.iter().zip(rules);
        proxies
            .map(|(proxy, rule)| proxy.hold_next_request_matching(rule))
            .collect()
    }

    /// Runs a command on each server.
    pub(crate) async fn command(&self, words: &str) {
        for server in self.servers() {
            let _: redis::Value = command(server, words).await;
        }
    }

    /// Each key of each server but those that stay when no lock is left.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for server in self.servers() {
            keys.extend(server.keys().await);
        }
        // The counters, and the record of the last leader.
        keys.retain(|key| {
            !key.starts_with("lock-core:") || key.contains("queue") || key.contains("waiters")
        });
        keys
    }

    /// Waits until no lock, no queue and no waiter is left.
    pub(crate) async fn until_clean(&self) {
        eventually("nothing is left", LIMIT, async || {
            self.keys().await.is_empty()
        })
        .await;
    }
}

/// Whether a script of the library does this for one kind of lock or another, perhaps together with something else.
fn is(what: &str, script: &str) -> bool {
    let script = script.strip_suffix("_all").unwrap_or(script);
    script.ends_with(what) || what == "release" && script == "batch"
}

/// The connections of clients, for each proxy.
pub(crate) struct Clients(Vec<HashSet<u64>>);
