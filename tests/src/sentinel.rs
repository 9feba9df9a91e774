//! A Sentinel of a test's own, which watches one master.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::admin;
use crate::binary::ServerBinary;
use crate::port::Port;
use crate::supervise::Supervised;
use crate::wait::{LIMIT, eventually};

/// A Sentinel on a free loopback port; ended, and its folder removed, on drop.
#[derive(Debug)]
pub struct Sentinel {
    port: Port,
    dir: PathBuf,
    process: Supervised,
}

impl Sentinel {
    /// Starts one that watches the master at this address under this name.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn start(name: &str, master: SocketAddr) -> Self {
        let port = Port::free();
        let dir = std::env::temp_dir().join(format!(
            "lock-tests-sentinel-{}-{}",
            std::process::id(),
            port.number
        ));
        std::fs::create_dir_all(&dir).expect("a folder");
        let config = dir.join("sentinel.conf");
        let text = format!(
            "port {}\nbind 127.0.0.1\nsentinel monitor {name} {} {} 1\n",
            port.number,
            master.ip(),
            master.port()
        );
        std::fs::write(&config, text).expect("a file");
        let mut command = Command::new(ServerBinary::find().path());
        command.arg(&config).arg("--sentinel");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = Supervised::spawn(&mut command, Some(&dir)).expect("a Sentinel");
        let sentinel = Self { port, dir, process };
        let ping = redis::cmd("PING");
        eventually("the Sentinel answers", LIMIT, async || {
            let reply = admin::exchange(sentinel.addr(), &ping).await;
            reply.is_ok_and(|reply| reply == b"+PONG\r\n")
        })
        .await;
        sentinel
    }

    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number).into()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
