//! The sources of a server's connections.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A stream of bytes in both directions, to one client.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A source of connections, for [`Builder::serve`](crate::Builder::serve).
///
/// ```
/// use std::io;
/// use std::net::SocketAddr;
/// use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
/// use tokio::sync::mpsc;
/// use zookeeper_test_server::{Listener, Server};
///
/// /// Connections in memory.
/// struct Pipes(mpsc::Receiver<DuplexStream>);
///
/// impl Listener for Pipes {
///     type Stream = DuplexStream;
///
///     fn addr(&self) -> io::Result<SocketAddr> {
///         Ok(([127, 0, 0, 1], 2181).into())
///     }
///
///     async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
///         let stream = self.0.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
///         Ok((stream, ([127, 0, 0, 1], 40000).into()))
///     }
///
///     fn stop(&mut self) {}
///
///     fn restart(&mut self) -> io::Result<()> {
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (dial, pipes) = mpsc::channel(1);
/// let _server = Server::builder().serve(Pipes(pipes))?;
/// let (mut client, stream) = tokio::io::duplex(64 * 1024);
/// dial.send(stream).await?;
///
/// client.write_all(b"ruok").await?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer).await?;
/// assert_eq!(answer, "imok");
/// # Ok(())
/// # }
/// ```
pub trait Listener: Send + 'static {
    /// A connection to a client.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Returns the address on which clients connect.
    ///
    /// # Errors
    /// Returns an error if the listener has no address.
    fn addr(&self) -> io::Result<SocketAddr>;

    /// Waits for the next connection, and returns it with the client's address. The server does not
    /// call this while the listener is [stopped](Self::stop).
    ///
    /// # Errors
    /// Returns an error if the connection could not be accepted. The server tries again a little
    /// later.
    ///
    /// # Cancel safety
    /// Dropping the future must lose no connection.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;

    /// Refuses connections from now on.
    fn stop(&mut self);

    /// Accepts connections again.
    ///
    /// # Errors
    /// Returns an error if the listener cannot start again. The server stays stopped.
    fn restart(&mut self) -> io::Result<()>;

    /// Closes a connection with a reset, if the transport has resets. The default drops the
    /// connection.
    fn reset(stream: Self::Stream) {
        drop(stream);
    }
}

/// How many connections may wait to be accepted: as many as the standard library allows.
const BACKLOG: u32 = 128;

/// TCP on a port.
#[derive(Debug)]
pub(crate) struct Tcp {
    addr: SocketAddr,
    /// `None` while the server is stopped.
    listener: Option<TcpListener>,
    /// The socket stays bound, so that the port is given to no other server and to no client's
    /// connection. The socket does not listen, so connections are refused.
    kept: Option<TcpSocket>,
}

impl Tcp {
    /// Listens on an address, in the current runtime.
    pub(crate) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let listener = listen(addr)?;
        Ok(Self {
            addr: listener.local_addr()?,
            listener: Some(listener),
            kept: None,
        })
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let listener = StdListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Takes a port on which nothing listens any more; its connections may linger.
fn keep(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

impl Listener for Tcp {
    type Stream = TcpStream;

    fn addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let Some(listener) = &self.listener else {
            return std::future::pending().await;
        };
        let (stream, peer) = listener.accept().await?;
        // Otherwise Nagle's algorithm would delay events.
        let _ = stream.set_nodelay(true);
        Ok((stream, peer))
    }

    fn stop(&mut self) {
        if self.listener.take().is_some() {
            self.kept = keep(self.addr)
                .inspect_err(|error| tracing::debug!(%error, "the port is not kept"))
                .ok();
        }
    }

    fn restart(&mut self) -> io::Result<()> {
        self.listener = Some(match self.kept.take() {
            Some(socket) => socket.listen(BACKLOG)?,
            None => listen(self.addr)?,
        });
        Ok(())
    }

    fn reset(stream: TcpStream) {
        let _ = stream.set_zero_linger();
    }
}
