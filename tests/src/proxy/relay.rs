use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

use super::pending::{Answer, Loss, Pending};
use super::request::Request;
use super::rules::{DropMode, Verdict};
use super::{Shared, lock};
use crate::resp::{Splitter, parse_request};

/// A request on its way to the server, or the end of them.
enum Upward {
    Request {
        due: Instant,
        bytes: Vec<u8>,
        request: Request,
        verdict: Verdict,
    },
    End,
}

/// A frame on its way to the client, or the end of them.
enum Downward {
    Frame { due: Instant, bytes: Vec<u8> },
    End,
}

/// One client's connection. Four loops, two a direction, joined by queues: one
/// reads and judges, the other waits and writes, so that a message that waits
/// keeps its place and never keeps the next one from being seen.
struct Relay<'a> {
    shared: &'a Shared,
    id: u64,
    pending: Mutex<Pending>,
    /// The client's side has been closed by the proxy.
    client_closed: Notify,
    /// The client has closed its side.
    client_gone: Notify,
    /// The server has closed its side.
    server_gone: Notify,
    reset: watch::Receiver<u64>,
}

/// Relays until both sides are closed, or for ever if a cut hides the end.
pub(super) async fn run(
    shared: &Shared,
    id: u64,
    client: TcpStream,
    target: SocketAddr,
    reset: watch::Receiver<u64>,
) -> io::Result<()> {
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let (up_sender, up) = unbounded_channel();
    let (down_sender, down) = unbounded_channel();
    let relay = Relay {
        shared,
        id,
        pending: Mutex::default(),
        client_closed: Notify::new(),
        client_gone: Notify::new(),
        server_gone: Notify::new(),
        reset,
    };
    let write_up = async {
        tokio::select! {
            () = relay.write_requests(server_write, up) => {}
            // Nobody is left to deliver to.
            () = relay.server_gone.notified() => {}
        }
    };
    tokio::join!(
        relay.read_requests(client_read, up_sender),
        write_up,
        relay.read_replies(server_read, down_sender),
        relay.write_replies(client_write, down),
    );
    Ok(())
}

impl Relay<'_> {
    async fn read_requests(&self, mut client: OwnedReadHalf, up: UnboundedSender<Upward>) {
        let mut reset = self.reset.clone();
        let mut splitter = Splitter::default();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let read = tokio::select! {
                biased;
                _ = reset.changed() => break,
                () = self.client_closed.notified() => break,
                read = client.read(&mut buffer) => read,
            };
            if self.is_reset() {
                break;
            }
            match read {
                Ok(size) if size > 0 => splitter.push(&buffer[..size]),
                _ => break,
            }
            if !self.judge(&mut splitter, &up) {
                break;
            }
        }
        self.client_gone.notify_one();
        let _ = up.send(Upward::End);
    }

    /// Takes the requests that have come; `false` if they are none.
    fn judge(&self, splitter: &mut Splitter, up: &UnboundedSender<Upward>) -> bool {
        loop {
            let bytes = match splitter.next_frame() {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return true,
                Err(error) => {
                    eprintln!("proxy: client of connection {}: {error}", self.id);
                    return false;
                }
            };
            let Some(args) = parse_request(&bytes) else {
                eprintln!("proxy: connection {}: not a request", self.id);
                return false;
            };
            let request = Request::new(self.id, args);
            let verdict = self.shared.judge(&request);
            let _ = up.send(Upward::Request {
                due: self.due(),
                bytes,
                request,
                verdict,
            });
        }
    }

    async fn write_requests(&self, mut server: OwnedWriteHalf, mut up: UnboundedReceiver<Upward>) {
        let mut reset = self.reset.clone();
        let mut hold = self.shared.hold.subscribe();
        // Once a byte is lost, the ones after it cannot arrive either.
        let mut cut = false;
        while let Some(item) = up.recv().await {
            match item {
                Upward::Request {
                    due,
                    bytes,
                    request,
                    verdict,
                } => {
                    sleep_until(due).await;
                    if let Some(slot) = verdict.hold {
                        slot.until_delivered().await;
                    }
                    let _ = hold.wait_for(|hold| !hold).await;
                    cut |= self.shared.cut_to_server.load(Ordering::SeqCst);
                    if cut {
                        self.shared.lost_requests.add();
                        continue;
                    }
                    let loss = verdict.drop_reply.map(|(mode, slot)| Loss {
                        mode,
                        slot,
                        request: request.clone(),
                    });
                    // Before it is sent, as the reply may be back at once.
                    lock(&self.pending).sent(&request, loss);
                    if server.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Upward::End => {
                    cut |= self.shared.cut_to_server.load(Ordering::SeqCst);
                    if cut {
                        // The end is lost like everything else.
                        self.shared.lost_requests.add();
                        let _ = reset.changed().await;
                    }
                    return;
                }
            }
        }
    }

    async fn read_replies(&self, mut server: OwnedReadHalf, down: UnboundedSender<Downward>) {
        let mut splitter = Splitter::default();
        let mut buffer = vec![0; 16 * 1024];
        let mut muted = false;
        'read: while let Ok(size) = server.read(&mut buffer).await {
            if size == 0 {
                break;
            }
            splitter.push(&buffer[..size]);
            loop {
                let bytes = match splitter.next_frame() {
                    Ok(Some(bytes)) => bytes,
                    Ok(None) => break,
                    Err(error) => {
                        eprintln!("proxy: server of connection {}: {error}", self.id);
                        break 'read;
                    }
                };
                match lock(&self.pending).received(&bytes) {
                    Answer::Push => {
                        if self.shared.drop_pushes.load(Ordering::SeqCst) {
                            continue;
                        }
                    }
                    Answer::Reply(None) => {}
                    Answer::Reply(Some(loss)) => {
                        muted = true;
                        if loss.mode == DropMode::Close {
                            let _ = down.send(Downward::End);
                        }
                        loss.slot.catch(loss.request);
                    }
                }
                if !muted {
                    let due = self.due();
                    let _ = down.send(Downward::Frame { due, bytes });
                }
            }
        }
        self.server_gone.notify_one();
        let _ = down.send(Downward::End);
    }

    async fn write_replies(
        &self,
        mut client: OwnedWriteHalf,
        mut down: UnboundedReceiver<Downward>,
    ) {
        let mut reset = self.reset.clone();
        let write = async {
            let mut cut = false;
            while let Some(item) = down.recv().await {
                if let Downward::Frame { due, .. } = &item {
                    sleep_until(*due).await;
                }
                cut |= self.shared.cut_to_client.load(Ordering::SeqCst);
                match item {
                    _ if self.is_reset() => break,
                    _ if cut => self.shared.lost_replies.add(),
                    // The client may have gone; what the server still says is
                    // then taken and forgotten.
                    Downward::Frame { bytes, .. } => drop(client.write_all(&bytes).await),
                    Downward::End => break,
                }
            }
            if cut {
                // The client must not learn that the server has closed.
                self.client_gone.notified().await;
            }
        };
        tokio::select! {
            _ = reset.changed() => {}
            () = write => {}
        }
        if self.is_reset() {
            let _ = client.as_ref().set_zero_linger();
            // Or the drop would say goodbye before the reset.
            client.forget();
        }
        self.client_closed.notify_one();
    }

    /// To be asked as well as waited for: the loops are woken one by one, and
    /// one that is still asleep may see the consequences before the cause.
    fn is_reset(&self) -> bool {
        self.reset.has_changed().unwrap_or(true)
    }

    fn due(&self) -> Instant {
        Instant::now() + self.shared.delay()
    }
}
