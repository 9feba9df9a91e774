//! `lockctl run`: the command never runs without the lock, whatever is stopped or killed.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::LockManager;
use lock_tests::{LIMIT, TestServer, eventually, in_time};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::Instant;

use crate::{Ended, answer, lockctl, says};

const KEY: &str = "report";
/// The command ends a twentieth of the ttl early. A loaded machine needs less than that to see it.
const TTL: Duration = Duration::from_secs(10);
/// A command that does not end by itself, and not by SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$ $PPID; while :; do sleep 0.05; done";

/// Runs of a shell script under the lock.
fn under_lock(url: &str, options: &str, script: &str) -> tokio::process::Command {
    let mut command = lockctl(url, &format!("run {KEY} {options} -- sh -c"));
    command.arg(script);
    command
}

/// A run whose script begins with `echo $$ $PPID`. Nothing of it is left when the test ends, also if the test fails.
struct Running {
    lockctl: Child,
    lines: Lines<BufReader<ChildStdout>>,
    command: Pid,
    keeper: Pid,
}

impl Running {
    async fn start(url: &str, options: &str, script: &str) -> Self {
        let mut command = under_lock(url, options, script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut lockctl = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(lockctl.stdout.take().unwrap()).lines();
        let line = in_time("it begins", lines.next_line()).await;
        let line = line.unwrap().expect("it begins");
        let mut pids = line
            .split(' ')
            .map(|pid| Pid::from_raw(pid.parse().unwrap()));
        Self {
            lockctl,
            lines,
            command: pids.next().flatten().unwrap(),
            keeper: pids.next().flatten().unwrap(),
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.lockctl.id().unwrap().cast_signed());
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Whether a process of the command runs.
    fn runs(&self) -> bool {
        let group = self.command.as_raw_nonzero().to_string();
        let stats = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|process| fs::read_to_string(process.ok()?.path().join("stat")).ok());
        stats.into_iter().any(|stat| {
            let (_, rest) = stat.rsplit_once(')').unwrap();
            let words: Vec<_> = rest.split_whitespace().collect();
            words[0] != "Z" && words[2] == group
        })
    }

    async fn until_gone(&self) {
        eventually("the command is gone", LIMIT, async || !self.runs()).await;
    }

    async fn line(&mut self) -> Option<String> {
        in_time("a line", self.lines.next_line()).await.unwrap()
    }

    async fn status(&mut self) -> ExitStatus {
        in_time("it ends", self.lockctl.wait()).await.unwrap()
    }

    /// The exit code, and what stderr says.
    async fn ended(&mut self) -> (Option<i32>, String) {
        let status = self.status().await;
        let mut err = String::new();
        let mut stderr = self.lockctl.stderr.take().unwrap();
        let read = stderr.read_to_string(&mut err);
        in_time("stderr ends", read).await.unwrap();
        (status.code(), err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The number of a process that was waited for may be another's.
        let _ = self.lockctl.start_kill();
        if self.runs() {
            let _ = kill_process_group(self.command, Signal::KILL);
        }
        let command = fs::read_to_string(format!("/proc/{}/cmdline", self.keeper.as_raw_nonzero()));
        if command.is_ok_and(|command| command.contains("run-keeper")) {
            let _ = kill_process(self.keeper, Signal::KILL);
        }
    }
}

async fn other(server: &TestServer) -> LockManager {
    LockManager::connect(&server.url()).await.unwrap()
}

/// Another client acquires the lock, and no process of the command runs at that moment.
async fn gone_when_another_acquires(server: &TestServer, running: &Running) {
    let locks = other(server).await;
    let guard = in_time("the lease ends", locks.lock(KEY).acquire()).await;
    assert!(
        !running.runs(),
        "the command runs, and another has the lock"
    );
    guard.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_command_has_its_streams_its_environment_and_its_exit_code() {
    let server = TestServer::start().await;
    let url = server.url();
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("kill -15 $$", 143)] {
        let ended = Ended::from(under_lock(&url, "", script).output().await.unwrap());
        assert_eq!((ended.code, &*ended.err), (Some(code), ""), "{script}");
    }
    let mut last = 0;
    for _ in 0..3 {
        let script = "cat; echo $LOCK_KEY >&2; echo $LOCK_FENCING_TOKEN";
        let mut command = under_lock(&url, "", script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = running.stdin.take().unwrap();
        stdin.write_all(b"in\n").await.unwrap();
        drop(stdin);
        let ended = Ended::from(running.wait_with_output().await.unwrap());
        assert_eq!((ended.code, &*ended.err), (Some(0), "report\n"));
        let token = ended.out.strip_prefix("in\n").expect("stdin").trim();
        let token: u64 = token.parse().expect("a token");
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    assert_eq!(says(&url, "ls").await.lines().count(), 1, "all released");
}

#[tokio::test]
async fn what_does_not_begin_has_its_exit_code_and_one_sentence() {
    let server = TestServer::start().await;
    let url = server.url();
    let no_server = "redis://127.0.0.1:1";
    let file = server.dir().join("no-program");
    fs::write(&file, "text").unwrap();
    let file = file.display();
    let _held = other(&server).await.lock("held").acquire().await.unwrap();
    for (url, words, code, sentence) in [
        (&*url, "run a -- no-such-command", 127, "no-such-command"),
        (&url, &format!("run a -- {file}"), 126, "Permission denied"),
        (&url, "run held --wait 0s -- true", 75, "held"),
        (&url, "run held --wait 100ms -- true", 75, "held"),
        (no_server, "run a -- true", 69, "Connection refused"),
        (&url, "run a{b -- true", 78, "braces"),
        (&url, "run a --ttl 500ms -- true", 64, "at least 1s"),
        (&url, "run a --grace 16s -- true", 64, "half of the ttl"),
        (&url, "run a", 64, "COMMAND"),
    ] {
        let ended = answer(url, words).await;
        assert_eq!(ended.code, Some(code), "{words}: {ended:?}");
        assert!(ended.err.contains(sentence), "{words}: {ended:?}");
    }
}

#[tokio::test]
async fn two_hundred_runs_of_one_key_never_overlap() {
    let server = TestServer::start().await;
    let url = server.url();
    let dir = server.dir().display();
    let script = format!(
        "cd {dir}; mkdir inside || echo overlap >> log; echo $LOCK_FENCING_TOKEN >> log; rmdir inside"
    );
    let began = Instant::now();
    let runs = (0..200).map(|_| under_lock(&url, "", &script).output());
    for output in join_all(runs).await {
        let ended = Ended::from(output.unwrap());
        assert_eq!((ended.code, &*ended.err), (Some(0), ""));
    }
    println!("200 runs took {:?}", began.elapsed());
    let log = fs::read_to_string(server.dir().join("log")).unwrap();
    let tokens: Vec<u64> = log.lines().map(|line| line.parse().expect(line)).collect();
    assert_eq!(tokens.len(), 200);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test]
async fn no_command_outlives_the_lease_of_a_killed_lockctl() {
    let server = TestServer::start().await;
    let running = Running::start(&server.url(), "--ttl 2s", STUBBORN).await;
    running.signal(Signal::KILL);
    gone_when_another_acquires(&server, &running).await;
}

#[tokio::test]
async fn the_command_of_a_killed_lockctl_is_asked_to_end_at_once() {
    let server = TestServer::start().await;
    let script = "trap 'echo asked; exit 0' TERM; echo $$ $PPID; while :; do sleep 0.05; done";
    let mut running = Running::start(&server.url(), "--ttl 1h", script).await;
    running.signal(Signal::KILL);
    assert_eq!(running.line().await.as_deref(), Some("asked"));
    running.until_gone().await;
}

/// The keeper as lockctl starts it, told what a test tells it.
#[tokio::test]
async fn no_command_begins_once_the_lock_is_lost() {
    for orders in ["lost\nbegin\n", "deadline 1\nbegin\n", ""] {
        let (mut socket, end) = UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let stdin = fs::File::open("/dev/null").unwrap();
        let files = [stdin.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&files));
        let byte = [IoSlice::new(b"f")];
        sendmsg(&socket, &byte, &mut control, SendFlags::empty()).unwrap();
        socket.write_all(orders.as_bytes()).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut keeper = lockctl("", "run-keeper -- echo began");
        keeper.stdin(OwnedFd::from(end));
        let output = in_time("it ends", keeper.output()).await.unwrap();
        // It holds the other end of the socket.
        drop(keeper);
        let mut reports = String::new();
        socket.read_to_string(&mut reports).unwrap();
        assert!(reports.contains("\nkilled "), "{orders:?}: {reports:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{orders:?}");
    }
}

#[tokio::test]
async fn a_command_in_a_terminal_reads_from_it_and_gives_it_back() {
    let server = TestServer::start().await;
    let program = env!("CARGO_BIN_EXE_lockctl");
    let line = format!("{program} run {KEY} -- sh -c 'read a; echo a-$a'; read b; echo b-$b");
    let mut command = tokio::process::Command::new("script");
    command
        .args(["-qec", &line, "/dev/null"])
        .env("LOCK_URL", server.url());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    // Of util-linux.
    let Ok(mut script) = command.spawn() else {
        println!("skipped: there is no `script`");
        return;
    };
    let mut stdin = script.stdin.take().unwrap();
    let mut lines = BufReader::new(script.stdout.take().unwrap()).lines();
    for (typed, answer) in [("one\n", "a-one"), ("two\n", "b-two")] {
        stdin.write_all(typed.as_bytes()).await.unwrap();
        // The terminal shows what is typed as well.
        while in_time("an answer", lines.next_line())
            .await
            .unwrap()
            .expect(answer)
            != answer
        {}
    }
    let status = in_time("it ends", script.wait()).await.unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn no_command_outlives_the_lease_of_a_stopped_lockctl() {
    let server = TestServer::start().await;
    let mut running = Running::start(&server.url(), "--ttl 10s", STUBBORN).await;
    running.signal(Signal::STOP);
    gone_when_another_acquires(&server, &running).await;
    running.signal(Signal::CONT);
    let (code, err) = running.ended().await;
    assert_eq!(code, Some(80), "{err}");
}

#[tokio::test]
async fn no_command_outlives_the_lease_if_the_server_hangs() {
    let server = TestServer::start().await;
    let mut running = Running::start(&server.url(), "--ttl 10s", STUBBORN).await;
    server.stop();
    let stopped = Instant::now();
    running.until_gone().await;
    let took = stopped.elapsed();
    let (code, err) = running.ended().await;
    assert_eq!(code, Some(80), "{err}");
    assert!(err.contains("the lock `report` was lost"), "{err}");
    assert!(took < TTL, "{took:?} after the server was stopped");
    server.cont();
    gone_when_another_acquires(&server, &running).await;
}

#[tokio::test]
async fn a_forced_release_ends_the_command_at_once() {
    let server = TestServer::start().await;
    let url = server.url();
    let script = "trap 'echo asked; exit 0' TERM; echo $$ $PPID; while :; do sleep 0.05; done";
    let mut running = Running::start(&url, "", script).await;
    says(&url, "unlock report --yes").await;
    assert_eq!(running.line().await.as_deref(), Some("asked"));
    let (code, err) = running.ended().await;
    assert_eq!(code, Some(80), "{err}");
    assert!(err.contains("it was force-released"), "{err}");

    let mut running = Running::start(&url, "", STUBBORN).await;
    let began = Instant::now();
    says(&url, "unlock report --yes").await;
    assert_eq!(running.ended().await.0, Some(80));
    assert!(!running.runs());
    // The ttl is 30 s.
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_killed_keeper_takes_the_command_with_it() {
    let server = TestServer::start().await;
    let mut running = Running::start(&server.url(), "", STUBBORN).await;
    kill_process(running.keeper, Signal::KILL).unwrap();
    let (code, err) = running.ended().await;
    assert_eq!(code, Some(71), "{err}");
    assert!(err.contains("the keeper has died"), "{err}");
    assert!(!running.runs());
    let free = other(&server).await.lock(KEY).try_acquire().await.unwrap();
    assert!(free.is_some(), "it was released");
}

#[tokio::test]
async fn a_stopped_keeper_does_not_protect_the_command() {
    let server = TestServer::start().await;
    let url = server.url();
    let mut running = Running::start(&url, "", STUBBORN).await;
    kill_process(running.keeper, Signal::STOP).unwrap();
    says(&url, "unlock report --yes").await;
    assert_eq!(running.ended().await.0, Some(80));
    assert!(!running.runs());
}

#[tokio::test]
async fn signals_are_passed_on_to_the_command() {
    let server = TestServer::start().await;
    let script = "trap 'exit 41' TERM; trap 'exit 42' USR1; trap 'exit 43' USR2; echo $$ $PPID
        while :; do sleep 0.05; done";
    for (signal, code) in [(Signal::TERM, 41), (Signal::USR1, 42), (Signal::USR2, 43)] {
        let mut running = Running::start(&server.url(), "", script).await;
        running.signal(signal);
        // The shell says on stderr what has ended its `sleep`.
        let (ended, err) = running.ended().await;
        assert_eq!(ended, Some(code), "{err}");
        assert!(!err.contains("lockctl"), "{err}");
        let free = other(&server).await.lock(KEY).try_acquire().await.unwrap();
        assert!(free.is_some(), "it was released");
    }
}

#[tokio::test]
async fn the_lock_is_held_until_a_signalled_group_has_cleaned_up() {
    let server = TestServer::start().await;
    // The shell ends at once, and its child needs some time.
    let script = "echo $$ $PPID; (trap 'echo cleaning; sleep 0.7; exit' TERM; echo begun; while :; do sleep 0.05; done); true";
    let mut running = Running::start(&server.url(), "--ttl 5s", script).await;
    assert_eq!(running.line().await.as_deref(), Some("begun"));
    running.signal(Signal::TERM);
    assert_eq!(running.line().await.as_deref(), Some("cleaning"));
    gone_when_another_acquires(&server, &running).await;
    assert_eq!(running.ended().await.0, Some(143));
}

#[tokio::test]
async fn a_run_that_is_ended_while_it_waits_leaves_the_queue() {
    let server = TestServer::start().await;
    let locks = other(&server).await;
    let _held = locks.lock(KEY).acquire().await.unwrap();
    let mut waiting = under_lock(&server.url(), "", "true").spawn().unwrap();
    let waiters = async || locks.lock(KEY).inspect().await.unwrap().waiters();
    eventually("it waits", LIMIT, async || waiters().await == 1).await;
    let pid = Pid::from_raw(waiting.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = in_time("it ends", waiting.wait()).await;
    assert_eq!(status.unwrap().code(), Some(143));
    assert_eq!(waiters().await, 0);
}

#[tokio::test]
async fn a_command_that_is_only_warned_goes_on() {
    let server = TestServer::start().await;
    let url = server.url();
    let script = "echo $$ $PPID; read line; exit 5";
    let mut running = Running::start(&url, "--on-lost warn", script).await;
    says(&url, "unlock report --yes").await;
    let mut stderr = BufReader::new(running.lockctl.stderr.as_mut().unwrap()).lines();
    let warning = in_time("a warning", stderr.next_line()).await;
    let warning = warning.unwrap().unwrap();
    assert!(warning.contains("the command goes on"), "{warning}");
    assert!(running.runs());
    let mut stdin = running.lockctl.stdin.take().unwrap();
    stdin.write_all(b"\n").await.unwrap();
    assert_eq!(running.status().await.code(), Some(5));
}

#[tokio::test]
async fn a_stderr_that_takes_nothing_changes_no_exit_code() {
    let server = TestServer::start().await;
    let url = server.url();
    let gone = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        OwnedFd::from(writer)
    };
    let full = || OwnedFd::from(fs::File::options().write(true).open("/dev/full").unwrap());
    let held = other(&server).await.lock(KEY).acquire().await.unwrap();
    for stderr in [gone(), full()] {
        let mut command = under_lock(&url, "--wait 0s", "true");
        let status = command.stderr(stderr).status().await.unwrap();
        assert_eq!(status.code(), Some(75));
    }
    held.release().await.unwrap();
    for (options, code) in [("", 80), ("--on-lost warn", 5)] {
        for stderr in [gone(), full()] {
            let mut command = under_lock(&url, options, "echo began; read line; exit 5");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut running = command.stderr(stderr).spawn().unwrap();
            let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
            in_time("it begins", lines.next_line()).await.unwrap();
            says(&url, "unlock report --yes").await;
            let mut stdin = running.stdin.take().unwrap();
            if code == 5 {
                stdin.write_all(b"\n").await.unwrap();
            }
            let status = in_time("it ends", running.wait()).await.unwrap();
            assert_eq!(status.code(), Some(code), "{options}");
        }
    }
}

#[tokio::test]
async fn the_wait_for_the_lock_is_also_one_for_the_server() {
    let server = TestServer::start().await;
    let url = server.url();
    server.kill();
    let mut waiting = under_lock(&url, "--wait 30s", "exit 3").spawn().unwrap();
    let early = tokio::time::timeout(Duration::from_millis(400), waiting.wait()).await;
    assert!(early.is_err(), "{early:?}");
    server.restart().await;
    let status = in_time("it runs", waiting.wait()).await.unwrap();
    assert_eq!(status.code(), Some(3));
    server.kill();
    for words in ["run a --wait 300ms -- true", "wait a --timeout 300ms"] {
        let began = Instant::now();
        assert_eq!(answer(&url, words).await.code, Some(69), "{words}");
        assert!(began.elapsed() >= Duration::from_millis(300), "{words}");
    }
}

#[tokio::test]
async fn a_command_under_a_reentrant_lock_excludes_its_other_holders() {
    let server = TestServer::start().await;
    let url = server.url();
    let script = "echo $$ $PPID; read line; exit 4";
    let mut running = Running::start(&url, "--reentrant", script).await;
    let lock = other(&server).await.reentrant_lock(KEY);
    let lock = lock.owner(&lock_core::Owner::new());
    assert!(lock.try_acquire().await.unwrap().is_none());
    let busy = answer(&url, "run report --reentrant --wait 0s -- true").await;
    assert_eq!(busy.code, Some(75), "{busy:?}");
    let mut stdin = running.lockctl.stdin.take().unwrap();
    stdin.write_all(b"\n").await.unwrap();
    assert_eq!(running.status().await.code(), Some(4));
    assert!(lock.try_acquire().await.unwrap().is_some());
}
