//! Distance: a TCP hop that passes on what it is sent a fixed time later.
//!
//! On loopback a client pays for what it computes, and hardly for how often it waits for the
//! server. Where the servers are in another zone, a flight costs a millisecond or two, and what
//! counts is how many there are.
//!
//! What arrives together is passed on together and in order, so that a request that waits for the
//! answer to another pays for two flights, and one that is sent behind it does not. The end of a
//! stream is late, too. Each direction of a connection has two threads, of which one stamps what
//! arrives and the other passes it on in due time; neither waits for the other unless there is a
//! megabyte on the way.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

/// The most that is read, and passed on, at once.
const CHUNK: usize = 64 * 1024;
/// How many chunks may be on the way in one direction of a connection.
const ON_THE_WAY: usize = 16_384;

/// A proxy that delays. Dropping it ends its connections.
#[derive(Debug)]
pub(crate) struct DelayProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    delay: Duration,
    closed: AtomicBool,
    /// Both sides of each connection that there has been.
    streams: Mutex<Vec<TcpStream>>,
}

/// Data, and the moment at which it is passed on. No data means the end of the stream.
struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

impl DelayProxy {
    /// Stands in front of `target`; what is sent, in either direction, arrives `delay` later.
    pub(crate) fn start(target: SocketAddr, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (closed, streams) = (AtomicBool::new(false), Mutex::default());
        let shared = Arc::new(Shared {
            target,
            delay,
            closed,
            streams,
        });
        let acceptor = Arc::clone(&shared);
        spawn("accept", move || acceptor.accept(&listener))?;
        Ok(Self { address, shared })
    }

    /// Returns the address of the proxy.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for DelayProxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // The connection wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        for stream in self.shared.streams().drain(..) {
            // A connection that has ended cannot be shut down, which is not an error here.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
            // A connection that cannot be served is dropped, which its client sees.
            if let Err(error) = client.and_then(|client| self.serve(client)) {
                eprintln!("lockbench: the proxy in front of {}: {error}", self.target);
            }
        }
    }

    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(self.target)?;
        for stream in [&client, &server] {
            // Data that was sent at once is passed on at once.
            stream.set_nodelay(true)?;
            self.streams().push(stream.try_clone()?);
        }
        if self.closed.load(Ordering::SeqCst) {
            // A drop since the connection was accepted has not found these.
            return [&client, &server]
                .iter()
                .try_for_each(|stream| stream.shutdown(Shutdown::Both));
        }
        self.pump(client.try_clone()?, server.try_clone()?)?;
        self.pump(server, client)
    }

    fn pump(&self, from: TcpStream, to: TcpStream) -> io::Result<()> {
        let (sender, receiver) = mpsc::sync_channel(ON_THE_WAY);
        let delay = self.delay;
        spawn("stamp", move || stamp(from, delay, &sender))?;
        spawn("pass on", move || pass_on(&receiver, to))
    }
}

fn spawn(what: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(format!("proxy: {what}"))
        .spawn(run)
        .map(drop)
}

/// Notes of what arrives when it is to be passed on.
fn stamp(mut from: TcpStream, delay: Duration, sender: &SyncSender<Chunk>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        // A connection that breaks ends, as far as the other side is concerned.
        let length = from.read(&mut buffer).unwrap_or(0);
        let bytes = buffer.get(..length).unwrap_or_default().to_vec();
        if sender
            .send(Chunk {
                due: Instant::now() + delay,
                bytes,
            })
            .is_err()
            || length == 0
        {
            return;
        }
    }
}

/// Passes on what is due.
#[expect(clippy::disallowed_methods, reason = "the delay is what this is for")]
fn pass_on(receiver: &Receiver<Chunk>, mut to: TcpStream) {
    // Linux may wake a thread 50 us late unless its timer slack is reduced. If that fails, the
    // delay is a little longer.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    for Chunk { due, bytes } in receiver {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if bytes.is_empty() || to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other direction may continue.
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const DELAY: Duration = Duration::from_millis(20);
    /// The time limit, for a busy machine.
    const LONG: Duration = Duration::from_secs(60);

    /// Returns a connection through a proxy: its client's and its server's end.
    fn pair(proxy: &DelayProxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(proxy.address()).unwrap();
        let (server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
        }
        (client, server)
    }

    fn proxy(delay: Duration) -> (DelayProxy, TcpListener) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        (
            DelayProxy::start(listener.local_addr().unwrap(), delay).unwrap(),
            listener,
        )
    }

    /// Returns how long bytes are on their way.
    fn takes(mut from: &TcpStream, mut to: &TcpStream) -> Duration {
        let sent = Instant::now();
        from.write_all(b"hello").unwrap();
        let mut bytes = [0; 5];
        to.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        sent.elapsed()
    }

    #[test]
    fn delays_both_directions_of_all_connections() {
        let (proxy, listener) = proxy(DELAY);
        let pairs: Vec<_> = (0..3).map(|_| pair(&proxy, &listener)).collect();
        for (client, server) in &pairs {
            assert!(takes(client, server) >= DELAY);
            assert!(takes(server, client) >= DELAY);
        }
    }

    #[test]
    fn millisecond_delay_is_accurate() {
        let delay = Duration::from_millis(1);
        let (proxy, listener) = proxy(delay);
        let (client, server) = pair(&proxy, &listener);
        let (begun, mut quickest) = (Instant::now(), Duration::MAX);
        // More by 0.1 ms on a machine that has nothing else to do. A busy one lets a few through at
        // that pace.
        while quickest >= 2 * delay {
            assert!(begun.elapsed() < LONG, "{quickest:?}");
            quickest = quickest.min(takes(&client, &server));
            assert!(quickest >= delay, "{quickest:?}");
        }
    }

    #[test]
    fn queued_bytes_are_delayed_once() {
        let (proxy, listener) = proxy(10 * DELAY);
        let (client, server) = pair(&proxy, &listener);
        let sent = Instant::now();
        let expected: Vec<u8> = (0..=u8::MAX).cycle().take(1_000_000).collect();
        let (expect, sender) = (expected.clone(), client.try_clone().unwrap());
        let writer = thread::spawn(move || {
            expected
                .chunks(1000)
                .try_for_each(|chunk| (&sender).write_all(chunk))
        });
        let mut bytes = vec![0; expect.len()];
        (&server).read_exact(&mut bytes).unwrap();
        writer.join().unwrap().unwrap();
        assert!(bytes == expect, "in order and whole");
        // A thousand segments; one after the other they would have needed 200 s.
        assert!(sent.elapsed() < 2 * LONG);
    }

    #[test]
    fn end_of_stream_is_delayed() {
        let (proxy, listener) = proxy(DELAY);
        let (client, server) = pair(&proxy, &listener);
        let ended = Instant::now();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!((&server).read(&mut [0; 1]).unwrap(), 0);
        assert!(ended.elapsed() >= DELAY);
        assert!(takes(&server, &client) >= DELAY);
    }

    #[test]
    fn drop_ends_connections() {
        let (proxy, listener) = proxy(DELAY);
        let (client, _server) = pair(&proxy, &listener);
        let (ended, end) = channel();
        let reader = thread::spawn(move || {
            ended
                .send((&client).read(&mut [0; 1]).unwrap_or(0))
                .unwrap();
        });
        drop(proxy);
        assert_eq!(end.recv_timeout(LONG).unwrap(), 0);
        reader.join().unwrap();
    }
}
