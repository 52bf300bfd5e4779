//! A proxy between a client and a server that can fall silent, break its connections, or refuse
//! them.
//!
//! A proxy does to its link what networks do: packets are lost in one direction or both while the
//! connections stay open, a router resets the connections, or no server listens any more.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use crate::poll::poll_until;
use crate::ports::Ports;

/// The direction in which a link is [stalled](Proxy::stall).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Nothing passes in either direction.
    Both,
    /// The server receives nothing from the client; the server's data still arrives at the client.
    ToServer,
    /// The client receives nothing from the server; the client's data still arrives at the server.
    ToClient,
}

/// How connections are [cut](Proxy::cut).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cut {
    /// An orderly end: the peer reads the end of the stream.
    Fin,
    /// A reset: the peer's next read fails, and data in transit is lost.
    Reset,
}

/// A TCP proxy in front of one server, which passes everything on until a method changes that.
///
/// The client of a proxy is the side that connects. Between two members of an ensemble that is the
/// follower, and the leader is the server. Every method acts on all connections, present and
/// future. Dropping the proxy resets them.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    // The port stays reserved for this process while no server listens on it.
    _ports: Ports,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    target: SocketAddr,
    /// How long a connection waits for the target to listen.
    patience: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    to_server_stalled: bool,
    to_client_stalled: bool,
    refusing: bool,
    listening: bool,
    delay: Duration,
    failed: Option<String>,
    closed: bool,
    links: Vec<Link>,
    next_link: u64,
    mute_next: usize,
}

/// A connection of a client, and the connection to the server that was made for it. The pump that
/// reads a side keeps it open, and so does this value; a side that was cut is `None`.
#[derive(Debug)]
struct Link {
    number: u64,
    client: Option<Arc<TcpStream>>,
    server: Option<Arc<TcpStream>>,
    mute: bool,
    pumps: usize,
}

/// The time within which a new leader begins to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

impl Proxy {
    /// Starts a proxy in front of `target`. A client that connects while the target does not listen
    /// is accepted and reset.
    ///
    /// # Errors
    /// Returns an error if no port or thread is available.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        Self::start_patient(target, Duration::ZERO)
    }

    /// Starts a proxy in front of the quorum port of a member of an ensemble. Another member
    /// connects to a new leader before that listens. If the connection is refused, the member tries
    /// again; if it is accepted and reset, the member gives up and calls for another election. So
    /// this proxy keeps such a connection waiting.
    ///
    /// # Errors
    /// The errors are those of [`start`](Self::start).
    pub fn of_quorum(target: SocketAddr) -> io::Result<Self> {
        Self::start_patient(target, LISTENS_WITHIN)
    }

    /// Starts a proxy that keeps clients waiting for up to `patience` while the target does not
    /// listen.
    fn start_patient(target: SocketAddr, patience: Duration) -> io::Result<Self> {
        let ports = Ports::take()?;
        let address = SocketAddr::from(([127, 0, 0, 1], ports.port(0)));
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared {
            address,
            target,
            patience,
            state,
            changed,
        });
        let acceptor = Arc::clone(&shared);
        thread::Builder::new()
            .name(format!("proxy {address}"))
            .spawn(move || accept(&acceptor))?;
        let proxy = Self {
            shared,
            _ports: ports,
        };
        proxy.until_listening(true)?;
        Ok(proxy)
    }

    /// Returns the address of the proxy.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Returns how many connections reach the server at the moment.
    #[must_use]
    pub fn connections(&self) -> usize {
        let state = self.shared.lock();
        state
            .links
            .iter()
            .filter(|link| link.client.is_some() && link.server.is_some())
            .count()
    }

    /// Passes nothing on in this direction, neither bytes nor the end of a stream, until
    /// [`resume`](Self::resume). Connections stay open. A new one is accepted, as by a network that
    /// falls silent later, and reaches the server when the direction to it is open. Data that were
    /// being passed on at the call may still arrive.
    pub fn stall(&self, direction: Direction) {
        let mut state = self.shared.lock();
        state.to_server_stalled |= direction != Direction::ToClient;
        state.to_client_stalled |= direction != Direction::ToServer;
    }

    /// Ends every [`stall`](Self::stall): data that were held back are passed on.
    pub fn resume(&self) {
        let mut state = self.shared.lock();
        (state.to_server_stalled, state.to_client_stalled) = (false, false);
        self.shared.changed.notify_all();
    }

    /// Delays the server's data by `delay`, from the next read on.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Makes the present connections and the `next` ones silent in both directions, until they end.
    /// Later connections work. A router that forgets its address translations has the same effect.
    pub fn mute(&self, next: usize) {
        let mut state = self.shared.lock();
        state.mute_next = next;
        state.links.iter_mut().for_each(|link| link.mute = true);
    }

    /// Ends all connections on both sides. New ones are accepted.
    pub fn cut(&self, how: Cut) {
        let mut state = self.shared.lock();
        for link in state.links.drain(..) {
            link.client
                .into_iter()
                .chain(link.server)
                .for_each(|side| end(&side, how));
        }
        self.shared.changed.notify_all();
    }

    /// Ends all connections on the clients' side. The server observes silence: its connections stay
    /// open, and the data that it sends are discarded.
    pub fn cut_from_server(&self, how: Cut) {
        let mut state = self.shared.lock();
        for side in state.links.iter_mut().filter_map(|link| link.client.take()) {
            end(&side, how);
        }
        self.shared.changed.notify_all();
    }

    /// Stops listening: new connections are refused. Present connections stay.
    ///
    /// # Errors
    /// Returns an error if the proxy has broken down.
    pub fn refuse(&self) -> io::Result<()> {
        self.shared.lock().refusing = true;
        self.poke();
        self.until_listening(false)
    }

    /// Listens again after [`refuse`](Self::refuse).
    ///
    /// # Errors
    /// Returns an error if the proxy has broken down.
    pub fn accept(&self) -> io::Result<()> {
        self.shared.lock().refusing = false;
        self.shared.changed.notify_all();
        self.until_listening(true)
    }

    /// Makes the thread that waits for connections check the state.
    fn poke(&self) {
        self.shared.changed.notify_all();
        // The accepting thread may have passed its check already, and then refuses this connection.
        let _ = TcpStream::connect_timeout(&self.shared.address, Duration::from_secs(1));
    }

    fn until_listening(&self, listening: bool) -> io::Result<()> {
        let state = self.shared.lock();
        let settled = self
            .shared
            .changed
            .wait_while(state, |state| {
                state.listening != listening && state.failed.is_none()
            })
            .unwrap_or_else(PoisonError::into_inner);
        match &settled.failed {
            None => Ok(()),
            Some(why) => Err(io::Error::other(why.clone())),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.cut(Cut::Reset);
        self.poke();
        // The wait ends when the port is free, because the next process that is given the port
        // binds it.
        let _ = self.until_listening(false);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a new connection. Returns its number.
    fn enter(&self, client: &Arc<TcpStream>) -> u64 {
        let mut state = self.lock();
        let number = state.next_link;
        state.next_link += 1;
        let mute = state.mute_next > 0;
        state.mute_next = state.mute_next.saturating_sub(1);
        state.links.push(Link {
            number,
            client: Some(Arc::clone(client)),
            server: None,
            mute,
            pumps: 1,
        });
        number
    }

    /// Waits until this way is open. Returns `false` if the link was cut where the way begins, so
    /// that the way never opens.
    fn pass(&self, way: Way, link: u64) -> bool {
        let waiting = |state: &mut State| state.has(link, way) && state.is_stalled(way, link);
        let state = self
            .changed
            .wait_while(self.lock(), waiting)
            .unwrap_or_else(PoisonError::into_inner);
        state.has(link, way)
    }

    /// Records that a pump of a link has ended.
    fn finished(&self, number: u64) {
        let mut state = self.lock();
        state.links.retain_mut(|link| {
            if link.number == number {
                link.pumps -= 1;
            }
            link.pumps > 0
        });
    }

    /// Resets the remaining sides of a link, because one side failed.
    fn broken(&self, number: u64) {
        let mut state = self.lock();
        if let Some(index) = state.links.iter().position(|link| link.number == number) {
            let link = state.links.swap_remove(index);
            link.client
                .into_iter()
                .chain(link.server)
                .for_each(|side| end(&side, Cut::Reset));
        }
        self.changed.notify_all();
    }
}

impl State {
    fn is_stalled(&self, way: Way, number: u64) -> bool {
        let stalled = match way {
            Way::ToServer => self.to_server_stalled,
            Way::ToClient => self.to_client_stalled,
        };
        stalled
            || self
                .links
                .iter()
                .any(|link| link.number == number && link.mute)
    }

    /// Returns whether a link still exists at the end where `way` begins.
    fn has(&self, number: u64, way: Way) -> bool {
        let side = |link: &Link| match way {
            Way::ToServer => link.client.is_some(),
            Way::ToClient => link.server.is_some(),
        };
        !self.closed
            && self
                .links
                .iter()
                .any(|link| link.number == number && side(link))
    }
}

/// Ends a connection. The reset is sent when the last owner drops the connection, which is the pump
/// that this call wakes.
fn end(side: &TcpStream, how: Cut) {
    // The peer may have ended the connection first, which is not an error here.
    let _ = match how {
        Cut::Fin => side.shutdown(Shutdown::Both),
        Cut::Reset => SockRef::from(side)
            .set_linger(Some(Duration::ZERO))
            .and_then(|()| side.shutdown(Shutdown::Read)),
    };
}

/// The longest time for which a process that is being started may keep the files that were open
/// here.
const FORKS_WITHIN: Duration = Duration::from_secs(10);

/// Waits for connections, except while they are refused.
fn accept(shared: &Arc<Shared>) {
    loop {
        let refusing = |state: &mut State| state.refusing && !state.closed;
        let mut state = shared
            .changed
            .wait_while(shared.lock(), refusing)
            .unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return;
        }
        // A process that another thread is starting inherits the open files of this process until
        // it executes its program, including a listener on this port that was dropped here.
        let bound = poll_until("the port of a proxy", FORKS_WITHIN, || {
            TcpListener::bind(shared.address).ok()
        });
        match &bound {
            Ok(_) => state.listening = true,
            Err(e) => state.failed = Some(format!("no proxy on {}: {e}", shared.address)),
        }
        drop(state);
        shared.changed.notify_all();
        let Ok(listener) = bound else { return };
        for client in listener.incoming().filter_map(Result::ok) {
            let state = shared.lock();
            let go_on = !state.refusing && !state.closed;
            drop(state);
            if !go_on {
                end(&client, Cut::Reset);
                break;
            }
            let client = Arc::new(client);
            // The connection is counted here, so that the order of connections does not depend on
            // the threads.
            let number = shared.enter(&client);
            let serving = Arc::clone(shared);
            // Without a thread the connection is dropped, as by any server that lacks a resource.
            if thread::Builder::new()
                .spawn(move || serve(&serving, number, client))
                .is_err()
            {
                shared.broken(number);
            }
        }
        drop(listener);
        shared.lock().listening = false;
        shared.changed.notify_all();
    }
}

/// Connects to the server, and passes on the client's data.
fn serve(shared: &Arc<Shared>, number: u64, client: Arc<TcpStream>) {
    // The server sees the connection only when data of the client may pass.
    if !shared.pass(Way::ToServer, number) {
        return shared.finished(number);
    }
    let dialled = poll_until("the server to listen", shared.patience, || {
        let gone = !shared.lock().has(number, Way::ToServer);
        if gone {
            Some(None)
        } else {
            TcpStream::connect(shared.target).ok().map(Some)
        }
    });
    let Ok(Some(server)) = dialled else {
        return shared.broken(number);
    };
    // Small messages are passed on at once, as without a proxy.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let server = Arc::new(server);
    let (to_client, to_server) = (Arc::downgrade(&client), Arc::downgrade(&server));
    {
        let mut state = shared.lock();
        match state.links.iter_mut().find(|link| link.number == number) {
            Some(link) => {
                link.server = Some(Arc::clone(&server));
                link.pumps += 1;
            }
            // The connection was cut in the meantime.
            None => return end(&server, Cut::Reset),
        }
    }
    let back = {
        let shared = Arc::clone(shared);
        thread::Builder::new()
            .spawn(move || pump(&shared, number, Way::ToClient, server, to_client))
    };
    if back.is_err() {
        return shared.broken(number);
    }
    pump(shared, number, Way::ToServer, client, to_server);
}

/// Passes on the data from one side until its end, which is passed on too.
///
/// The pump does not keep the other side open: that side may be cut, and then the data is
/// discarded.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the stream is closed by the drop of its last owner"
)]
fn pump(shared: &Shared, number: u64, way: Way, from: Arc<TcpStream>, to: Weak<TcpStream>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = match (&*from).read(&mut buffer) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            read => read,
        };
        if way == Way::ToClient {
            let delay = shared.lock().delay;
            // Data that arrives in this time is read later, and so is delayed too.
            #[expect(clippy::disallowed_methods, reason = "this is the delay itself")]
            thread::sleep(delay);
        }
        if !shared.pass(way, number) {
            break;
        }
        let passed = match (read, to.upgrade()) {
            (Ok(0), to) => {
                // The other way may still be open, and its pump ends the link.
                to.map(|to| to.shutdown(Shutdown::Write));
                break;
            }
            (Ok(_), None) => Ok(()),
            (Ok(n), Some(to)) => (&*to).write_all(&buffer[..n]),
            (Err(e), _) => Err(e),
        };
        if passed.is_err() {
            return shared.broken(number);
        }
    }
    shared.finished(number);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    /// The time without data after which a socket counts as silent. Only time can show silence.
    const A_WHILE: Duration = Duration::from_millis(100);

    /// Returns a proxy, and the connections that arrive behind it.
    fn proxy() -> (Proxy, mpsc::Receiver<TcpStream>) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = server.local_addr().unwrap();
        let (sender, arrived) = mpsc::channel();
        thread::spawn(move || {
            for stream in server.incoming().map_while(Result::ok) {
                stream.set_read_timeout(Some(LONG)).unwrap();
                if sender.send(stream).is_err() {
                    return;
                }
            }
        });
        (Proxy::start(target).unwrap(), arrived)
    }

    fn connect(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    fn pair() -> (Proxy, TcpStream, TcpStream) {
        let (proxy, arrived) = proxy();
        let client = connect(&proxy);
        let server = arrived.recv_timeout(LONG).unwrap();
        // The server may have the connection before the proxy has recorded it.
        poll_until("the connection", LONG, || {
            (proxy.connections() == 1).then_some(())
        })
        .unwrap();
        (proxy, client, server)
    }

    fn arrives(mut from: &TcpStream, mut to: &TcpStream, text: &[u8]) {
        from.write_all(text).unwrap();
        let mut buffer = vec![0; text.len()];
        to.read_exact(&mut buffer).unwrap();
        assert_eq!(buffer, text);
    }

    fn is_silent(mut stream: &TcpStream) {
        stream.set_read_timeout(Some(A_WHILE)).unwrap();
        let error = stream.read(&mut [0; 16]).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            "{error}"
        );
        stream.set_read_timeout(Some(LONG)).unwrap();
    }

    fn read_end(mut stream: &TcpStream) -> io::Result<usize> {
        stream.read(&mut [0; 16])
    }

    #[test]
    fn forwards_data_and_end() {
        let (proxy, client, server) = pair();
        arrives(&client, &server, b"there");
        arrives(&server, &client, b"and back");
        assert_eq!(proxy.connections(), 1);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_end(&server).unwrap(), 0);
        arrives(&server, &client, b"half closed");
        drop(server);
        assert_eq!(read_end(&client).unwrap(), 0);
    }

    #[test]
    fn delay_applies_to_data_from_server() {
        let (proxy, client, server) = pair();
        let delay = Duration::from_millis(50);
        proxy.delay(delay);
        let begun = Instant::now();
        arrives(&server, &client, b"late");
        assert!(begun.elapsed() >= delay);
        arrives(&client, &server, b"there");
    }

    #[test]
    fn stall_holds_only_its_direction() {
        for direction in [Direction::Both, Direction::ToServer, Direction::ToClient] {
            let (proxy, client, server) = pair();
            proxy.stall(direction);
            let ways = [
                (&client, &server, Direction::ToClient),
                (&server, &client, Direction::ToServer),
            ];
            for (mut from, to, other) in ways {
                if direction == other {
                    arrives(from, to, b"first ");
                } else {
                    from.write_all(b"first ").unwrap();
                    is_silent(to);
                }
            }
            proxy.resume();
            for (mut from, mut to, other) in ways {
                from.write_all(b"second").unwrap();
                let expected: &[u8] = if direction == other {
                    b"second"
                } else {
                    b"first second"
                };
                let mut buffer = vec![0; expected.len()];
                to.read_exact(&mut buffer).unwrap();
                assert_eq!(buffer, expected, "{direction:?}");
            }
        }
    }

    #[test]
    fn stall_holds_end_of_stream() {
        let (proxy, client, server) = pair();
        proxy.stall(Direction::ToServer);
        drop(client);
        is_silent(&server);
        proxy.resume();
        assert_eq!(read_end(&server).unwrap(), 0);
    }

    #[test]
    fn connection_during_stall_arrives_later() {
        let (proxy, arrived) = proxy();
        proxy.stall(Direction::ToServer);
        let mut client = connect(&proxy);
        client.write_all(b"hello").unwrap();
        assert!(arrived.recv_timeout(A_WHILE).is_err());
        assert_eq!(proxy.connections(), 0);
        proxy.resume();
        let mut server = arrived.recv_timeout(LONG).unwrap();
        let mut buffer = [0; 5];
        server.read_exact(&mut buffer).unwrap();
        arrives(&server, &client, b"and back");
    }

    #[test]
    fn muted_connections_stay_mute() {
        let (proxy, arrived) = proxy();
        let first = connect(&proxy);
        let mut server = arrived.recv_timeout(LONG).unwrap();
        arrives(&first, &server, b"not yet");
        proxy.mute(1);
        let mut second = connect(&proxy);
        second.write_all(b"?").unwrap();
        assert!(arrived.recv_timeout(A_WHILE).is_err());
        proxy.resume();
        server.write_all(b"?").unwrap();
        let third = connect(&proxy);
        arrives(&third, &arrived.recv_timeout(LONG).unwrap(), b"later");
        is_silent(&first);
        is_silent(&second);
        proxy.cut(Cut::Reset);
        assert_eq!(
            read_end(&first).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    }

    #[test]
    fn cut_is_seen_on_both_sides() {
        for stalled in [false, true] {
            let (proxy, client, server) = pair();
            if stalled {
                proxy.stall(Direction::Both);
            }
            proxy.cut(Cut::Fin);
            assert_eq!(read_end(&client).unwrap(), 0);
            assert_eq!(read_end(&server).unwrap(), 0);

            let (proxy, client, server) = pair();
            if stalled {
                proxy.stall(Direction::Both);
            }
            proxy.cut(Cut::Reset);
            for side in [&client, &server] {
                assert_eq!(
                    read_end(side).unwrap_err().kind(),
                    ErrorKind::ConnectionReset
                );
            }
            assert_eq!(proxy.connections(), 0);
            assert!(
                TcpStream::connect(proxy.address()).is_ok(),
                "expected the proxy to listen still"
            );
        }
    }

    #[test]
    fn cut_from_server_is_silent() {
        let (proxy, client, mut server) = pair();
        proxy.cut_from_server(Cut::Reset);
        assert_eq!(
            read_end(&client).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
        server.write_all(b"swallowed").unwrap();
        is_silent(&server);
        server.write_all(b"swallowed").unwrap();
        proxy.cut(Cut::Reset);
        assert_eq!(
            read_end(&server).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    }

    #[test]
    fn refusal_spares_existing_connections() {
        let (proxy, arrived) = proxy();
        let client = connect(&proxy);
        let server = arrived.recv_timeout(LONG).unwrap();
        for _ in 0..3 {
            proxy.refuse().unwrap();
            let refused = TcpStream::connect(proxy.address()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            arrives(&client, &server, b"still here");
            proxy.accept().unwrap();
            let next = connect(&proxy);
            arrives(&next, &arrived.recv_timeout(LONG).unwrap(), b"here again");
        }
    }

    #[test]
    fn missing_server_resets_connections() {
        let ports = Ports::take().unwrap();
        let proxy = Proxy::start((Ipv4Addr::LOCALHOST, ports.port(0)).into()).unwrap();
        let client = connect(&proxy);
        assert_eq!(
            read_end(&client).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    }

    #[test]
    fn patient_proxy_waits_for_its_server() {
        let ports = Ports::take().unwrap();
        let target = (Ipv4Addr::LOCALHOST, ports.port(0)).into();
        let proxy = Proxy::start_patient(target, LONG).unwrap();
        let client = connect(&proxy);
        is_silent(&client);
        let listener = TcpListener::bind(target).unwrap();
        let (server, _) = listener.accept().unwrap();
        arrives(&client, &server, b"at last");
    }

    #[test]
    fn drop_resets_all_connections() {
        let (proxy, client, server) = pair();
        drop(proxy);
        for side in [&client, &server] {
            assert_eq!(
                read_end(side).unwrap_err().kind(),
                ErrorKind::ConnectionReset
            );
        }
    }
}
