//! Sentinels of a test's own: one that watches a master, or a master with two replicas and three sentinels.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::admin;
use crate::binary::ServerBinary;
use crate::kit::command;
use crate::port::Port;
use crate::server::TestServer;
use crate::supervise::Supervised;
use crate::wait::{LIMIT, eventually};

/// A Sentinel on a free loopback port; ended, and its folder removed, on drop.
#[derive(Debug)]
pub struct Sentinel {
    port: Port,
    dir: PathBuf,
    process: Mutex<Supervised>,
}

impl Sentinel {
    /// Starts one that watches the master at this address under this name.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn start(name: &str, master: SocketAddr) -> Self {
        Self::start_with(name, master, 1, "").await
    }

    /// As [`start`](Self::start): this number of sentinels has to agree that the master is down, and `more` lines are added to
    /// the configuration.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn start_with(name: &str, master: SocketAddr, quorum: usize, more: &str) -> Self {
        let port = Port::free();
        let dir = std::env::temp_dir().join(format!(
            "lock-tests-sentinel-{}-{}",
            std::process::id(),
            port.number
        ));
        std::fs::create_dir_all(&dir).expect("a folder");
        let text = format!(
            "port {}\nbind 127.0.0.1\nsentinel monitor {name} {} {} {quorum}\nsentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 3000\n{more}\n",
            port.number,
            master.ip(),
            master.port()
        );
        std::fs::write(dir.join("sentinel.conf"), text).expect("a file");
        let process = Mutex::new(launch(&dir));
        let sentinel = Self { port, dir, process };
        sentinel.answers().await;
        sentinel
    }

    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number).into()
    }

    /// Kills it (SIGKILL). It is gone when this returns.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn kill(&self) {
        self.process().kill().expect("own child can be killed");
    }

    /// Starts it again, with what it has learned.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn restart(&self) {
        self.kill();
        *self.process() = launch(&self.dir);
        self.answers().await;
    }

    /// The reply to a command given as words, as it came.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub async fn ask(&self, words: &str) -> String {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap_or_default());
        for word in words {
            command.arg(word);
        }
        let reply = admin::exchange(self.addr(), &command)
            .await
            .expect("a reply");
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// Number of clients that are subscribed to a channel of it.
    ///
    /// # Panics
    ///
    /// When it does not answer.
    pub async fn subscribers(&self) -> usize {
        self.ask("CLIENT LIST").await.matches(" sub=1 ").count()
    }

    async fn answers(&self) {
        let ping = redis::cmd("PING");
        eventually("the Sentinel answers", LIMIT, async || {
            let reply = admin::exchange(self.addr(), &ping).await;
            reply.is_ok_and(|reply| reply == b"+PONG\r\n" || reply.starts_with(b"-NOAUTH"))
        })
        .await;
    }

    fn process(&self) -> MutexGuard<'_, Supervised> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn launch(dir: &std::path::Path) -> Supervised {
    let mut command = Command::new(ServerBinary::find().path());
    command.arg(dir.join("sentinel.conf")).arg("--sentinel");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Supervised::spawn(&mut command, Some(dir)).expect("a Sentinel")
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A master with two replicas, and three sentinels that know each other.
#[derive(Debug)]
pub struct Watched {
    /// The first one is the master at the beginning.
    pub servers: [TestServer; 3],
    /// The sentinels.
    pub sentinels: [Sentinel; 3],
}

impl Watched {
    /// Starts all of it, and returns when a failover is possible.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn start() -> Self {
        let servers = [
            TestServer::start().await,
            TestServer::start().await,
            TestServer::start().await,
        ];
        let port = servers[0].port();
        for replica in &servers[1..] {
            let () = command(replica, &format!("REPLICAOF 127.0.0.1 {port}")).await;
        }
        let master = servers[0].addr();
        let sentinel = || Sentinel::start_with("mymaster", master, 2, "");
        let sentinels = [sentinel().await, sentinel().await, sentinel().await];
        let watched = Self { servers, sentinels };
        watched.settled().await;
        watched
    }

    /// `redis+sentinel://..`, with all three sentinels.
    #[must_use]
    pub fn url(&self) -> String {
        let at = self
            .sentinels
            .each_ref()
            .map(|sentinel| sentinel.addr().to_string());
        format!("redis+sentinel://{}/mymaster", at.join(","))
    }

    /// The server that all sentinels name.
    ///
    /// # Panics
    ///
    /// When they do not agree, or name another one.
    pub async fn master(&self) -> &TestServer {
        let mut named = Vec::new();
        for sentinel in &self.sentinels {
            named.push(
                sentinel
                    .ask("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster")
                    .await,
            );
        }
        assert!(named.iter().all(|name| *name == named[0]), "{named:?}");
        let is_named =
            |server: &&TestServer| named[0].contains(&format!("\r\n{}\r\n", server.port()));
        self.servers.iter().find(is_named).expect("one of ours")
    }

    /// Asks for a failover, and returns when the new master is named by all sentinels.
    ///
    /// # Panics
    ///
    /// When it does not come.
    pub async fn failover(&self) {
        let before = self.master().await.port();
        let reply = self.sentinels[0].ask("SENTINEL FAILOVER mymaster").await;
        assert_eq!(reply, "+OK\r\n");
        self.replaced(before).await;
    }

    /// Waits until all sentinels name another master than the server at this port.
    ///
    /// # Panics
    ///
    /// When that does not come.
    pub async fn replaced(&self, port: u16) {
        let old = format!("\r\n{port}\r\n");
        eventually("all sentinels name a new master", LIMIT, async || {
            let mut replaced = 0;
            for sentinel in &self.sentinels {
                let named = sentinel
                    .ask("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster")
                    .await;
                replaced += usize::from(!named.contains(&old));
            }
            replaced == self.sentinels.len()
        })
        .await;
    }

    /// Waits until a failover is possible: each sentinel knows two others and two replicas that are in step.
    ///
    /// # Panics
    ///
    /// When that does not come.
    pub async fn settled(&self) {
        eventually("a failover is possible", LIMIT, async || {
            let mut settled = true;
            for sentinel in &self.sentinels {
                let replicas = sentinel.ask("SENTINEL REPLICAS mymaster").await;
                let others = sentinel.ask("SENTINEL SENTINELS mymaster").await;
                let count = |text: &str, what: &str| text.matches(what).count();
                settled &= count(&replicas, "\r\nmaster-link-status\r\n$2\r\nok\r\n") == 2
                    && count(&replicas, "\r\nflags\r\n$5\r\nslave\r\n") == 2
                    && count(&others, "\r\nrunid\r\n$40\r\n") == 2;
            }
            settled
        })
        .await;
    }
}
