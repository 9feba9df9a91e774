//! `top` in a terminal, as its users see it.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::thread;

use lock_core::{LockManager, LossReason};
use lock_tests::{LIMIT, TestServer, eventually};
use portable_pty::{Child, CommandBuilder, PtyPair, PtySize, native_pty_system};
use tokio::time::timeout;

/// `lockctl top` in a terminal of this size.
pub(crate) struct Screen {
    /// The terminal lives as long as this.
    _pair: PtyPair,
    keyboard: Box<dyn Write + Send>,
    seen: Arc<Mutex<vt100::Parser>>,
    child: Box<dyn Child + Send + Sync>,
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Screen {
    pub(crate) fn open(url: &str, cols: u16) -> Self {
        Self::of(url, cols, &["top", "--every", "100ms"])
    }

    pub(crate) fn of(url: &str, cols: u16, words: &[&str]) -> Self {
        let rows = 14;
        let size = PtySize {
            rows,
            cols,
            ..PtySize::default()
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_lockctl"));
        command.args(words);
        command.env("LOCK_URL", url);
        command.env("TERM", "xterm-256color");
        let child = pair.slave.spawn_command(command).unwrap();
        let seen = Arc::new(Mutex::new(vt100::Parser::new(rows, cols, 0)));
        let (shown, mut reader) = (Arc::clone(&seen), pair.master.try_clone_reader().unwrap());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        let keyboard = pair.master.take_writer().unwrap();
        Self {
            _pair: pair,
            keyboard,
            seen,
            child,
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    /// The lines without the spaces at their ends.
    fn text(&self) -> String {
        let screen = self.seen.lock().unwrap().screen().contents();
        let lines = screen.lines().map(|line| format!("{}\n", line.trim_end()));
        lines.collect()
    }

    pub(crate) async fn shows(&self, words: &str) {
        let shown = async || self.text().contains(words);
        eventually(&format!("the screen shows {words:?}"), LIMIT, shown).await;
    }
}

/// Times change from look to look.
fn without_times(text: &str) -> String {
    let masked = |line: &str| {
        let words = line.split(' ').filter(|word| {
            let digits = word.trim_end_matches(char::is_alphabetic);
            let is_time = digits.len() < word.len() && !digits.is_empty();
            !(is_time && digits.bytes().all(|byte| byte.is_ascii_digit()))
        });
        words
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
            + "\n"
    };
    text.lines().map(masked).collect()
}

/// Two locks, one with a waiter.
async fn scene(server: &TestServer) -> (LockManager, Vec<lock_core::LockGuard>) {
    let manager = async |name| {
        LockManager::builder()
            .client_name(name)
            .connect(&server.url())
            .await
    };
    let (locks, others) = (
        manager("orders-1").await.unwrap(),
        manager("orders-2").await.unwrap(),
    );
    let held = vec![
        locks.lock("order:7").acquire().await.unwrap(),
        others.lock("report").acquire().await.unwrap(),
    ];
    tokio::spawn(async move {
        let _held = others.lock("order:7").acquire().await;
        std::future::pending::<()>().await;
    });
    let queued = async || locks.lock("order:7").inspect().await.unwrap().waiters() == 1;
    eventually("it waits", LIMIT, queued).await;
    (locks, held)
}

#[tokio::test]
async fn the_screen_is_readable_at_a_hundred_columns_and_at_sixty() {
    let server = TestServer::start().await;
    let _scene = scene(&server).await;
    for (cols, head, first, second) in [
        (
            100,
            "KEY HOLDER HELD WAITERS TTL LEFT CHANGES KIND",
            "order:7 orders-1 1 0 exclusive",
            "report orders-2 0 0 exclusive",
        ),
        (
            60,
            "KEY HOLDER HELD WAITERS",
            "order:7 orders-1 1",
            "report orders-2 0",
        ),
    ] {
        let screen = Screen::open(&server.url(), cols);
        screen.shows("report").await;
        let text = screen.text();
        let expected = format!(
            "{} 2 locks, 1 waiting, by waiters\n{head}\n{first}\n{second}\n{}q quit s sort / filter enter open u unlock\n",
            server.url(),
            "\n".repeat(9),
        );
        assert_eq!(without_times(&text), expected, "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= cols.into()),
            "{text}"
        );
    }
}

/// The lock goes to the waiter while the question stands.
async fn hand_over(server: &TestServer, held: lock_core::LockGuard) {
    held.release().await.unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let handed = async || {
        let info = locks.lock("order:7").inspect().await.unwrap();
        info.holder() == Some("orders-2")
    };
    eventually("the next holder", LIMIT, handed).await;
}

#[tokio::test]
async fn a_question_about_one_holder_does_not_take_the_lock_of_the_next() {
    let server = TestServer::start().await;
    let (_locks, mut held) = scene(&server).await;
    let mut screen = Screen::open(&server.url(), 100);
    screen.shows("report").await;
    screen.press("u");
    screen.shows("take order:7 (exclusive) from orders-1").await;
    hand_over(&server, held.remove(0)).await;
    screen.press("y");
    screen.shows("order:7 has another holder now").await;
    let next = LockManager::connect(&server.url()).await.unwrap();
    let info = next.lock("order:7").inspect().await.unwrap();
    assert_eq!(info.holder(), Some("orders-2"));

    let server = TestServer::start().await;
    let (_locks, mut held) = scene(&server).await;
    let mut screen = Screen::of(&server.url(), 100, &["unlock", "order:7"]);
    screen.shows("order:7 is held by orders-1").await;
    hand_over(&server, held.remove(0)).await;
    screen.press("y\r");
    screen.shows("meanwhile the holder has changed").await;
    screen.shows("order:7 is held by orders-2").await;
    screen.press("n\r");
    screen.shows("order:7 stays as it is").await;
}

#[tokio::test]
async fn a_lock_is_opened_filtered_and_taken_after_a_question() {
    let server = TestServer::start().await;
    let (_locks, held) = scene(&server).await;
    let mut screen = Screen::open(&server.url(), 100);
    screen.shows("report").await;
    screen.press("\r");
    screen.shows("1. orders-2, for ").await;
    screen.press("\x1b");
    screen.shows("q quit").await;
    screen.press("s");
    screen.shows("by held").await;
    screen.press("/rep");
    screen.shows("filter: rep_").await;
    screen.press("\r");
    screen.shows("q quit").await;
    assert!(!screen.text().contains("order:7"), "{}", screen.text());
    screen.press("u");
    screen
        .shows("take report (exclusive) from orders-2? y/n")
        .await;
    assert!(held[1].is_held());
    screen.press("y");
    screen.shows("report was taken from orders-2").await;
    let told = timeout(LIMIT, held[1].lost()).await.expect("told");
    assert_eq!(told, LossReason::ForceReleased);
    screen.press("q");
    let ended = screen.child.wait().unwrap();
    assert!(ended.success(), "{ended:?}");
}
