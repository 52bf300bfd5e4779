//! TCP in memory: streams in order, with latency, links that hold what is on them, and resets.
//!
//! A *link* is what is between one client and the servers; its name is the host that the client
//! connects to.
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, Sleep};

use crate::run::Rng;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// Bytes that may be under way or unread in one direction: the kernels' two buffers.
const WINDOW: usize = 256 * 1024;

/// A message that takes longer is a straggler. Two stragglers in one round trip take longer than
/// the client library waits for an answer with the shortest session timeouts.
const STRAGGLES: Duration = Duration::from_millis(200);

thread_local! {
    static NET: RefCell<Option<Arc<Net>>> = const { RefCell::new(None) };
}

/// Which way bytes flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// How long a message takes, in milliseconds: usually `min..max`, once in `spike` times up to
/// `most`.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    pub min: u64,
    pub max: u64,
    pub spike: u64,
    pub most: u64,
}

#[derive(Debug)]
struct Direction {
    held: bool,
    /// The moment before which nothing arrives: held data are sent again a while after.
    not_before: Instant,
    /// Latency that grows from the first moment to the second, and stays until the third.
    slow: Option<(Instant, Instant, Instant, Duration)>,
}

/// How a link fails until it is [mended](Link::mend).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The link's connections are reset, and new ones are refused.
    Refuses,
    /// The link's connections, and those that are made in this state, carry nothing, even after the
    /// link is mended.
    Forgets,
}

#[derive(Debug)]
struct LinkState {
    ways: [Direction; 2],
    dead: bool,
    fault: Option<Fault>,
    /// When the last straggler was sent.
    straggler: Option<Instant>,
    streams: Vec<(std::sync::Weak<Pipe>, std::sync::Weak<Pipe>)>,
}

#[derive(Debug)]
pub struct Link {
    pub number: u64,
    state: Mutex<LinkState>,
    changed: Notify,
}

#[derive(Debug)]
pub struct Net {
    rng: Mutex<Rng>,
    latency: Mutex<Latency>,
    listeners: Mutex<BTreeMap<u16, mpsc::UnboundedSender<(TcpStream, SocketAddr)>>>,
    links: Mutex<BTreeMap<String, Arc<Link>>>,
    pub messages: std::sync::atomic::AtomicU64,
    next_port: std::sync::atomic::AtomicU16,
}

impl Net {
    pub fn new(rng: Rng) -> Arc<Self> {
        Arc::new(Self {
            rng: Mutex::new(rng),
            latency: Mutex::new(Latency {
                min: 1,
                max: 3,
                spike: 200,
                most: 300,
            }),
            listeners: Mutex::default(),
            links: Mutex::default(),
            messages: Default::default(),
            next_port: 3000.into(),
        })
    }
    pub fn enter(net: Option<Arc<Self>>) {
        let before = NET.with(|cell| cell.replace(net));
        drop(before);
    }
    /// Returns whether this thread has a network.
    pub fn is_here() -> bool {
        NET.with(|cell| cell.borrow().is_some())
    }
    /// Returns a port that no other call returns.
    pub fn free_port(&self) -> u16 {
        self.next_port
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
    pub fn current() -> Arc<Self> {
        NET.with(|cell| cell.borrow().clone())
            .expect("no simulation on this thread")
    }
    pub fn set_latency(&self, latency: Latency) {
        *lock(&self.latency) = latency;
    }
    fn delay(&self) -> Duration {
        let latency = *lock(&self.latency);
        let mut rng = lock(&self.rng);
        let most = if rng.one_in(latency.spike) {
            latency.most
        } else {
            latency.max
        };
        Duration::from_millis(rng.range(latency.min, most.max(latency.min + 1)))
    }
    /// Returns the link with this name, which is made if there is none.
    pub fn link(&self, name: &str) -> Arc<Link> {
        let mut links = lock(&self.links);
        let number = links.len() as u64 + 1;
        let now = Instant::now();
        let way = || Direction {
            held: false,
            not_before: now,
            slow: None,
        };
        Arc::clone(links.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(Link {
                number,
                state: Mutex::new(LinkState {
                    ways: [way(), way()],
                    dead: false,
                    fault: None,
                    straggler: None,
                    streams: Vec::new(),
                }),
                changed: Notify::new(),
            })
        }))
    }
    /// Returns the links of a link's machine: those with the same name up to the last hyphen.
    pub fn links_of(&self, link: &Arc<Link>) -> Vec<Arc<Link>> {
        let links = lock(&self.links);
        let machine = |name: &str| {
            name.rsplit_once('-')
                .map_or(name, |(machine, _)| machine)
                .to_owned()
        };
        let own = links
            .iter()
            .find(|(_, other)| Arc::ptr_eq(other, link))
            .map(|(name, _)| machine(name));
        let same = |name: &str| own.as_deref() == Some(&machine(name));
        links
            .iter()
            .filter(|(name, _)| same(name))
            .map(|(_, link)| Arc::clone(link))
            .collect()
    }
    pub fn links(&self) -> Vec<Arc<Link>> {
        lock(&self.links).values().cloned().collect()
    }
}

impl Link {
    /// Holds what flows that way now and later, until [`heal`](Self::heal).
    pub fn hold(&self, way: Way) {
        lock(&self.state).ways[way as usize].held = true;
    }
    /// Delays data in that direction more and more, up to `most` after `ramp`, for `time` in all.
    pub fn slow(&self, way: Way, most: Duration, ramp: Duration, time: Duration) {
        let now = Instant::now();
        lock(&self.state).ways[way as usize].slow = Some((now, now + ramp, now + time, most));
    }
    /// Returns how long a message that is sent now takes.
    fn delay(&self, net: &Net, way: Way) -> Duration {
        let usual = net.delay();
        if usual > STRAGGLES {
            lock(&self.state).straggler = Some(Instant::now());
        }
        usual + self.extra(way)
    }
    /// Returns how long ago the last straggler was sent; `None` if none was. Stragglers take long
    /// although nothing is broken.
    pub fn since_straggler(&self) -> Option<Duration> {
        lock(&self.state).straggler.map(|at| at.elapsed())
    }
    fn extra(&self, way: Way) -> Duration {
        let way = &mut lock(&self.state).ways[way as usize];
        let Some((from, full, until, most)) = way.slow else {
            return Duration::ZERO;
        };
        let now = Instant::now();
        if now >= until {
            way.slow = None;
            return Duration::ZERO;
        }
        let part = if now >= full {
            1.0
        } else {
            (now - from).as_secs_f64() / (full - from).as_secs_f64()
        };
        Duration::from_millis(most.mul_f64(part).as_millis() as u64)
    }
    /// Carries everything again, and held data after a random delay.
    pub fn heal(&self) {
        self.heal_after(|| Duration::from_millis(lock(&Net::current().rng).range(0, 200)));
    }
    /// Carries everything again, and held data at once.
    pub fn mend(&self) {
        lock(&self.state).fault = None;
        self.heal_after(|| Duration::ZERO);
    }
    /// Fails until it is [mended](Self::mend).
    pub fn fail(&self, fault: Fault) {
        match fault {
            Fault::Refuses => drop(self.reset()),
            Fault::Forgets => self.pipes().for_each(|pipe| pipe.forget()),
        }
        lock(&self.state).fault = Some(fault);
    }
    /// Returns the directions of its connections.
    fn pipes(&self) -> impl Iterator<Item = Arc<Pipe>> + use<> {
        let streams = lock(&self.state).streams.clone();
        streams
            .into_iter()
            .flat_map(|(a, b)| [a, b])
            .filter_map(|pipe| pipe.upgrade())
    }
    fn heal_after(&self, pause: impl Fn() -> Duration) {
        let pipes = {
            let mut state = lock(&self.state);
            if state.dead {
                return;
            }
            for way in &mut state.ways {
                way.slow = None;
                if std::mem::take(&mut way.held) {
                    way.not_before = Instant::now() + pause();
                }
            }
            drop(state);
            self.pipes()
        };
        pipes.for_each(|pipe| pipe.wake_reader());
        self.changed.notify_waiters();
    }
    /// Resets all connections; what is under way is lost.
    pub fn reset(&self) -> usize {
        let streams = std::mem::take(&mut lock(&self.state).streams);
        let mut count = 0;
        for pipe in streams
            .iter()
            .flat_map(|(a, b)| [a, b])
            .filter_map(std::sync::Weak::upgrade)
        {
            pipe.reset();
            count += 1;
        }
        count / 2
    }
    /// Stops all data in both directions, permanently.
    pub fn die(&self) {
        let mut state = lock(&self.state);
        state.dead = true;
        state.ways[0].held = true;
        state.ways[1].held = true;
    }
    pub fn is_held(&self) -> bool {
        let state = lock(&self.state);
        state.ways[0].held || state.ways[1].held
    }
    pub fn is_dead(&self) -> bool {
        lock(&self.state).dead
    }
    /// When something due at `at` arrives that way; `None` while it is held.
    fn arrives(&self, way: Way, at: Instant) -> Option<Instant> {
        let state = lock(&self.state);
        let way = &state.ways[way as usize];
        (!way.held).then(|| at.max(way.not_before))
    }
    /// Waits as a packet that is sent now.
    async fn travel(&self, net: &Net, way: Way) {
        let mut due = Instant::now() + self.delay(net, way);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.arrives(way, due) {
                Some(at) if at <= Instant::now() => return,
                Some(at) => {
                    due = at;
                    tokio::select! { biased; () = tokio::time::sleep_until(at) => {} () = changed => {} }
                }
                None => changed.await,
            }
        }
    }
}

#[derive(Debug)]
enum Segment {
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

#[derive(Debug, Default)]
struct PipeState {
    under_way: VecDeque<(Instant, Segment)>,
    arrived: VecDeque<u8>,
    unread: usize,
    last_due: Option<Instant>,
    finished: bool,
    reset: bool,
    /// Whether nothing arrives any more.
    forgotten: bool,
    reader_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// A direction of a connection.
#[derive(Debug)]
struct Pipe {
    way: Way,
    link: Arc<Link>,
    net: Arc<Net>,
    state: Mutex<PipeState>,
}

impl Pipe {
    fn wake_reader(&self) {
        let waker = lock(&self.state).reader.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    fn reset(&self) {
        let wakers = {
            let mut state = lock(&self.state);
            state.reset = true;
            state.under_way.clear();
            state.arrived.clear();
            [state.reader.take(), state.writer.take()]
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
    fn forget(&self) {
        let mut state = lock(&self.state);
        state.forgotten = true;
        state.under_way.clear();
    }
    fn send(&self, segment: Segment) {
        let now = Instant::now();
        let delay = self.link.delay(&self.net, self.way);
        let waker = {
            let mut state = lock(&self.state);
            if state.reset || state.forgotten || state.reader_gone {
                return;
            }
            let due = state
                .last_due
                .map_or(now + delay, |last| last.max(now + delay));
            state.last_due = Some(due);
            if let Segment::Bytes(bytes) = &segment {
                state.unread += bytes.len();
            }
            state.under_way.push_back((due, segment));
            self.net
                .messages
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            state.reader.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    fn poll_write(
        &self,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = {
            let mut state = lock(&self.state);
            if state.reset {
                return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
            }
            if state.finished {
                return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
            }
            let room = WINDOW.saturating_sub(state.unread);
            if room == 0 {
                state.writer = Some(context.waker().clone());
                return Poll::Pending;
            }
            let mut bytes = Vec::new();
            for buffer in buffers {
                let take = buffer.len().min(room - bytes.len());
                bytes.extend_from_slice(&buffer[..take]);
            }
            bytes
        };
        let count = bytes.len();
        if count > 0 {
            self.send(Segment::Bytes(bytes));
        }
        Poll::Ready(Ok(count))
    }
    fn finish(&self) {
        {
            let mut state = lock(&self.state);
            if std::mem::replace(&mut state.finished, true) {
                return;
            }
        }
        self.send(Segment::Fin);
    }
    fn poll_read(
        &self,
        context: &mut Context<'_>,
        sleep: &mut Option<Pin<Box<Sleep>>>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let next = {
                let mut state = lock(&self.state);
                if state.reset {
                    return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
                }
                let now = Instant::now();
                let mut next = None;
                while let Some((due, _)) = state.under_way.front() {
                    match self.link.arrives(self.way, *due) {
                        Some(at) if at <= now => match state.under_way.pop_front() {
                            Some((_, Segment::Bytes(bytes))) => state.arrived.extend(bytes),
                            Some((due, Segment::Fin)) => {
                                if state.arrived.is_empty() {
                                    state.under_way.push_front((due, Segment::Fin));
                                    return Poll::Ready(Ok(0));
                                }
                                state.under_way.push_front((due, Segment::Fin));
                                break;
                            }
                            Some((_, Segment::Reset)) => {
                                state.reset = true;
                                state.arrived.clear();
                                return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
                            }
                            None => break,
                        },
                        at => {
                            next = at;
                            break;
                        }
                    }
                }
                if !state.arrived.is_empty() {
                    let count = io::Read::read(&mut state.arrived, buffer)?;
                    state.unread -= count;
                    let writer = state.writer.take();
                    drop(state);
                    if let Some(writer) = writer {
                        writer.wake();
                    }
                    return Poll::Ready(Ok(count));
                }
                state.reader = Some(context.waker().clone());
                next
            };
            // The reader is woken when the link is healed, which releases the held data.
            let Some(at) = next else { return Poll::Pending };
            let sleep = match sleep {
                Some(sleep) => {
                    if sleep.deadline() != at {
                        sleep.as_mut().reset(at);
                    }
                    sleep
                }
                None => sleep.insert(Box::pin(tokio::time::sleep_until(at))),
            };
            std::task::ready!(sleep.as_mut().poll(context));
        }
    }
}

/// A connection, for the client (futures' traits) and the server (tokio's).
#[derive(Debug)]
pub struct TcpStream {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
    sleep: Option<Pin<Box<Sleep>>>,
    linger: bool,
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.incoming.state);
            state.reader_gone = true;
            state.under_way.clear();
            state.unread = 0;
            if let Some(writer) = state.writer.take() {
                writer.wake();
            }
        }
        if self.linger {
            self.outgoing.finish()
        } else {
            self.outgoing.send(Segment::Reset)
        }
    }
}

impl TcpStream {
    /// Connects by the link that the host names.
    pub async fn connect((host, port): (&str, u16)) -> io::Result<Self> {
        let net = Net::current();
        let link = net.link(host);
        link.travel(&net, Way::ToServer).await;
        let fault = lock(&link.state).fault;
        let listener = lock(&net.listeners).get(&port).cloned();
        let listener = listener.filter(|_| fault != Some(Fault::Refuses));
        let accepted = listener.and_then(|listener| {
            let pipe = |way| {
                Arc::new(Pipe {
                    way,
                    link: Arc::clone(&link),
                    net: Arc::clone(&net),
                    state: Mutex::default(),
                })
            };
            let (to_server, to_client) = (pipe(Way::ToServer), pipe(Way::ToClient));
            if fault == Some(Fault::Forgets) {
                to_server.forget();
                to_client.forget();
            }
            let theirs = Self {
                incoming: Arc::clone(&to_server),
                outgoing: Arc::clone(&to_client),
                sleep: None,
                linger: true,
            };
            let ours = Self {
                incoming: Arc::clone(&to_client),
                outgoing: Arc::clone(&to_server),
                sleep: None,
                linger: true,
            };
            let peer = SocketAddr::from((Ipv4Addr::new(10, 0, 0, link.number as u8), 4000));
            listener.send((theirs, peer)).ok()?;
            let mut state = lock(&link.state);
            state
                .streams
                .retain(|(a, b)| a.strong_count() + b.strong_count() > 0);
            state
                .streams
                .push((Arc::downgrade(&to_server), Arc::downgrade(&to_client)));
            Some(ours)
        });
        link.travel(&net, Way::ToClient).await;
        accepted.ok_or_else(|| ErrorKind::ConnectionRefused.into())
    }
    pub fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }
    pub fn set_zero_linger(&mut self) -> io::Result<()> {
        self.linger = false;
        Ok(())
    }
}

impl futures_io::AsyncRead for TcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        this.incoming.poll_read(context, &mut this.sleep, buffer)
    }
}

impl futures_io::AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.outgoing
            .poll_write(context, &[io::IoSlice::new(buffer)])
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.outgoing.poll_write(context, buffers)
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.finish();
        Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncRead for TcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let unfilled = buffer.initialize_unfilled();
        let count = std::task::ready!(this.incoming.poll_read(context, &mut this.sleep, unfilled))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.outgoing
            .poll_write(context, &[io::IoSlice::new(buffer)])
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.finish();
        Poll::Ready(Ok(()))
    }
}

/// The halves of a borrowed stream, named as tokio's are.
#[derive(Debug)]
pub struct ReadHalf<'a> {
    pipe: &'a Pipe,
    sleep: &'a mut Option<Pin<Box<Sleep>>>,
}
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a Pipe);

impl TcpStream {
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (
            ReadHalf {
                pipe: &self.incoming,
                sleep: &mut self.sleep,
            },
            WriteHalf(&self.outgoing),
        )
    }
}

impl tokio::io::AsyncRead for ReadHalf<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let unfilled = buffer.initialize_unfilled();
        let count = std::task::ready!(this.pipe.poll_read(context, this.sleep, unfilled))?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for WriteHalf<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, &[io::IoSlice::new(buffer)])
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.finish();
        Poll::Ready(Ok(()))
    }
}

/// Accepts connections on a port, until it is dropped.
#[derive(Debug)]
pub struct TcpListener {
    port: u16,
    incoming: tokio::sync::Mutex<mpsc::UnboundedReceiver<(TcpStream, SocketAddr)>>,
}

impl TcpListener {
    pub fn bind(port: u16) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock(&Net::current().listeners).insert(port, sender);
        Self {
            port,
            incoming: tokio::sync::Mutex::new(receiver),
        }
    }
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.incoming
            .lock()
            .await
            .recv()
            .await
            .ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        let net = NET.with(|cell| cell.borrow().clone());
        if let Some(net) = net {
            lock(&net.listeners).remove(&self.port);
        }
    }
}
