//! Finds out why no session could be established, by asking each server separately, because the
//! client library does not report the outcome of its tries (docs/protocol.md#connect-errors).
//!
//! The request is the four-letter word `srvr`, which ZooKeeper answers by default and which creates
//! no session.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;

use crate::error::{FailedServer, ServerFailure};
use crate::session::dial::servers::{Address, Servers};
use crate::session::threads::background;

/// The longest time for which the servers are asked.
const MAX_WINDOW: Duration = Duration::from_secs(1);
/// The shortest time for which the servers are asked, even if the connect timeout is shorter.
const MIN_WINDOW: Duration = Duration::from_millis(100);
/// The largest number of servers that are asked.
const MAX_SERVERS: usize = 16;
/// The largest number of addresses of one host name that are tried.
const MAX_ADDRESSES: usize = 4;
/// The largest number of bytes of an answer that are read.
pub(crate) const MAX_ANSWER_BYTES: usize = 512;
/// The largest number of threads of this process that ask at a time. The lookup of a host name may
/// take longer than the window and cannot be stopped, so without this limit a lookup that hangs
/// would leave more threads behind with each try to connect.
const MAX_THREADS: usize = 4 * MAX_SERVERS;
const NAME: &str = "zk-probe";

/// Asks a server over TLS, given its host, a connection and a deadline. Returns the answer, and
/// whether the server has closed the connection; or the reason why the handshake failed, as far as
/// it is known. There is no such function if the client library has its own TLS options, or uses no
/// TLS.
pub(crate) type Handshake = Arc<
    dyn Fn(&str, TcpStream, Instant) -> Result<(Vec<u8>, bool), Option<Diagnosis>> + Send + Sync,
>;
type Diagnosis = (ServerFailure, Option<String>);

/// How many threads ask.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Counts a thread until this is dropped.
struct Counted;

impl Counted {
    /// Counts a thread. `None` if there are too many.
    fn new() -> Option<Self> {
        let counted = Self;
        // If there are too many threads, the value is dropped here, which subtracts this thread
        // again.
        (THREADS.fetch_add(1, Ordering::Relaxed) < MAX_THREADS).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `work` on a new thread, because it may take longer than the caller waits. The receiver gets
/// nothing if there are too many threads. Returns the system's error if no thread can be started.
fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (sender, receiver) = oneshot::channel();
    let Some(counted) = Counted::new() else {
        // The drop of the sender ends the receiver without a value.
        return Ok(receiver);
    };
    let working = move || {
        let done = work();
        drop(counted);
        // The receiver is gone if the lookup of a name took too long.
        let _ = sender.send(done);
    };
    // `spawn_blocking` cannot be used here: a runtime waits for such threads when it shuts down,
    // and panics if it can start no more of them.
    background::run_blocking(NAME, working)?;
    Ok(receiver)
}

/// Returns the outcome of a question that this process could not ask.
fn unasked(error: &io::Error) -> Diagnosis {
    let detail = format!("this process lacks file descriptors or threads: {error}");
    (ServerFailure::Unreachable, Some(detail))
}

/// Returns the failures of servers to which this process could not connect, because it lacked file
/// descriptors or threads.
pub(crate) fn not_asked(servers: &Servers, error: &io::Error) -> Vec<FailedServer> {
    let failed = |address: &Address| {
        let (failure, detail) = unasked(error);
        FailedServer {
            server: address.given.clone(),
            failure,
            detail,
        }
    };
    let asked = servers.addresses.iter().take(MAX_SERVERS);
    asked.map(failed).collect()
}

/// Asks the servers near the end of a connect timeout that begins now. Returns the problem of each.
pub(crate) async fn ask_before(
    timeout: Duration,
    servers: &Servers,
    handshake: Option<&Handshake>,
) -> Vec<FailedServer> {
    let window = (timeout / 2).clamp(MIN_WINDOW, MAX_WINDOW);
    tokio::time::sleep(timeout.saturating_sub(window)).await;
    let deadline = Instant::now() + window;
    let ask = |address: &Address| {
        let (asked, handshake) = (address.clone(), handshake.cloned());
        on_thread(move || ask(&asked, handshake.as_ref(), deadline))
    };
    // All threads are started before the first answer is awaited, so that a silent server takes no
    // time from the others.
    let asked: Vec<_> = servers
        .addresses
        .iter()
        .take(MAX_SERVERS)
        .map(|address| (address, ask(address)))
        .collect();
    let mut failures = Vec::with_capacity(asked.len());
    for (address, answer) in asked {
        let (kind, detail) = match answer {
            // This deadline is a little later than that of the threads, which observe their
            // deadline themselves.
            Ok(answer) => match timeout_at((deadline + MIN_WINDOW).into(), answer).await {
                Ok(Ok(cause)) => cause,
                _ => (ServerFailure::NoAnswer, None),
            },
            Err(error) => unasked(&error),
        };
        failures.push(FailedServer {
            server: address.given.clone(),
            failure: kind,
            detail,
        });
    }
    failures
}

/// Returns whether a server accepts connections, as far as that is known within `timeout`.
#[cfg(not(simulation))]
pub(crate) async fn accepts(address: &Address, timeout: Duration) -> bool {
    let (address, deadline) = (address.clone(), Instant::now() + timeout);
    let Ok(accepts) = on_thread(move || connect(&address, deadline).is_ok()) else {
        return false;
    };
    matches!(tokio::time::timeout(timeout, accepts).await, Ok(Ok(true)))
}

/// Does the same in a simulation, where no thread may block.
#[cfg(simulation)]
pub(crate) async fn accepts(address: &Address, timeout: Duration) -> bool {
    match background::accepts(&address.host, address.port) {
        Some(answer) => tokio::time::timeout(timeout, answer).await == Ok(true),
        None => false,
    }
}

/// Connects to the first address of a server that accepts a connection.
fn connect(address: &Address, deadline: Instant) -> Result<(SocketAddr, TcpStream), Diagnosis> {
    let addresses = (&*address.host, address.port).to_socket_addrs();
    let addresses =
        addresses.map_err(|error| (ServerFailure::UnknownHost, Some(error.to_string())))?;
    let mut last = None;
    // Some addresses of a host name may not work, such as an IPv6 address in a network without
    // IPv6.
    for socket in addresses.take(MAX_ADDRESSES) {
        let Some(left) = left(deadline) else { break };
        match TcpStream::connect_timeout(&socket, left) {
            Ok(stream) => return Ok((socket, stream)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or((ServerFailure::NoAnswer, None), |error| {
        not_connected(&error)
    }))
}

/// Returns the meaning of an error of a connect. Pure.
fn not_connected(error: &io::Error) -> Diagnosis {
    match error.kind() {
        ErrorKind::ConnectionRefused => (ServerFailure::ConnectionRefused, None),
        ErrorKind::TimedOut => (ServerFailure::NoAnswer, None),
        // The server has accepted the connection, and has ended it by a reset before this process
        // looked, as ZooKeeper does beyond `maxClientCnxns`.
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => {
            (ServerFailure::ClosedAtOnce, None)
        }
        _ => (ServerFailure::Unreachable, Some(error.to_string())),
    }
}

/// Asks a server, until a deadline, why it gives no session.
fn ask(address: &Address, handshake: Option<&Handshake>, deadline: Instant) -> Diagnosis {
    let (socket, stream) = match connect(address, deadline) {
        Ok(connected) => connected,
        Err(cause) => return cause,
    };
    let Some(handshake) = handshake.filter(|_| address.tls) else {
        return ask_plainly(address, stream, deadline);
    };
    match handshake(&address.host, stream, deadline) {
        // The handshake has succeeded, so TLS is not the reason.
        Ok((answer, _)) if answer.is_empty() => (ServerFailure::NoSession, None),
        Ok((answer, ended)) => judge(&answer, ended, false),
        Err(Some(cause)) => cause,
        // The server may not speak TLS, which it says if it is asked without.
        Err(None) => match left(deadline).map(|left| TcpStream::connect_timeout(&socket, left)) {
            Some(Ok(stream)) => ask_plainly(address, stream, deadline),
            _ => (ServerFailure::NoAnswer, None),
        },
    }
}

fn ask_plainly(address: &Address, stream: TcpStream, deadline: Instant) -> Diagnosis {
    let (answer, ended) = exchange(stream, deadline);
    judge(&answer, ended, address.tls)
}

/// Returns how much time is left before a deadline.
pub(crate) fn left(deadline: Instant) -> Option<Duration> {
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

/// Sends the request and reads the answer, until the answer is long enough, the connection is
/// closed, or the deadline has passed. Returns the answer, and whether the server has closed the
/// connection.
fn exchange(mut stream: TcpStream, deadline: Instant) -> (Vec<u8>, bool) {
    let mut answer = Vec::new();
    if stream.write_all(b"srvr").is_err() {
        return (answer, true);
    }
    let mut buffer = [0; MAX_ANSWER_BYTES];
    // A server of another protocol may be waiting for the end of a line. The line break is not sent
    // at once, because a ZooKeeper server that closes the connection while bytes are unread may
    // lose its answer.
    let mut prodded = false;
    while answer.len() < MAX_ANSWER_BYTES {
        let Some(left) = left(deadline) else { break };
        let wait = if prodded {
            left
        } else {
            (left / 2).max(Duration::from_millis(1))
        };
        if stream.set_read_timeout(Some(wait)).is_err() {
            break;
        }
        match stream.read(&mut buffer) {
            Ok(0) => return (answer, true),
            Ok(read) => answer.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if prodded || !answer.is_empty() {
                    break;
                }
                prodded = true;
                // If the write fails, the next read reports the failure.
                let _ = stream.write_all(b"\r\n\r\n");
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return (answer, true),
        }
    }
    (answer, false)
}

/// Returns the meaning of the answer to the request for a server. Pure.
fn judge(answer: &[u8], ended: bool, tls: bool) -> Diagnosis {
    // A TLS record: an alert or a handshake, of version 3.x.
    let speaks_tls = matches!(answer, [0x15 | 0x16, 3, ..]);
    let text = String::from_utf8_lossy(answer);
    // The second text is that of ClickHouse Keeper.
    let zookeeper = text.contains("ookeeper version:") || text.contains("Keeper version:");
    let kind = if speaks_tls {
        if tls {
            ServerFailure::NoSession
        } else {
            ServerFailure::SpeaksTls
        }
    } else if text.contains("not currently serving requests") || text.contains("READ-ONLY mode") {
        ServerFailure::NotServing
    } else if zookeeper || text.contains("not in the whitelist") {
        if tls {
            ServerFailure::SpeaksNoTls
        } else {
            ServerFailure::NoSession
        }
    } else if !answer.is_empty() {
        let line: String = text
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(40)
            .collect();
        // Bytes that are not text would be unreadable, and might contain control sequences for a
        // terminal.
        let readable = !line.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER);
        return (
            ServerFailure::NotZooKeeper,
            Some(line).filter(|line| readable && !line.is_empty()),
        );
    } else if ended {
        // A TLS server may close the connection when it reads something that is not TLS.
        if tls {
            ServerFailure::NoSession
        } else {
            ServerFailure::ClosedAtOnce
        }
    } else {
        ServerFailure::NoAnswer
    };
    (kind, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_after_accept_is_closed_connection() {
        use ServerFailure as Kind;
        for (error, kind) in [
            (ErrorKind::ConnectionRefused, Kind::ConnectionRefused),
            (ErrorKind::TimedOut, Kind::NoAnswer),
            (ErrorKind::BrokenPipe, Kind::ClosedAtOnce),
            (ErrorKind::ConnectionReset, Kind::ClosedAtOnce),
            (ErrorKind::ConnectionAborted, Kind::ClosedAtOnce),
            (ErrorKind::HostUnreachable, Kind::Unreachable),
            (ErrorKind::NetworkUnreachable, Kind::Unreachable),
        ] {
            let (judged, detail) = not_connected(&error.into());
            assert_eq!(judged, kind, "{error:?}");
            assert_eq!(detail.is_some(), kind == Kind::Unreachable, "{error:?}");
        }
    }

    #[test]
    fn answer_identifies_the_server() {
        use ServerFailure as Kind;
        let version =
            b"Zookeeper version: 3.8.0-5a02a05, built on 2022-02-25\nLatency min/avg/max: 0/0.0/0\n";
        let clickhouse = b"ClickHouse Keeper version: v23.8\n";
        let unlisted = b"srvr is not executed because it is not in the whitelist.\n";
        let idle = b"This ZooKeeper instance is not currently serving requests\n";
        let read_only =
            b"Zookeeper version: 3.8.0-5a02a05, built on 2022-02-25\nREAD-ONLY mode; serving only read-only clients\n";
        for (answer, ended, tls, kind) in [
            (&version[..], true, false, Kind::NoSession),
            (&clickhouse[..], true, false, Kind::NoSession),
            (&unlisted[..], true, false, Kind::NoSession),
            (&version[..], true, true, Kind::SpeaksNoTls),
            (&idle[..], true, false, Kind::NotServing),
            (&read_only[..], true, false, Kind::NotServing),
            (
                &[0x15, 3, 3, 0, 2, 2, 80][..],
                false,
                false,
                Kind::SpeaksTls,
            ),
            (&[0x15, 3, 1, 0, 2, 2, 70][..], true, true, Kind::NoSession),
            (&b""[..], true, false, Kind::ClosedAtOnce),
            (&b""[..], true, true, Kind::NoSession),
            (&b""[..], false, false, Kind::NoAnswer),
        ] {
            assert_eq!(
                judge(answer, ended, tls),
                (kind, None),
                "{}",
                String::from_utf8_lossy(answer)
            );
        }
        let http = judge(b"HTTP/1.1 400 Bad Request\r\nX: y\r\n", true, false);
        assert_eq!(
            http,
            (
                Kind::NotZooKeeper,
                Some("HTTP/1.1 400 Bad Request".to_owned())
            )
        );
        for binary in [&b"a\x1b[2J\0"[..], &[0, 0, 0, 37], b"\xff\xfe", b"\r\n"] {
            assert_eq!(
                judge(binary, false, false),
                (Kind::NotZooKeeper, None),
                "{binary:?}"
            );
        }
    }
}
