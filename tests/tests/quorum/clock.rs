//! One node whose wall clock jumps, forward and back. The servers measure leases with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_tests::{ServerBinary, TestServer, servers};
use tokio::task::JoinSet;

use super::rig::{LIMIT, Quorum};

/// A server program under libfaketime, and the file that says how far its clock is off.
struct Faked {
    program: PathBuf,
    offset: PathBuf,
}

impl Faked {
    fn set(&self, seconds: i64) {
        // Renamed, so that the server never reads half of it.
        let new = self.offset.with_extension("new");
        fs::write(&new, format!("{seconds:+}s\n")).unwrap();
        fs::rename(&new, &self.offset).unwrap();
    }
}

impl Drop for Faked {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.program.parent().unwrap());
    }
}

fn library() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten();
    let found = |folder: fs::DirEntry| folder.path().join("faketime/libfaketime.so.1");
    let mut libraries = folders.map(found);
    libraries.find(|path| path.exists())
}

/// A server that runs under libfaketime; those with a shared jemalloc hang in it.
fn faked() -> Option<Faked> {
    let library = library()?;
    servers().iter().find_map(|server| wrap(server, &library))
}

fn wrap(server: &ServerBinary, library: &Path) -> Option<Faked> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("lock-tests-faketime-{}-{count}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).ok()?;
    let (program, offset) = (folder.join("server"), folder.join("offset"));
    let real = Command::new("sh")
        .args(["-c", "command -v \"$0\""])
        .arg(server.path())
        .output()
        .ok()?;
    let real = String::from_utf8_lossy(&real.stdout).trim().to_owned();
    let script = format!(
        "#!/bin/sh\nLD_PRELOAD='{}' FAKETIME_TIMESTAMP_FILE='{}' FAKETIME_NO_CACHE=1 \
         FAKETIME_DONT_FAKE_MONOTONIC=1 exec '{real}' \"$@\"\n",
        library.display(),
        offset.display()
    );
    fs::write(&program, script).ok()?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, mode).ok()?;
    let faked = Faked { program, offset };
    faked.set(0);
    runs(&faked.program).then_some(faked)
}

fn runs(program: &Path) -> bool {
    let child = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        if let Ok(Some(status)) = child.try_wait() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_on_one_node_never_makes_two_believers() {
    let Some(faked) = faked() else {
        use std::io::Write;
        // Not `println`, which the test runner keeps to itself.
        let _ = writeln!(
            std::io::stdout(),
            "SKIPPED: a_clock_that_jumps_on_one_node_never_makes_two_believers: it needs libfaketime (package \
             `faketime`) and a server that runs under it, named in LOCK_TEST_SERVERS (Debian's hangs in it)"
        );
        return;
    };
    let mut quorum = Quorum::start(4).await;
    let jumping = TestServer::builder().binary(&faked.program).start().await;
    quorum.nodes.insert(2, jumping);

    let believers = Arc::new(AtomicU64::new(0));
    let (violations, grants) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let last = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let lock = quorum.manager().await.lock("a").ttl(Duration::from_secs(2));
        let (believers, violations, grants) = (
            Arc::clone(&believers),
            Arc::clone(&violations),
            Arc::clone(&grants),
        );
        let (stop, last) = (Arc::clone(&stop), Arc::clone(&last));
        clients.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let Ok(guard) = lock.acquire_within(LIMIT).await else {
                    continue;
                };
                if believers.fetch_add(1, Ordering::SeqCst) > 0 {
                    violations.fetch_add(1, Ordering::SeqCst);
                }
                let fence = guard.fencing_token().get();
                if last.fetch_max(fence, Ordering::SeqCst) >= fence {
                    violations.fetch_add(1, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                let _ = guard.is_held();
                believers.fetch_sub(1, Ordering::SeqCst);
                grants.fetch_add(1, Ordering::SeqCst);
                let _ = guard.release().await;
            }
        });
    }
    let more = async |count| {
        let until = grants.load(Ordering::SeqCst) + count;
        lock_tests::eventually("work goes on", LIMIT, async || {
            grants.load(Ordering::SeqCst) >= until
        })
        .await;
    };
    more(20).await;
    for offset in [60, 0, -3600, 0, 60, -3600] {
        faked.set(offset);
        more(20).await;
    }
    // A jump in the middle of a hold: the node forgets its vote, the others do not.
    stop.store(true, Ordering::SeqCst);
    clients.join_all().await;
    faked.set(0);
    let (one, other) = (quorum.manager().await, quorum.manager().await);
    let guard = one
        .lock("b")
        .ttl(Duration::from_secs(20))
        .acquire()
        .await
        .unwrap();
    quorum.voted("b", &[0, 1, 2, 3, 4]).await;
    faked.set(60);
    quorum.voted("b", &[0, 1, 3, 4]).await;
    assert!(other.lock("b").try_acquire().await.unwrap().is_none());
    assert!(guard.is_held());
    assert_eq!(violations.load(Ordering::SeqCst), 0);
}
