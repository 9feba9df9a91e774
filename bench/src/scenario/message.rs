//! What a hand-over between processes costs at least: one message through the server, to a client that has rested. For (g).
//!
//! Plain sockets and blocking calls, so nothing but the machine, the kernel and the server are measured.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Figures, Kind, Step};
use crate::clock;
use crate::options::Options;
use crate::stage::Stage;
use crate::stats::Sorted;

/// For how long everybody rests before a message, and what that is called: the time inside, and so long as a process waits
/// that shares the lock with three others.
pub(crate) const RESTS: [(Duration, &str); 2] = [
    (Duration::from_millis(2), "a bare message, after 2 ms"),
    (Duration::from_millis(30), "a bare message, after 30 ms"),
];

const CHANNEL: &str = "bench:message";
const SPAN: Duration = Duration::from_millis(1200);

pub(super) struct Spec {
    rest: Duration,
}

pub(super) fn steps() -> Vec<Step> {
    RESTS
        .map(|(rest, variant)| Step {
            scenario: "g",
            variant: variant.to_owned(),
            kind: Kind::Message(Spec { rest }),
        })
        .into()
}

impl Spec {
    pub(super) async fn measure(&self, options: &Options, stage: &Stage) -> Result<Figures> {
        let server = stage.server().addr();
        let rest = self.rest;
        let span = if options.quick { SPAN / 6 } else { SPAN };
        let count = span.div_duration_f64(rest) as usize;
        let times = tokio::task::spawn_blocking(move || messages(server, rest, count))
            .await
            .context("messages")??;
        let times = Sorted::of(times);
        let micros = |percent| times.percentile(percent).map(|time| time as f64 / 1e3);
        Ok(vec![("p50_us", micros(50)), ("p99_us", micros(99))])
    }
}

/// From before a message is sent until it is received, in nanoseconds.
fn messages(server: std::net::SocketAddr, rest: Duration, count: usize) -> Result<Vec<u64>> {
    let mut listener = BufReader::new(connected(server)?);
    write!(listener.get_mut(), "SUBSCRIBE {CHANNEL}\r\n")?;
    // Six lines say that it listens; then each message has seven, the last of which is the message.
    last_line(&mut listener, 6)?;
    let listening = std::thread::spawn(move || -> Result<Vec<u64>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let sent: u64 = last_line(&mut listener, 7)?.parse()?;
            times.push(clock::now() - sent);
        }
        Ok(times)
    });
    let mut speaker = BufReader::new(connected(server)?);
    for _ in 0..count {
        std::thread::sleep(rest);
        let message = format!("PUBLISH {CHANNEL} {}\r\n", clock::now());
        speaker.get_mut().write_all(message.as_bytes())?;
        let heard = last_line(&mut speaker, 1)?;
        if heard != ":1" {
            bail!("{heard} instead of one listener");
        }
    }
    match listening.join() {
        Ok(times) => times,
        Err(_) => bail!("the listener has panicked"),
    }
}

fn connected(server: std::net::SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// Reads so many lines, and returns the last.
fn last_line(stream: &mut impl BufRead, count: usize) -> Result<String> {
    let mut line = String::new();
    for _ in 0..count {
        line.clear();
        stream.read_line(&mut line)?;
    }
    Ok(line.trim_end().to_owned())
}
