//! What a case runs on.

use std::future::Future;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use lock_core::testing::MemoryServer;
use lock_core::{LockManager, LockManagerBuilder, Tls};
use lock_tests::{
    Authority, LIMIT, Sentinel, TestCluster, TestServer, TlsServer, eventually, servers,
};
use redis::aio::ConnectionManagerConfig;

use super::kinds::{Guard, Lock, Manager, Of, UnderWay};

/// Longer than any test: where a case holds this long, nothing in it happens because a lease ran out.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// The ttl where renewals are waited for. A renewal has two thirds of it to come in time, also on a busy machine.
pub(crate) const SHORT: Duration = Duration::from_millis(1500);

/// The nodes of a quorum keep a vote that much longer than the lease of its holder.
pub(crate) const SKEW: Duration = Duration::from_millis(500);

/// A backend that any number of managers share, as processes share a server.
pub(crate) struct Rig {
    of: Of,
    backend: Backend,
    under_way: UnderWay,
    name: String,
    /// How many guards of a manager in a row may have a lock that others wait for.
    handover_limit: Option<u32>,
}

enum Backend {
    /// The store lives as long as a manager of it does.
    Memory {
        url: String,
        _anchor: LockManager,
    },
    Kit(MemoryServer),
    Url {
        server: TestServer,
        query: &'static str,
    },
    Connection {
        server: TestServer,
    },
    Tls {
        authority: Box<Authority>,
        server: TlsServer,
    },
    Sentinel {
        sentinel: Sentinel,
        master: TestServer,
    },
    Quorum {
        nodes: Vec<TestServer>,
    },
    Cluster {
        cluster: Arc<TestCluster>,
        /// The cases share the cluster.
        namespace: String,
    },
}

/// Runs a case on locks in this process.
pub(super) async fn memory(of: Of, case: impl AsyncFn(&Rig)) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let url = format!(
        "memory://contract-{}",
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let backend = Backend::Memory {
        _anchor: LockManager::connect(&url).await.unwrap(),
        url,
    };
    Rig::new(of, backend, "memory".to_owned()).run(case).await;
}

/// Runs a case on the server in memory that tests control, by the clock of tokio.
pub(super) async fn on_tokio_time(of: Of, case: impl AsyncFn(&Rig)) {
    let backend = Backend::Kit(MemoryServer::on_tokio_time());
    let rig = Rig::new(of, backend, "memory, on the time of tokio".to_owned());
    rig.run(case).await;
}

/// Runs a case on every listed server, as a program with default settings does.
pub(super) async fn redis(of: Of, case: impl AsyncFn(&Rig)) {
    on_each_server(of, "", |server| Backend::Url { server, query: "" }, case).await;
}

/// Runs a case with managers that hand a lock to another process after each guard.
pub(super) async fn in_turns(of: Of, case: impl AsyncFn(&Rig)) {
    with_handover_limit(of, 1, case).await;
}

/// Runs a case with managers that hand a lock to another process after two guards.
pub(super) async fn in_twos(of: Of, case: impl AsyncFn(&Rig)) {
    with_handover_limit(of, 2, case).await;
}

async fn with_handover_limit(of: Of, most: u32, case: impl AsyncFn(&Rig)) {
    let server = TestServer::start().await;
    let mut rig = Rig::new(
        of,
        Backend::Url { server, query: "" },
        format!("a server, {most} guards in a row"),
    );
    rig.handover_limit = Some(most);
    rig.run(case).await;
}

/// Runs a case on every listed server over RESP2, which has no messages for us.
pub(super) async fn resp2(of: Of, case: impl AsyncFn(&Rig)) {
    let query = "/?protocol=resp2";
    on_each_server(
        of,
        " over RESP2",
        |server| Backend::Url { server, query },
        case,
    )
    .await;
}

/// Runs a case on every listed server over connections that the program brings along.
pub(super) async fn from_connection(of: Of, case: impl AsyncFn(&Rig)) {
    on_each_server(
        of,
        " over a user's connection",
        |server| Backend::Connection { server },
        case,
    )
    .await;
}

/// Runs a case on the default server over TLS, with a private CA.
pub(super) async fn tls(of: Of, case: impl AsyncFn(&Rig)) {
    let authority = Authority::new();
    let identity = authority.issue("localhost", false);
    let server = TlsServer::start(&authority, &identity, false).await;
    let backend = Backend::Tls {
        authority: Box::new(authority),
        server,
    };
    Rig::new(of, backend, "a server over TLS".to_owned())
        .run(case)
        .await;
}

/// Runs a case on a master that a sentinel names.
pub(super) async fn sentinel(of: Of, case: impl AsyncFn(&Rig)) {
    let master = TestServer::start().await;
    let sentinel = Sentinel::start("mymaster", master.addr()).await;
    let backend = Backend::Sentinel { sentinel, master };
    Rig::new(of, backend, "a master behind a sentinel".to_owned())
        .run(case)
        .await;
}

/// Runs a case on a cluster of three masters.
pub(super) async fn cluster(of: Of, case: impl AsyncFn(&Rig)) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let backend = Backend::Cluster {
        cluster: TestCluster::shared().await,
        namespace: format!("case-{}:", COUNT.fetch_add(1, Ordering::Relaxed)),
    };
    let rig = Rig::new(of, backend, "a cluster".to_owned());
    rig.run(case).await;
}

/// Runs a case on three masters of every listed server.
pub(super) async fn quorum_3(of: Of, case: impl AsyncFn(&Rig)) {
    on_a_quorum(of, 3, case).await;
}

/// Runs a case on five masters of every listed server.
pub(super) async fn quorum_5(of: Of, case: impl AsyncFn(&Rig)) {
    on_a_quorum(of, 5, case).await;
}

async fn on_a_quorum(of: Of, count: usize, case: impl AsyncFn(&Rig)) {
    for binary in servers() {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(TestServer::builder().binary(binary.path()).start().await);
        }
        let urls = nodes.iter().map(TestServer::url);
        let builder = LockManager::builder().quorum_wait(LONG * 4);
        builder.begin_quorum(urls).await.unwrap();
        let name = format!("{count} of {}", binary.name());
        Rig::new(of, Backend::Quorum { nodes }, name)
            .run(&case)
            .await;
    }
}

async fn on_each_server(
    of: Of,
    how: &str,
    backend: impl Fn(TestServer) -> Backend,
    case: impl AsyncFn(&Rig),
) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let names: Vec<_> = servers()
            .iter()
            .map(lock_tests::ServerBinary::name)
            .collect();
        // Not `eprintln`, which the test runner keeps to itself: who ran is part of the result.
        let _ = writeln!(
            std::io::stderr(),
            "the contract suite runs on memory, {}",
            names.join(", ")
        );
    });
    for binary in servers() {
        let server = TestServer::builder().binary(binary.path()).start().await;
        let name = format!("{}{how}", binary.name());
        Rig::new(of, backend(server), name).run(&case).await;
    }
}

impl Rig {
    fn new(of: Of, backend: Backend, name: String) -> Self {
        Self {
            of,
            backend,
            under_way: UnderWay::default(),
            name,
            handover_limit: None,
        }
    }

    async fn run(self, case: impl AsyncFn(&Self)) {
        struct Named<'a>(&'a str);
        impl Drop for Named<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    eprintln!("the case above failed on {}", self.0);
                }
            }
        }
        let _named = Named(&self.name);
        // The limit only ends a case that hangs.
        tokio::time::timeout(LIMIT * 4, case(&self))
            .await
            .expect("the case ends");
    }

    /// A manager of its own: another process, as far as the backend can tell.
    pub(crate) async fn manager(&self) -> Manager {
        self.manager_with(|builder| builder).await
    }

    pub(crate) async fn manager_with(
        &self,
        tweak: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder,
    ) -> Manager {
        // A busy machine answers late, which is not what a case is about; and polling may be brisk.
        let builder = LockManager::builder()
            .command_deadline(Duration::from_secs(10))
            .default_ttl(LONG)
            .quorum_wait(LONG * 4)
            .poll_interval(Duration::from_millis(10));
        let builder = match self.of {
            Of::Blocking => builder.own_thread(),
            _ => builder,
        };
        let builder = match self.handover_limit {
            Some(most) => builder.handover_limit(most),
            None => builder,
        };
        let builder = match &self.backend {
            Backend::Cluster { namespace, .. } => builder.namespace(namespace),
            _ => builder,
        };
        let locks = self.connect(tweak(builder)).await;
        Manager::new(self.of, locks, &self.under_way)
    }

    async fn connect(&self, builder: LockManagerBuilder) -> LockManager {
        match &self.backend {
            Backend::Memory { url, .. } => builder.connect(url).await.unwrap(),
            Backend::Kit(server) => server.connect(builder).unwrap(),
            Backend::Url { server, query } => {
                let url = format!("{}{query}", server.url());
                builder.connect(&url).await.unwrap()
            }
            Backend::Tls { authority, server } => {
                let tls = Tls::new().ca(authority.pem());
                builder.tls(tls).connect(&server.url()).await.unwrap()
            }
            Backend::Connection { server } => {
                let client = redis::Client::open(server.url()).unwrap();
                // Its own limit would be half a second.
                let config = ConnectionManagerConfig::new()
                    .set_connection_timeout(Some(LIMIT))
                    .set_response_timeout(Some(LIMIT));
                let connection = client
                    .get_connection_manager_with_config(config)
                    .await
                    .unwrap();
                builder.from_connection(connection).unwrap()
            }
            Backend::Sentinel { sentinel, .. } => {
                let url = format!("redis+sentinel://{}/mymaster", sentinel.addr());
                builder.connect(&url).await.unwrap()
            }
            Backend::Cluster { cluster, .. } => builder.connect(&cluster.url()).await.unwrap(),
            Backend::Quorum { nodes } => {
                let urls = nodes.iter().map(TestServer::url);
                builder.connect_quorum(urls).await.unwrap()
            }
        }
    }

    /// The lock `key` of a manager of its own.
    pub(crate) async fn lock(&self, key: &str) -> Lock {
        self.manager().await.lock(key)
    }

    /// The server underneath.
    pub(crate) fn server(&self) -> &TestServer {
        match &self.backend {
            Backend::Memory { .. }
            | Backend::Kit(_)
            | Backend::Quorum { .. }
            | Backend::Cluster { .. } => panic!("this case needs a server"),
            Backend::Url { server, .. } | Backend::Connection { server } => server,
            Backend::Tls { server, .. } => server.plain(),
            Backend::Sentinel { master, .. } => master,
        }
    }

    /// The key of this lock on the server.
    pub(crate) fn stored(&self, key: &str) -> String {
        match self.of {
            Of::Exclusive | Of::Semaphore | Of::Writer | Of::Blocking => format!("lock:{key}"),
            Of::Reentrant => key.to_owned(),
        }
    }

    /// The keys that stay on the server when nothing is held: the counter of the fencing tokens, of which a semaphore has none.
    pub(crate) fn lasting_keys(&self) -> &'static [&'static str] {
        match self.of {
            Of::Exclusive | Of::Writer | Of::Reentrant | Of::Blocking => &["lock-core:fence"],
            Of::Semaphore => &[],
        }
    }

    /// Takes `key` as a process that dies then: nobody renews it, and nobody lets go of it.
    pub(crate) fn hold_and_die(&self, key: &str, ttl: Duration) -> u64 {
        let guard = in_a_runtime_of_its_own(async {
            self.lock(key).await.ttl(ttl).acquire().await.unwrap()
        });
        guard.fencing_token().get()
    }
}

/// Runs a future to its end on one thread, with a runtime that is gone, with all its tasks, when this returns.
///
/// What one thread does has an order: of two tasks that are woken, the first woken runs first.
pub(crate) fn in_a_runtime_of_its_own<T>(life: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(life)
    })
}

/// Waits until so many are queued for the lock.
pub(crate) async fn waiters(lock: &Lock, count: u64) {
    eventually(&format!("{count} are queued"), LIMIT, async || {
        lock.waiters().await == count
    })
    .await;
}

/// Waits until nobody holds the lock and nobody is queued for it.
pub(crate) async fn free(lock: &Lock) {
    eventually("the lock is free and nobody is queued", LIMIT, async || {
        !lock.inspect().await.unwrap().is_held() && lock.waiters().await == 0
    })
    .await;
}

/// A task that waits for the lock and is queued, as number `place` to its own manager, when this returns.
pub(crate) async fn queued(lock: &Lock, place: u64) -> tokio::task::JoinHandle<Guard> {
    queued_behind(lock, lock, place).await
}

/// A task that waits for the lock of one manager and is queued, as number `place` to the manager of another, when this
/// returns.
pub(crate) async fn queued_behind(
    observer: &Lock,
    lock: &Lock,
    place: u64,
) -> tokio::task::JoinHandle<Guard> {
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.acquire().await.unwrap() });
    waiters(observer, place).await;
    task
}

/// Polls `future` while waiting until so many are queued; it must not end by itself.
pub(crate) async fn drive_until_queued<F: Future + Unpin>(future: &mut F, lock: &Lock, count: u64) {
    tokio::select! {
        biased;
        _ = future => panic!("it was to wait"),
        () = waiters(lock, count) => {}
    }
}
