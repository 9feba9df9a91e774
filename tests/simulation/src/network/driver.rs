//! The task of the network: brings what is due to the server and to the clients.

use std::fmt::Write;
use std::future::pending;
use std::mem::take;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use lock_core::sim;
use lock_master::Output;
use tokio::time::{Instant, Sleep, sleep};

use super::state::{Event, Payload, Stage, now};
use super::{ConnectionId, Cut, Wire};
use crate::meter::Meter;
use crate::request::{Command, shown};
use crate::server::Server;

/// Marks what a client is sent, in the hash of the trace.
const TO_CLIENT: u64 = 1 << 63;

/// A future that never ends.
pub(crate) struct Driver {
    wire: Wire,
    servers: Vec<Server>,
    meter: Meter,
    start: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Driver {
    pub(crate) fn new(wire: Wire, servers: Vec<Server>, meter: Meter) -> Self {
        Self {
            wire,
            servers,
            meter,
            start: Instant::now() - sim::elapsed(),
            sleep: Box::pin(sleep(Duration::ZERO)),
        }
    }

    fn handle(&self, event: Event) {
        match event {
            Event::Connect(id) => self.connect(id),
            Event::ToServer(id) => match self.wire.with(|state| state.arrived(id, true)) {
                Some(Payload::Bytes(bytes)) => self.request(id, &bytes),
                Some(Payload::End | Payload::Reset) => {
                    self.wire
                        .trace
                        .line(ConnectionId(id), format_args!("-> end"));
                    let was_known = self.wire.with(|state| state.unknown(id));
                    if was_known && let Some(server) = self.server_of(id) {
                        server.disconnect(id);
                    }
                    self.wire.with(|state| state.tidy(id));
                }
                None => {}
            },
            Event::ToClient(id) => self.deliver(id),
        }
    }

    fn connect(&self, id: u64) {
        let accepted = self.wire.with(|state| state.finish_connect(id));
        if accepted {
            self.wire
                .trace
                .line(ConnectionId(id), format_args!("accepted"));
            if let Some(server) = self.server_of(id) {
                server.connect(id);
            }
        }
    }

    fn server_of(&self, id: u64) -> Option<&Server> {
        let server = self.wire.with(|state| state.server_of(ConnectionId(id)));
        self.servers.get(server?)
    }

    fn deliver(&self, id: u64) {
        let Some(payload) = self.wire.with(|state| state.arrived(id, false)) else {
            return;
        };
        match &payload {
            Payload::Bytes(bytes) => self.wire.trace.bytes(id | TO_CLIENT, bytes, || {
                format!("#{id} <- {}", shown(bytes, 160))
            }),
            Payload::End => self
                .wire
                .trace
                .line(ConnectionId(id), format_args!("<- end")),
            Payload::Reset => self
                .wire
                .trace
                .line(ConnectionId(id), format_args!("<- reset")),
        }
        self.wire.with(|state| {
            let Some(connection) = state.connections.get_mut(&id) else {
                return;
            };
            if connection.stage != Stage::Open {
                return;
            }
            match payload {
                Payload::Bytes(bytes) => connection.inbox.extend(bytes),
                Payload::End => connection.stage = Stage::Ended,
                Payload::Reset => connection.stage = Stage::Reset,
            }
            state.wake.extend(connection.reader.take());
        });
    }

    fn request(&self, id: u64, bytes: &[u8]) {
        let cut = self.wire.with(|state| {
            let cut = state.take_cut(id, |cut| cut == Cut::BeforeRequest);
            if cut.is_some() {
                state.reset(id);
            }
            cut
        });
        if cut.is_some() {
            self.wire
                .trace
                .line(ConnectionId(id), format_args!("reset before a request"));
            return;
        }
        let Some(server) = self.server_of(id) else {
            return;
        };
        self.note(server, id, bytes);
        let mut outputs = server.receive(id, bytes);
        let is_own = |output: &Output| matches!(output, Output::Bytes(to, _) if *to == id);
        let answered = outputs.iter().any(is_own);
        let cut = answered
            .then(|| {
                self.wire
                    .with(|state| state.take_cut(id, |cut| cut != Cut::BeforeRequest))
            })
            .flatten();
        let own = if cut.is_some() {
            outputs.extract_if(.., |output| is_own(output)).collect()
        } else {
            Vec::new()
        };
        self.wire.with(|state| state.send_all(outputs));
        if let Some(cut) = cut {
            self.cut(id, cut, own);
        }
    }

    /// Sends what a cut lets through of a reply, and breaks the connection.
    fn cut(&self, id: u64, cut: Cut, own: Vec<Output>) {
        let mut bytes = Vec::new();
        for output in own {
            if let Output::Bytes(_, part) = output {
                bytes.extend(part);
            }
        }
        if let Cut::InsideReply(most) = cut {
            bytes.truncate(most.min(bytes.len().saturating_sub(1)));
        }
        self.wire
            .trace
            .line(ConnectionId(id), format_args!("{cut:?}"));
        self.wire.with(|state| {
            if !bytes.is_empty() {
                state.push(id, false, Payload::Bytes(bytes));
            }
            state.push(id, false, Payload::Reset);
            if state.unknown(id) {
                state.tell_master(id);
            }
        });
    }

    /// Writes down what arrives at the server, and shows each command to those who watch.
    fn note(&self, server: &Server, id: u64, bytes: &[u8]) {
        let taken = self.wire.with(|state| {
            let connection = state.connections.get_mut(&id)?;
            Some((connection.process, take(&mut connection.requests)))
        });
        let Some((process, mut requests)) = taken else {
            return;
        };
        let keeps = self.wire.trace.keeps();
        let mut text = String::new();
        requests.feed(bytes, |bytes, words| {
            let command = Command::new(process, ConnectionId(id), bytes, words);
            server.saw(&command);
            if keeps {
                let _ = write!(text, "{command}; ");
            }
        });
        self.wire.trace.bytes(id, bytes, || {
            let text = if text.is_empty() { "(part)" } else { &text };
            format!("#{id} -> p{process} {}", text.trim_end_matches("; "))
        });
        self.wire.with(|state| {
            if let Some(connection) = state.connections.get_mut(&id) {
                connection.requests = requests;
            }
        });
    }
}

impl Driver {
    pub(crate) async fn run(mut self) {
        std::future::poll_fn(|cx| self.turn(cx)).await;
        pending::<()>().await;
    }

    /// One turn: all that was due when it began. What comes of it, has its turn later in this millisecond.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if !self.meter.polled() {
                return Poll::Pending;
            }
            let (gone, due) = self.wire.with(|state| {
                state.driver = Some(cx.waker().clone());
                state.sleeps_until = 0;
                let later = state.events.split_off(&(now() + 1, 0));
                (
                    take(&mut state.gone),
                    std::mem::replace(&mut state.events, later),
                )
            });
            for (id, server) in gone {
                self.servers[server].disconnect(id);
                self.wire.with(|state| state.tidy(id));
            }
            for event in due.into_values() {
                self.handle(event);
            }
            let next = self.wire.with(|state| {
                let next = state
                    .events
                    .keys()
                    .next()
                    .map_or(u64::MAX, |(time, _)| *time);
                let next = if state.gone.is_empty() { next } else { 0 };
                state.sleeps_until = next;
                next
            });
            if next <= now() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if next == u64::MAX {
                return Poll::Pending;
            }
            self.sleep
                .as_mut()
                .reset(self.start + Duration::from_millis(next));
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
