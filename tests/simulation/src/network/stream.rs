//! The client's end of a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use lock_core::sim;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ConnectionId;
use super::state::{Stage, State};
use super::wire::Wire;

/// A connection that is being made.
struct Attempt {
    wire: Wire,
    id: u64,
    /// The stream has it now.
    is_over: bool,
}

/// A connection that was made.
struct SimStream {
    wire: Wire,
    id: u64,
}

impl Wire {
    /// Connects to the server to which an address leads.
    pub(crate) fn connect(&self, process: usize, address: usize) -> sim::Connecting {
        let id = self.with(|state| state.begin_connect(process, address));
        let what = format_args!("p{process} connects to {address}");
        self.trace.line(ConnectionId(id), what);
        Box::pin(Attempt {
            wire: self.clone(),
            id,
            is_over: false,
        })
    }
}

impl Future for Attempt {
    type Output = io::Result<Box<dyn sim::Stream>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.id;
        let stage = self.wire.with(|state| {
            let connection = state.connections.get_mut(&id)?;
            if connection.stage == Stage::Connecting {
                connection.reader = Some(cx.waker().clone());
            }
            Some(connection.stage)
        });
        match stage {
            Some(Stage::Connecting) => Poll::Pending,
            Some(Stage::Open | Stage::Ended) => {
                self.is_over = true;
                let wire = self.wire.clone();
                Poll::Ready(Ok(Box::new(SimStream { wire, id })))
            }
            Some(Stage::Refused) => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_over {
            self.wire.with(|state| state.drop_stream(self.id));
        }
    }
}

impl SimStream {
    fn closed<T>(&self) -> Poll<io::Result<T>> {
        let _ = self;
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.wire.with(|state| {
            let Some(connection) = state.connections.get_mut(&self.id) else {
                return self.closed();
            };
            if !connection.inbox.is_empty() {
                let (first, _) = connection.inbox.as_slices();
                let taken = first.len().min(buffer.remaining());
                buffer.put_slice(&first[..taken]);
                connection.inbox.drain(..taken);
                return Poll::Ready(Ok(()));
            }
            match connection.stage {
                Stage::Open => {
                    connection.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
                Stage::Ended => Poll::Ready(Ok(())),
                _ => self.closed(),
            }
        })
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.wire.with(|state| {
            let Some(connection) = state.connections.get_mut(&self.id) else {
                return self.closed();
            };
            match connection.stage {
                Stage::Open if !State::has_room(connection) => {
                    connection.writer = Some(cx.waker().clone());
                    Poll::Pending
                }
                // The server has closed, and would answer with a reset.
                Stage::Open | Stage::Ended => {
                    if connection.known {
                        state.send(self.id, true, bytes.to_vec());
                    }
                    Poll::Ready(Ok(bytes.len()))
                }
                _ => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.with(|state| state.close(self.id));
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.wire.with(|state| state.drop_stream(self.id));
    }
}
