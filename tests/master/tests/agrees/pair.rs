//! A real server and the master, asked the same.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

use lock_master::{Master, Output};
use lock_tests::resp::{Splitter, parse_request};
use lock_tests::{LIMIT, TestServer};

use super::same::same;

/// The words of a command.
pub(crate) type Words = Vec<Vec<u8>>;

/// A command from its text: words with spaces between them, and `''` for an empty one.
pub(crate) fn words(text: &str) -> Words {
    let words = text.split(' ').filter(|word| !word.is_empty());
    words
        .map(|word| {
            if word == "''" {
                Vec::new()
            } else {
                word.into()
            }
        })
        .collect()
}

/// A server that lists the fields of larger hashes, too, in the order in which they came.
pub(crate) async fn server() -> TestServer {
    let server = TestServer::builder().arg("--hash-max-listpack-value", "1024");
    server
        .arg("--hash-max-listpack-entries", "1024")
        .start()
        .await
}

/// Both, with a connection that asks and one that only listens.
pub(crate) struct Pair {
    asking: Wire,
    listening: Wire,
    admin: Wire,
    pub(crate) master: Master,
    asked: u64,
    history: Vec<String>,
    differences: Vec<String>,
}

/// The master's connections.
const ASKING: u64 = 1;
const LISTENING: u64 = 2;

/// A connection to the real server.
struct Wire {
    stream: TcpStream,
    splitter: Splitter,
}

impl Wire {
    fn open(server: &TestServer) -> Self {
        let stream = TcpStream::connect(server.addr()).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a limit");
        stream.set_nodelay(true).expect("no delay");
        Self {
            stream,
            splitter: Splitter::default(),
        }
    }

    /// Sends, and reads up to the frame that ends the answer.
    fn exchange(&mut self, bytes: &[u8], last: &[u8]) -> Vec<Vec<u8>> {
        self.stream.write_all(bytes).expect("the server reads");
        let mut frames = Vec::new();
        let mut buffer = [0; 16 * 1024];
        loop {
            while let Some(frame) = self.splitter.next_frame().expect("the protocol") {
                if frame == last {
                    return frames;
                }
                frames.push(frame);
            }
            let size = self.stream.read(&mut buffer).unwrap_or_else(|error| {
                panic!(
                    "{error}: no answer to {}; so far {}",
                    shown(bytes),
                    shown(&frames.concat())
                )
            });
            assert_ne!(
                size,
                0,
                "the server has ended the connection after {}",
                shown(bytes)
            );
            self.splitter.push(&buffer[..size]);
        }
    }
}

impl Pair {
    /// An empty server and an empty master.
    pub(crate) fn new(server: &TestServer, protocol: u8) -> Self {
        let mut master = Master::new(now());
        master.connect(ASKING);
        master.connect(LISTENING);
        let mut pair = Self {
            asking: Wire::open(server),
            listening: Wire::open(server),
            admin: Wire::open(server),
            master,
            asked: 0,
            history: Vec::new(),
            differences: Vec::new(),
        };
        // The user whose rights a test takes away. The master has one user only.
        pair.admin("ACL SETUSER app reset on nopass ~* &* +@all");
        pair.asking
            .exchange(&packed(&words("AUTH app any")), b"+OK\r\n");
        // A listener that has gone may still be counted.
        pair.admin("CLIENT KILL TYPE pubsub");
        pair.admin("FLUSHALL");
        pair.admin("SCRIPT FLUSH");
        let hello = packed(&words(&format!("HELLO {protocol}")));
        let last = packed_ping("hello");
        pair.asking
            .exchange(&[hello.clone(), last.0.clone()].concat(), &last.1);
        pair.master.receive(ASKING, &hello);
        pair
    }

    /// Asks the real server alone.
    pub(crate) fn admin(&mut self, command: &str) {
        let (ping, answer) = packed_ping("admin");
        let bytes = [packed(&words(command)), ping].concat();
        let frames = self.admin.exchange(&bytes, &answer);
        assert!(
            !frames[0].starts_with(b"-"),
            "{command}: {}",
            shown(&frames[0])
        );
    }

    /// Lets the second connection listen.
    pub(crate) fn listen(&mut self, channels: &str) {
        let bytes = packed(&words(&format!("SUBSCRIBE {channels}")));
        self.hear(&bytes);
    }

    fn hear(&mut self, bytes: &[u8]) {
        // In a subscription of the second protocol the answer to a PING is an array.
        let last = b"*2\r\n$4\r\npong\r\n$0\r\n\r\n";
        let ping = packed(&words("PING"));
        let real = self.listening.exchange(&[bytes, &ping].concat(), last);
        let ours = self.master.receive(LISTENING, bytes);
        let mut heard = Vec::new();
        for output in ours {
            heard.extend(bytes_of(output, LISTENING));
        }
        self.compare(&real, &heard, "what a listener got at once");
    }

    /// Asks both, and wants the same answer, the same messages on the asking connection, and the same at the listener.
    pub(crate) fn ask(&mut self, words: &Words) {
        self.history.push(line(words));
        self.asked += 1;
        let (ping, answer) = packed_ping(&self.asked.to_string());
        let bytes = [packed(words), ping].concat();
        self.master.set_time(now());
        let real = self.asking.exchange(&bytes, &answer);
        let (mut ours, mut heard) = (Vec::new(), Vec::new());
        for output in self.master.receive(ASKING, &bytes) {
            match output {
                Output::Bytes(LISTENING, bytes) => heard.extend(bytes),
                other => ours.extend(bytes_of(other, ASKING)),
            }
        }
        assert!(ours.ends_with(&answer), "{}", shown(&ours));
        ours.truncate(ours.len() - answer.len());
        self.compare(&real, &ours, "the answer");
        let last = b"*2\r\n$4\r\npong\r\n$0\r\n\r\n";
        if self.listens() {
            let real = self.listening.exchange(&packed(&self::words("PING")), last);
            self.compare(&real, &heard, "what the listener heard");
        }
    }

    fn listens(&self) -> bool {
        self.master.subscriptions(LISTENING) > 0
    }

    /// Asks what is in both: every key, its value, and how long it lives.
    pub(crate) fn look(&mut self) {
        let keys = self.master.keys();
        let mut real = self.asking_keys();
        real.sort();
        let ours: Vec<_> = keys.iter().map(|key| shown(key)).collect();
        if real != ours {
            self.differences
                .push(format!("the keys: {real:?}, {ours:?}"));
        }
        for key in keys {
            for command in ["TYPE", "GET", "PTTL"] {
                self.ask(&vec![command.into(), key.clone()]);
            }
            self.ask(&vec!["LRANGE".into(), key.clone(), "0".into(), "-1".into()]);
            self.ask(&vec!["HGETALL".into(), key.clone()]);
        }
    }

    fn asking_keys(&mut self) -> Vec<String> {
        let (ping, answer) = packed_ping("keys");
        let frames = self
            .admin
            .exchange(&[packed(&words("KEYS *")), ping].concat(), &answer);
        let keys = parse_request(&frames[0]).unwrap_or_default();
        keys.iter().map(|key| shown(key)).collect()
    }

    fn compare(&mut self, real: &[Vec<u8>], ours: &[u8], what: &str) {
        let real = real.concat();
        let asked = self.history.last().map_or("", String::as_str);
        let in_seconds = asked.to_ascii_uppercase().starts_with("TTL ");
        if !same(&real, ours, now(), in_seconds) {
            self.differences.push(format!(
                "{asked}: {what}\n  the server: {}\n  the master: {}",
                shown(&real),
                shown(ours)
            ));
        }
    }

    /// Fails where an answer differed.
    pub(crate) fn agree(&self) {
        let first: Vec<_> = self
            .differences
            .iter()
            .take(20)
            .map(String::as_str)
            .collect();
        assert!(
            first.is_empty(),
            "{} answers differ\n{}\nafter\n{}",
            self.differences.len(),
            first.join("\n"),
            self.told()
        );
    }

    /// Keeps a line in the history.
    pub(crate) fn note(&mut self, line: &str) {
        self.history.push(line.to_owned());
    }

    fn told(&self) -> String {
        self.history.join("\n")
    }
}

fn bytes_of(output: Output, expected: u64) -> Vec<u8> {
    match output {
        Output::Bytes(id, bytes) if id == expected => bytes,
        other => panic!("not expected: {other:?}"),
    }
}

pub(crate) fn now() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    u64::try_from(now.as_micros()).expect("a time")
}

fn packed<T: AsRef<[u8]>>(words: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A PING with a word of its own, and its answer.
fn packed_ping(word: &str) -> (Vec<u8>, Vec<u8>) {
    let word = format!("that was {word}");
    let answer = format!("${}\r\n{word}\r\n", word.len());
    (packed(&["PING", &word]), answer.into_bytes())
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "|")
}

fn line(words: &Words) -> String {
    let words = words
        .iter()
        .map(|word| match String::from_utf8_lossy(word) {
            text if text.contains('\n') => format!("<script {}>", text.len()),
            text if text.is_empty() => "''".to_owned(),
            text => text.into_owned(),
        });
    words.collect::<Vec<_>>().join(" ")
}
