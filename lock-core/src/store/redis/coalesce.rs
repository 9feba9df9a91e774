//! A stream that sends what is ready together in one write.
//!
//! The connection's task writes as soon as it is woken. On a runtime of several threads that is after the first request,
//! while the other tasks are about to send theirs, and a system call for each request is the larger part of its cost.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So many times a write lets the tasks that are ready run first: once for those that were woken together with the
/// connection's task, and once for those that they woke.
const TURNS: u8 = 2;

/// So many bytes are worth a write of their own: the server may begin on them while we gather the next ones.
const ENOUGH: usize = 2 * 1024;

/// So many requests under way are no crowd. The one that is being written is one of them. Another has most likely been
/// sent long ago: in a quorum it is that of a node that was slower than the majority, whose caller has gone on to the
/// request that is being written, and would wait for itself.
const FEW: usize = 2;

/// How many requests are under way on a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Load(Arc<AtomicUsize>);

impl Load {
    /// Counts a request, until what this returns is dropped.
    pub(super) fn request(&self) -> UnderWay {
        self.0.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(&self.0))
    }

    pub(super) fn is_busy(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// So few are under way that hardly another is about to be sent: nobody is to be waited for.
    fn is_light(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= FEW
    }
}

/// A request that counts.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Puts a write off for [`TURNS`] turns of the runtime. It keeps no bytes of its own: they stay with the caller, who
/// comes again with these and more, so that errors, shutdown and back-pressure are those of the stream below.
pub(super) struct Coalesced<S> {
    stream: S,
    load: Load,
    turns: u8,
}

impl<S> Coalesced<S> {
    pub(super) fn new(stream: S, load: Load) -> Self {
        Self {
            stream,
            load,
            turns: TURNS,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.turns > 0 && bytes.len() < ENOUGH && !self.load.is_light() {
            self.turns -= 1;
            // A task that wakes itself is put behind all that are ready.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // What a full socket left over has waited long enough.
        self.turns = 0;
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        if written == bytes.len() {
            self.turns = TURNS;
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Takes `room` bytes with each write, and remembers the writes.
    struct Recorder {
        writes: Vec<Vec<u8>>,
        room: usize,
    }

    impl AsyncWrite for Recorder {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.room == 0 {
                return Poll::Pending;
            }
            let taken = bytes.len().min(self.room);
            self.writes.push(bytes[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A stream polled by hand, with so many requests under way.
    struct Rig {
        stream: Coalesced<Recorder>,
        woken: Arc<Woken>,
        _requests: Vec<UnderWay>,
    }

    impl Rig {
        fn new(requests: usize) -> Self {
            let load = Load::default();
            let requests = (0..requests).map(|_| load.request()).collect();
            let recorder = Recorder {
                writes: Vec::new(),
                room: usize::MAX,
            };
            Self {
                stream: Coalesced::new(recorder, load),
                woken: Arc::default(),
                _requests: requests,
            }
        }

        /// How many bytes were taken, `None` for "not now".
        fn write(&mut self, bytes: &[u8]) -> Option<usize> {
            let waker = Waker::from(Arc::clone(&self.woken));
            let mut cx = Context::from_waker(&waker);
            match Pin::new(&mut self.stream).poll_write(&mut cx, bytes) {
                Poll::Ready(taken) => Some(taken.unwrap()),
                Poll::Pending => None,
            }
        }

        fn woken(&self) -> usize {
            self.woken.0.load(Ordering::Relaxed)
        }

        fn writes(&self) -> Vec<&[u8]> {
            self.stream.stream.writes.iter().map(|w| &w[..]).collect()
        }
    }

    #[test]
    fn what_becomes_ready_before_the_write_leaves_with_it() {
        let mut rig = Rig::new(3);
        assert_eq!(rig.write(b"a"), None);
        assert_eq!(rig.write(b"ab"), None);
        assert_eq!(rig.write(b"abc"), Some(3));
        assert_eq!(rig.writes(), [b"abc"]);
        // And the next ones are gathered again.
        assert_eq!(rig.write(b"d"), None);
    }

    #[test]
    fn a_write_that_is_put_off_wakes_its_task_each_time() {
        let mut rig = Rig::new(3);
        for turn in 1..=usize::from(TURNS) {
            assert_eq!(rig.write(b"a"), None);
            assert_eq!(rig.woken(), turn);
        }
        assert_eq!(rig.write(b"a"), Some(1));
        assert_eq!(rig.woken(), usize::from(TURNS));
    }

    #[test]
    fn a_lone_request_and_one_beside_an_older_one_are_written_at_once() {
        assert_eq!(Rig::new(1).write(b"a"), Some(1));
        assert_eq!(Rig::new(FEW).write(b"a"), Some(1));
        // The set-up of a connection counts as nobody's request.
        assert_eq!(Rig::new(0).write(b"a"), Some(1));
    }

    #[test]
    fn a_request_that_was_given_up_is_not_waited_for() {
        let load = Load::default();
        let kept = [load.request(), load.request()];
        let given_up = load.request();
        assert!(!load.is_light());
        drop(given_up);
        assert!(load.is_light());
        drop(kept);
    }

    #[test]
    fn enough_bytes_do_not_wait_for_more() {
        let mut rig = Rig::new(3);
        assert_eq!(rig.write(&[0; ENOUGH]), Some(ENOUGH));
    }

    #[test]
    fn what_a_full_socket_left_over_does_not_wait_again() {
        let mut rig = Rig::new(3);
        rig.stream.stream.room = 2;
        assert_eq!((rig.write(b"abcd"), rig.write(b"abcd")), (None, None));
        assert_eq!(rig.write(b"abcd"), Some(2));
        let woken = rig.woken();
        rig.stream.stream.room = 0;
        // It is the socket that wakes the task now.
        assert_eq!((rig.write(b"cd"), rig.woken()), (None, woken));
        rig.stream.stream.room = 2;
        assert_eq!(rig.write(b"cd"), Some(2));
        assert_eq!(rig.writes(), [b"ab", b"cd"]);
    }

    #[tokio::test]
    async fn a_write_ends_without_another_event_and_shutdown_comes_behind_it() {
        let (ours, mut theirs) = duplex(64);
        let load = Load::default();
        let _requests = [load.request(), load.request(), load.request()];
        let mut stream = Coalesced::new(ours, load);
        stream.write_all(b"one").await.unwrap();
        stream.write_all(b"two").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = String::new();
        theirs.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "onetwo");
        drop(theirs);
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_write_error_surfaces() {
        let (ours, theirs) = duplex(64);
        drop(theirs);
        let load = Load::default();
        let _requests = [load.request(), load.request(), load.request()];
        let mut stream = Coalesced::new(ours, load);
        let error = stream.write_all(b"one").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
