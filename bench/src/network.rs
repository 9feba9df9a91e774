//! A network that takes its time.
//!
//! The proxy of the test harness counts in milliseconds, as the timers of tokio do: too coarse for a delay of a
//! quarter of one. This one delays by threads that sleep and, for the last bit, look at the clock.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// How late the system may wake a thread that sleeps.
const LATE: Duration = Duration::from_micros(100);

/// A port that passes everything on to the server, later.
pub(crate) struct Network {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    ended: AtomicBool,
    /// Both sides of every connection, to be closed in the end; their threads end with them.
    streams: Mutex<Vec<TcpStream>>,
}

impl Network {
    /// With this delay in each direction.
    pub(crate) fn start(server: SocketAddr, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = listener.local_addr()?;
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if theirs.ended.load(Ordering::SeqCst) {
                    break;
                }
                let joined = client.and_then(|client| join(client, server, delay, &theirs));
                if let Err(error) = joined {
                    eprintln!("lock-bench: a connection through the slow network failed: {error}");
                }
            }
        });
        Ok(Self { addr, shared })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for stream in self.shared.streams().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.addr);
    }
}

impl Shared {
    fn streams(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn join(
    client: TcpStream,
    server: SocketAddr,
    delay: Duration,
    shared: &Shared,
) -> std::io::Result<()> {
    let server = TcpStream::connect(server)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    shared
        .streams()
        .extend([client.try_clone()?, server.try_clone()?]);
    one_way(client.try_clone()?, server.try_clone()?, delay);
    one_way(server, client, delay);
    Ok(())
}

fn one_way(from: TcpStream, to: TcpStream, delay: Duration) {
    let (sender, receiver) = channel();
    thread::spawn(move || read(from, delay, &sender));
    thread::spawn(move || write(to, &receiver));
}

fn read(mut from: TcpStream, delay: Duration, sender: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(size @ 1..) = from.read(&mut buffer) {
        let due = Instant::now() + delay;
        if sender.send((due, buffer[..size].to_vec())).is_err() {
            break;
        }
    }
}

fn write(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, bytes)) = receiver.recv() {
        let left = due.saturating_duration_since(Instant::now());
        thread::sleep(left.saturating_sub(LATE));
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::Network;

    #[test]
    fn what_passes_through_comes_later_and_whole() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let delay = Duration::from_millis(3);
        let network = Network::start(server.local_addr().unwrap(), delay).unwrap();
        let mut client = TcpStream::connect(network.addr).unwrap();
        let start = Instant::now();
        client.write_all(b"ping").unwrap();
        let (mut far, _) = server.accept().unwrap();
        let mut bytes = [0; 4];
        far.read_exact(&mut bytes).unwrap();
        assert!(start.elapsed() >= delay);
        far.write_all(&bytes).unwrap();
        client.read_exact(&mut bytes).unwrap();
        assert!(start.elapsed() >= 2 * delay);
        assert_eq!(&bytes, b"ping");
    }

    #[test]
    fn its_end_ends_the_connections() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let network = Network::start(server.local_addr().unwrap(), Duration::ZERO).unwrap();
        let mut client = TcpStream::connect(network.addr).unwrap();
        let (mut far, _) = server.accept().unwrap();
        client.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        drop(network);
        assert!(matches!(far.read(&mut [0]), Ok(0) | Err(_)));
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    }
}
