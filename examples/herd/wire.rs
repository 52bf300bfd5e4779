//! A proxy in front of real servers, which counts the notifications that come from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::common::Error;

/// The longest frame that is passed on. Servers and clients have limits near a megabyte.
const LONGEST: u32 = 16 << 20;

/// The value that a notification has in place of a request's number.
const NOTIFICATION: [u8; 4] = (-1_i32).to_be_bytes();

/// The proxy, which serves for as long as the runtime runs.
#[derive(Debug)]
pub(crate) struct Wire {
    /// The connect string for clients that use the proxy.
    pub(crate) connect_string: String,
    notifications: Arc<AtomicU64>,
}

impl Wire {
    /// Listens for clients; each gets a connection to one of the servers, to all in turn.
    pub(crate) async fn start(connect_string: &str) -> Result<Self, Error> {
        let (servers, root) = match connect_string.split_once('/') {
            Some((servers, root)) => (servers, format!("/{root}")),
            None => (connect_string, String::new()),
        };
        let servers: Arc<[String]> = servers
            .split(',')
            .map(|server| server.trim().to_owned())
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let connect_string = format!("{}{root}", listener.local_addr()?);
        let notifications = Arc::new(AtomicU64::new(0));
        let (count, next) = (Arc::clone(&notifications), AtomicUsize::new(0));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let first = next.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(
                    client,
                    Arc::clone(&servers),
                    first,
                    Arc::clone(&count),
                ));
            }
        });
        Ok(Self {
            connect_string,
            notifications,
        })
    }

    /// Returns how many notifications have passed.
    pub(crate) fn notifications(&self) -> u64 {
        self.notifications.load(Ordering::Relaxed)
    }
}

/// Serves one connection. Both sides see its end, even if that is an error, as without a proxy.
async fn serve(client: TcpStream, servers: Arc<[String]>, first: usize, count: Arc<AtomicU64>) {
    for server in servers
        .iter()
        .cycle()
        .skip(first % servers.len())
        .take(servers.len())
    {
        let Ok(server) = TcpStream::connect(server).await else {
            continue;
        };
        let ((mut from_client, to_client), (from_server, mut to_server)) =
            (client.into_split(), server.into_split());
        tokio::select! {
            _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
            _ = pass_replies(from_server, to_client, &count) => {}
        }
        return;
    }
}

/// Passes on what a server sends, frame by frame.
async fn pass_replies(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    notifications: &AtomicU64,
) -> std::io::Result<()> {
    let mut is_greeting = true;
    loop {
        let length = from.read_u32().await?;
        if length > LONGEST {
            return Err(std::io::Error::other("a frame is too long"));
        }
        let mut frame = length.to_be_bytes().to_vec();
        frame.resize(4 + length as usize, 0);
        from.read_exact(&mut frame[4..]).await?;
        // The first frame has no header.
        if !is_greeting && frame.get(4..8) == Some(&NOTIFICATION) {
            notifications.fetch_add(1, Ordering::Relaxed);
        }
        is_greeting = false;
        to.write_all(&frame).await?;
    }
}
