//! A server on the caller's runtime, with connections in memory, by tokio's paused clock.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod raw;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use raw::{Body, Parse, hello, op};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use zookeeper_test_server::{Listener, Server};

/// A session's timeout.
const TIMEOUT: Duration = Duration::from_secs(10);

struct Pipes {
    dialled: mpsc::UnboundedReceiver<DuplexStream>,
    stops: mpsc::UnboundedSender<bool>,
}

impl Listener for Pipes {
    type Stream = DuplexStream;

    fn addr(&self) -> io::Result<SocketAddr> {
        Ok(([127, 0, 0, 1], 2181).into())
    }

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        let stream = self.dialled.recv().await.ok_or(ErrorKind::BrokenPipe)?;
        Ok((stream, ([127, 0, 0, 1], 40000).into()))
    }

    fn stop(&mut self) {
        self.stops.send(true).unwrap();
    }

    fn restart(&mut self) -> io::Result<()> {
        self.stops.send(false).unwrap();
        Ok(())
    }
}

struct World {
    server: Server,
    dial: mpsc::UnboundedSender<DuplexStream>,
    stops: mpsc::UnboundedReceiver<bool>,
}

fn serve(builder: zookeeper_test_server::Builder) -> World {
    let ((dial, dialled), (told, stops)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let server = builder
        .tick(Duration::from_millis(100))
        .max_session_timeout(TIMEOUT)
        .serve(Pipes {
            dialled,
            stops: told,
        })
        .unwrap();
    World {
        server,
        dial,
        stops,
    }
}

struct Session(DuplexStream);

impl Session {
    async fn new(world: &World) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        world.dial.send(theirs).unwrap();
        let mut session = Self(ours);
        session.write(&hello(0, 10_000, 0, &[0; 16])).await;
        let greeting = session.read().await;
        let mut parse = Parse(&greeting);
        let _protocol = parse.i32();
        assert_eq!(parse.i32(), 10_000);
        session
    }

    async fn write(&mut self, body: &Body) {
        self.0.write_i32(body.0.len() as i32).await.unwrap();
        self.0.write_all(&body.0).await.unwrap();
    }

    async fn read(&mut self) -> Vec<u8> {
        let mut frame = vec![0; self.0.read_i32().await.unwrap() as usize];
        self.0.read_exact(&mut frame).await.unwrap();
        frame
    }

    async fn ping(&mut self) {
        self.write(&Body::new().i32(-2).i32(op::PING)).await;
        self.read().await;
    }

    /// Returns how long it is from now until the server closes the connection of an expired
    /// session.
    async fn expires_after(mut self) -> Duration {
        let last = Instant::now();
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).await.unwrap();
        last.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn session_expires_by_the_runtimes_clock() {
    let world = serve(Server::builder());
    let mut session = Session::new(&world).await;
    // The paused clock jumps.
    tokio::time::sleep(TIMEOUT / 2).await;
    session.ping().await;
    let after = session.expires_after().await;
    assert!(
        TIMEOUT <= after && after <= TIMEOUT + Duration::from_millis(300),
        "{after:?}"
    );
    assert!(world.server.sessions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn fast_clock_expires_sessions_early() {
    let world = serve(Server::builder().clock_rate(2.0));
    let after = Session::new(&world).await.expires_after().await;
    assert!(
        TIMEOUT / 2 <= after && after <= TIMEOUT / 2 + Duration::from_millis(300),
        "{after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn timeout_counts_from_last_report() {
    let world = serve(Server::builder().touch_interval(Duration::from_secs(4)));
    let mut session = Session::new(&world).await;
    // The paused clock jumps.
    tokio::time::sleep(Duration::from_secs(7)).await;
    session.ping().await;
    let after = session.expires_after().await;
    // The report was at 4 s.
    let expected = TIMEOUT - Duration::from_secs(3);
    assert!(
        expected <= after && after <= expected + Duration::from_millis(300),
        "{after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn stops_and_restarts_on_its_runtime() {
    let mut world = serve(Server::builder());
    let mut session = Session::new(&world).await;
    world.server.stop_async().await;
    assert_eq!(world.stops.recv().await, Some(true));
    session.0.read_i32().await.unwrap_err();
    // No session expires while it is stopped, and it accepts no connection. The paused clock jumps.
    let (waits, theirs) = tokio::io::duplex(1);
    world.dial.send(theirs).unwrap();
    tokio::time::sleep(3 * TIMEOUT).await;
    assert_eq!(world.server.sessions().len(), 1);
    drop(waits);

    world.server.restart_async().await.unwrap();
    assert_eq!(world.stops.recv().await, Some(true));
    assert_eq!(world.stops.recv().await, Some(false));
    Session::new(&world).await.ping().await;
    assert_eq!(world.server.sessions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn drop_closes_its_connections() {
    let world = serve(Server::builder());
    let mut session = Session::new(&world).await;
    drop(world);
    session.0.read_i32().await.unwrap_err();
}

#[test]
fn needs_a_runtime() {
    let (_dial, dialled) = mpsc::unbounded_channel();
    let (stops, _stopped) = mpsc::unbounded_channel();
    Server::builder()
        .serve(Pipes { dialled, stops })
        .unwrap_err();
}
