//! How long a connection has been silent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use once_cell::sync::OnceCell;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Maximum length of the greeting that is kept.
const GREETING: usize = 8192;

/// The silence of a connection: the time since its last answer, or since the first request after that answer. An answer counts
/// however late it is, also if its caller has given up.
#[derive(Debug, Clone)]
pub(in crate::store::redis) struct Silence(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origin: Instant,
    /// The beginning of the silence in microseconds after `origin`, times 2, plus 1 if nothing was asked since.
    since: AtomicU64,
    /// Duration of the first silence that an answer ended, in microseconds: a round trip while nothing else was under way.
    first: AtomicU64,
    /// The first bytes that came.
    greeting: OnceCell<Box<[u8]>>,
}

impl Silence {
    pub(in crate::store::redis) fn new() -> Self {
        Self(Arc::new(Inner {
            origin: Instant::now(),
            since: AtomicU64::new(1),
            first: AtomicU64::new(0),
            greeting: OnceCell::new(),
        }))
    }

    /// The first bytes that came: the reply to HELLO, or what a server of another kind says.
    pub(in crate::store::redis) fn greeting(&self) -> Option<&[u8]> {
        self.0.greeting.get().map(|bytes| &**bytes)
    }

    fn now(&self) -> u64 {
        self.0.origin.elapsed().as_micros() as u64
    }

    /// Notes that something was sent.
    pub(in crate::store::redis) fn asked(&self) {
        let since = self.0.since.load(Ordering::Relaxed);
        if !since.is_multiple_of(2) {
            let asked = self.now() * 2;
            let _ =
                self.0
                    .since
                    .compare_exchange(since, asked, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Notes that something came from the server.
    pub(in crate::store::redis) fn received(&self) {
        let now = self.now();
        let before = self.0.since.swap(now * 2 + 1, Ordering::Relaxed);
        if before.is_multiple_of(2) {
            let lasted = now.saturating_sub(before / 2).max(1);
            let _ = self
                .0
                .first
                .compare_exchange(0, lasted, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The silence so far. Zero on a connection that is younger than a request that was sent `limit` ago.
    pub(in crate::store::redis) fn lasts(&self, limit: Duration) -> Duration {
        let now = self.now();
        if Duration::from_micros(now) < limit {
            return Duration::ZERO;
        }
        // A repeated request does not begin the silence anew: it counts from the first request after the last answer.
        let since = self.0.since.fetch_and(!1, Ordering::Relaxed) / 2;
        Duration::from_micros(now.saturating_sub(since))
    }

    /// Duration of a round trip, measured when the connection was made.
    pub(in crate::store::redis) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.0.first.load(Ordering::Relaxed))
    }
}

/// A stream that notes its silence.
pub(in crate::store::redis) struct Heard<S> {
    pub(in crate::store::redis) stream: S,
    pub(in crate::store::redis) silence: Silence,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if let Some(came) = buf.filled().get(before..).filter(|came| !came.is_empty()) {
            self.silence.received();
            let greeting = &self.silence.0.greeting;
            greeting.get_or_init(|| came[..came.len().min(GREETING)].into());
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.silence.asked();
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    async fn after(millis: u64) {
        tokio::time::advance(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_late_together_are_one_silence() {
        let silence = Silence::new();
        after(1_000).await;
        for _ in 0..50 {
            silence.asked();
        }
        after(100).await;
        for _ in 0..50 {
            assert_eq!(silence.lasts(LIMIT), LIMIT);
        }
        silence.asked();
        after(100).await;
        assert_eq!(silence.lasts(LIMIT), LIMIT * 2);
        // A late answer, after its caller has given up.
        silence.received();
        assert_eq!(silence.lasts(LIMIT), Duration::ZERO);
        assert_eq!(silence.round_trip(), LIMIT * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_behind_the_last_answer_goes_on_waiting() {
        let silence = Silence::new();
        silence.asked();
        after(60).await;
        silence.received();
        after(40).await;
        // A second request was sent with the first.
        assert_eq!(silence.lasts(LIMIT), Duration::from_millis(40));
        after(100).await;
        silence.asked();
        assert_eq!(silence.lasts(LIMIT), Duration::from_millis(140));
        silence.received();
        assert_eq!(silence.round_trip(), Duration::from_millis(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_younger_than_a_request_did_not_carry_it() {
        let silence = Silence::new();
        after(99).await;
        assert_eq!(silence.lasts(LIMIT), Duration::ZERO);
        after(1).await;
        assert_eq!(silence.lasts(LIMIT), LIMIT);
    }
}
