//! A client's connection: requests in, replies and events out, in order.
//!
//! Three loops share a task. The reader decodes frames, the processor applies the requests one
//! after another, and the writer sends what is queued. Requests that have arrived are applied even
//! if the socket has been closed in the meantime, as in ZooKeeper's pipeline.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{self, AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::Instant;

use crate::address;
use crate::counters::{LogKind, Op, Reason};
use crate::fault::{Asked, Cell, Hit, Loss};
use crate::listener::{Listener, Stream};
use crate::server::{Direction, Shared};
use crate::signal::{Signal, lock};
use crate::state::{Ask, Greeting, State};
use crate::wire::jute::{Frame, Reader};
use crate::wire::request::{Connect, Request};
use crate::wire::{AuthId, opcode};
use crate::words;

/// How a socket is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// An orderly close.
    Fin,
    /// A reset.
    Reset,
    /// The client has closed it.
    Gone,
    /// An orderly close, because its session has expired, as soon as bytes flow to the client.
    Expired,
    /// An orderly close, because its member has stopped, or has joined the others again: requests
    /// that the member had not processed are lost.
    Left,
}

/// The bytes of queued replies above which no further request is processed.
const SOFT_OUT: usize = 4 << 20;
/// The bytes of queued replies and events above which the connection of a client that does not read
/// is reset. Data that is shared with the tree counts too.
pub(crate) const HARD_OUT: usize = 64 << 20;
/// The bytes that are written at once.
const BATCH: usize = 64 * 1024;
/// The bytes and the number of requests that may wait behind one that is held.
const MAX_IN: u32 = 16 << 20;
const MAX_QUEUED: usize = 4096;
/// How long the server waits for the client to close its side of a socket.
const DRAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Out {
    Frame(Frame, Option<Replied>),
    /// Keeps all that follows until the gate is released.
    Held(Arc<Cell>),
    /// Keeps all that follows until this moment.
    Due(Instant),
    End(End),
    Silence,
}

/// The event that is logged when a reply is written.
#[derive(Debug)]
pub(crate) struct Replied {
    request: u64,
    session: i64,
    op: Op,
    opcode: i32,
    path: String,
    error: i32,
}

#[derive(Debug, Default)]
struct Outbound {
    queue: VecDeque<Out>,
    /// The bytes of the data, including those that the tree shares.
    bytes: usize,
    /// The bytes queued on this connection, which are part of the sum of all.
    own: usize,
    closed: bool,
}

/// The approximate memory that a frame takes in a queue beside its bytes.
const ENTRY: usize = 160;

fn cost(frame: &Frame) -> usize {
    frame.own_len() + ENTRY
}

/// The part of a connection that the rest of the server uses.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    /// The member of the ensemble to which the connection leads.
    pub(crate) member: usize,
    /// When the connection was accepted, in milliseconds since the Unix epoch.
    pub(crate) since_ms: i64,
    session: AtomicI64,
    /// The session timeout that the client was granted.
    timeout_ms: AtomicU64,
    ids: Mutex<Vec<AuthId>>,
    out: Mutex<Outbound>,
    /// The bytes queued on all connections.
    all: Arc<AtomicUsize>,
    moved: Signal,
    end: watch::Sender<Option<End>>,
    /// A fault has struck: whatever arrives now is discarded.
    deaf: AtomicBool,
    /// A fault has struck: nothing is sent to the client any more, not even the end of the
    /// connection.
    silent: AtomicBool,
    /// Whether the connect was accepted.
    greeted: AtomicBool,
    received: AtomicU64,
    sent: AtomicU64,
    /// The opcode and the xid of the last request, and the zxid of the last reply.
    last: Mutex<Option<(i32, i32, i64)>>,
}

impl Conn {
    pub(crate) fn new(
        id: u64,
        peer: SocketAddr,
        member: usize,
        since_ms: i64,
        all: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            id,
            peer,
            member,
            since_ms,
            session: AtomicI64::new(0),
            timeout_ms: AtomicU64::new(0),
            ids: Mutex::new(vec![AuthId::new("ip", address::written(peer.ip()))]),
            out: Mutex::default(),
            all,
            moved: Signal::new(),
            end: watch::Sender::new(None),
            deaf: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            greeted: AtomicBool::new(false),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            last: Mutex::new(None),
        }
    }

    /// Returns the session, or before the connect is accepted the one that the client wants to
    /// resume; 0 if there is none.
    pub(crate) fn session(&self) -> i64 {
        self.session.load(Ordering::Acquire)
    }

    pub(crate) fn set_session(&self, id: i64) {
        self.session.store(id, Ordering::Release);
    }

    pub(crate) fn timeout_ms(&self) -> u64 {
        self.timeout_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn set_timeout(&self, ms: u64) {
        self.timeout_ms.store(ms, Ordering::Relaxed);
    }

    pub(crate) fn ids(&self) -> Vec<AuthId> {
        lock(&self.ids).clone()
    }

    pub(crate) fn add_id(&self, id: AuthId) {
        let mut ids = lock(&self.ids);
        if !ids.contains(&id) {
            ids.push(id);
        }
    }

    /// Returns whether its connect was accepted.
    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted.load(Ordering::Acquire)
    }

    /// Returns the number of frames received, sent and queued.
    pub(crate) fn traffic(&self) -> (u64, u64, usize) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            count(&self.received),
            count(&self.sent),
            lock(&self.out).queue.len(),
        )
    }

    /// Returns the number of frames received and sent, and counts from 0 again.
    pub(crate) fn take_traffic(&self) -> (u64, u64) {
        *lock(&self.last) = None;
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        (take(&self.received), take(&self.sent))
    }

    /// Returns the opcode and the xid of the last request, and the zxid at its reply.
    pub(crate) fn last(&self) -> Option<(i32, i32, i64)> {
        *lock(&self.last)
    }

    /// Queues a frame, unless the connection is closed. [`State::send`] closes the connection of a
    /// client that does not read.
    pub(crate) fn push(&self, frame: Frame, replied: Option<Replied>) {
        let mut out = lock(&self.out);
        if out.closed {
            return;
        }
        out.bytes += frame.len();
        out.own += cost(&frame);
        self.all.fetch_add(cost(&frame), Ordering::Relaxed);
        out.queue.push_back(Out::Frame(frame, replied));
        drop(out);
        self.moved.raise();
    }

    /// Returns the bytes that wait to be sent, and those of them that only this connection keeps.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let out = lock(&self.out);
        (out.bytes, out.own)
    }

    fn queue(&self, item: Out) {
        let mut out = lock(&self.out);
        if !out.closed {
            out.queue.push_back(item);
            drop(out);
            self.moved.raise();
        }
    }

    /// Closes the socket at once, even if frames are queued.
    pub(crate) fn kill(&self, end: End) {
        self.end.send_modify(|known| {
            known.get_or_insert(end);
        });
    }

    /// Drops what is queued, and queues nothing any more.
    pub(crate) fn close(&self) {
        let mut out = lock(&self.out);
        self.uncount(&mut out);
        *out = Outbound {
            closed: true,
            ..Outbound::default()
        };
        drop(out);
        self.moved.raise();
    }

    /// Accepts no more frames in either direction, and closes the socket once what is queued has
    /// been sent.
    pub(crate) fn expire(&self) {
        self.deaf.store(true, Ordering::Release);
        let mut out = lock(&self.out);
        self.uncount(&mut out);
        out.closed = true;
        drop(out);
        self.kill(End::Expired);
    }

    /// Subtracts the bytes that wait here from the sum of all connections: no more are added, and
    /// these are dropped with the connection.
    fn uncount(&self, out: &mut Outbound) {
        self.all
            .fetch_sub(std::mem::take(&mut out.own), Ordering::Relaxed);
    }

    fn lose(&self, loss: Loss) {
        self.deaf.store(true, Ordering::Release);
        match loss {
            Loss::Close => self.queue(Out::End(End::Fin)),
            Loss::Reset => self.queue(Out::End(End::Reset)),
            Loss::Stall => {
                self.silent.store(true, Ordering::Release);
                self.queue(Out::Silence);
            }
        }
    }

    fn has_left(&self) -> bool {
        *self.end.borrow() == Some(End::Left)
    }

    async fn until_end(&self, is: impl Fn(End) -> bool) -> End {
        let mut end = self.end.subscribe();
        loop {
            if let Some(end) = (*end.borrow_and_update()).filter(|end| is(*end)) {
                return end;
            }
            // The sender lives as long as `self`, so the wait cannot fail.
            let _ = end.changed().await;
        }
    }

    async fn killed(&self) -> End {
        self.until_end(|end| end != End::Expired).await
    }

    /// Waits until the connection of an expired session is to be closed. A silent connection is not
    /// closed, because its end would tell the client that it is cut off.
    async fn expired(&self, shared: &Shared) -> End {
        self.until_end(|end| end == End::Expired).await;
        if self.silent.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
        shared.until_flows(self, Direction::ToClient).await;
        // Replies that were queued before the end are sent first, which may take a moment.
        self.moved.until(|| lock(&self.out).bytes == 0).await;
        End::Fin
    }

    /// Waits until another reply may be queued, or the connection is closed.
    async fn room(&self) {
        self.moved.until(|| lock(&self.out).bytes < SOFT_OUT).await;
    }

    async fn next_out(&self) -> Out {
        self.moved.until(|| !lock(&self.out).queue.is_empty()).await;
        self.next_ready().unwrap_or(Out::End(End::Gone))
    }

    fn next_ready(&self) -> Option<Out> {
        let item = lock(&self.out).queue.pop_front();
        if item.is_some() {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        item
    }

    fn next_frame(&self) -> Option<(Frame, Option<Replied>)> {
        let mut out = lock(&self.out);
        if !matches!(out.queue.front(), Some(Out::Frame(..))) {
            return None;
        }
        match out.queue.pop_front() {
            Some(Out::Frame(frame, replied)) => {
                self.sent.fetch_add(1, Ordering::Relaxed);
                Some((frame, replied))
            }
            _ => None,
        }
    }

    fn written(&self, frames: &[Frame]) {
        let mut out = lock(&self.out);
        out.bytes = out
            .bytes
            .saturating_sub(frames.iter().map(Frame::len).sum());
        // The frames of a closed connection are not counted any more.
        let own = out.own.min(frames.iter().map(cost).sum());
        out.own -= own;
        self.all.fetch_sub(own, Ordering::Relaxed);
        drop(out);
        self.moved.raise();
    }
}

/// The server may end the task of a connection at any moment.
impl Drop for Conn {
    fn drop(&mut self) {
        self.uncount(&mut lock(&self.out));
    }
}

/// A message of the reader to the processor.
#[derive(Debug)]
enum Inbound {
    Connect(u64, Connect),
    Ask(Ask),
}

/// Serves a connection until its socket is closed and its last request has been processed.
pub(crate) async fn serve<L: Listener>(stream: L::Stream, conn: Arc<Conn>, shared: Arc<Shared>) {
    let (to_processor, from_reader) = mpsc::channel(MAX_QUEUED);
    let socket = async {
        let (mut read, mut write) = io::split(stream);
        let end = tokio::select! {
            biased;
            end = conn.killed() => end,
            end = write_all(&mut write, &conn, &shared) => end,
            end = conn.expired(&shared) => end,
            end = read_all(&mut read, &conn, &shared, to_processor) => end,
        };
        shared.change(|state| state.disconnect(&conn));
        let mut stream = read.unsplit(write);
        match end {
            End::Gone | End::Expired => drop(stream),
            End::Reset => L::reset(stream),
            End::Fin | End::Left => {
                // The system resets a connection that is closed with unread bytes.
                let _ = stream.shutdown().await;
                let mut scratch = [0; 4096];
                let drained = async { while matches!(stream.read(&mut scratch).await, Ok(1..)) {} };
                let _ = tokio::time::timeout(DRAIN, drained).await;
            }
        }
    };
    tokio::join!(socket, process_all(from_reader, &conn, &shared));
}

async fn write_all<S: Stream>(write: &mut WriteHalf<S>, conn: &Conn, shared: &Shared) -> End {
    loop {
        let item = conn.next_out().await;
        shared.until_flows(conn, Direction::ToClient).await;
        match item {
            Out::Held(cell) => cell.until_end().await,
            Out::Due(at) => tokio::time::sleep_until(at).await,
            Out::End(end) => return end,
            Out::Silence => std::future::pending().await,
            Out::Frame(frame, replied) => {
                let mut frames = vec![frame];
                let mut logged: Vec<Replied> = replied.into_iter().collect();
                let mut bytes = frames.iter().map(Frame::len).sum::<usize>();
                while bytes < BATCH {
                    let Some((frame, replied)) = conn.next_frame() else {
                        break;
                    };
                    bytes += frame.len();
                    frames.push(frame);
                    logged.extend(replied);
                }
                log_replies(shared, logged);
                if write_frames(write, &frames).await.is_err() {
                    return End::Gone;
                }
                conn.written(&frames);
            }
        }
    }
}

fn log_replies(shared: &Shared, logged: Vec<Replied>) {
    if logged.is_empty() {
        return;
    }
    shared.change(|state| {
        for r in logged {
            state.record(
                LogKind::Replied,
                r.request,
                r.session,
                r.op,
                r.opcode,
                &r.path,
                r.error,
            );
        }
    });
}

/// Writes frames in as few calls as their small pieces allow. Large pieces are not copied.
async fn write_frames<S: Stream>(write: &mut WriteHalf<S>, frames: &[Frame]) -> io::Result<()> {
    let mut batch = Vec::new();
    for piece in frames.iter().flat_map(Frame::pieces) {
        if piece.len() >= BATCH {
            write.write_all(&std::mem::take(&mut batch)).await?;
            write.write_all(piece).await?;
            continue;
        }
        batch.extend_from_slice(piece);
        if batch.len() >= BATCH {
            write.write_all(&batch).await?;
            batch.clear();
        }
    }
    write.write_all(&batch).await
}

/// The weight of a waiting request: its share of its connection, and of all connections if it needs
/// one.
type Permits = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);
type ToProcessor = mpsc::Sender<(Inbound, Permits)>;

/// Takes the room of a request. If all connections together have none left, the request waits until
/// it is the only one of its connection. So each connection makes progress, whatever the others
/// hold.
async fn room_for(len: usize, own: &Arc<Semaphore>, all: &Arc<Semaphore>) -> Option<Permits> {
    let permits = u32::try_from(len).unwrap_or(u32::MAX).min(MAX_IN);
    let of_all = Arc::clone(all).try_acquire_many_owned(permits).ok();
    let wanted = if of_all.is_some() { permits } else { MAX_IN };
    let mut taken = Arc::clone(own).acquire_many_owned(wanted).await.ok()?;
    // The permits beyond the request's need were taken only to wait for them.
    let room = taken.split(permits as usize)?;
    Some((room, of_all))
}

async fn read_all<S: Stream>(
    read: &mut ReadHalf<S>,
    conn: &Arc<Conn>,
    shared: &Shared,
    to_processor: ToProcessor,
) -> End {
    let max_frame = shared.max_frame();
    let budget = Arc::new(Semaphore::new(MAX_IN as usize));
    let mut input = Input::new();
    let mut connected = false;
    let mut dead = false;
    loop {
        loop {
            let pending = input.pending();
            let Some((head, _)) = pending.split_first_chunk::<4>() else {
                break;
            };
            if !connected {
                if words::takes_a_number(*head) && pending.len() < 12 {
                    break;
                }
                if let Some(text) = words::answer(shared, conn.member, pending) {
                    conn.received.fetch_add(1, Ordering::Relaxed);
                    conn.push(text.into(), None);
                    conn.lose(Loss::Close);
                    return std::future::pending().await;
                }
            }
            let len = match usize::try_from(i32::from_be_bytes(*head)) {
                Ok(len) if len <= max_frame => len,
                Ok(_) => return refuse(shared, conn, Reason::Oversized),
                Err(_) => return refuse(shared, conn, Reason::Malformed),
            };
            if pending.len() < 4 + len {
                break;
            }
            if !connected {
                // The session may be stalled, so it must be known before the frame counts as
                // arrived.
                let Ok(connect) = Connect::decode(&pending[4..4 + len]) else {
                    return refuse(shared, conn, Reason::Malformed);
                };
                conn.set_session(connect.session);
            }
            if let Some(end) = stalled(read, &mut input, conn, shared, max_frame).await {
                return end;
            }
            dead |= conn.deaf.load(Ordering::Acquire);
            if dead {
                break;
            }
            let Some(inbound) = arrive(conn, shared, &input.pending()[4..4 + len], connected)
            else {
                return refuse(shared, conn, Reason::Malformed);
            };
            connected = true;
            input.start += 4 + len;
            if let (true, Inbound::Ask(ask)) = (shared.races && conn.is_greeted(), &inbound) {
                if ask.op == Op::Auth {
                    dead |= matches!(answer(conn, shared, ask, &inbound), Next::Stop);
                    continue;
                }
            }
            let Some(permits) = room_for(len, &budget, &shared.inbound).await else {
                return End::Gone;
            };
            dead |= to_processor.send((inbound, permits)).await.is_err();
            if let Some(end) = greeted(read, &mut input, conn, &to_processor, max_frame).await {
                return end;
            }
            if dead {
                break;
            }
        }
        if dead {
            // Nothing is processed any more. Further data is discarded until the client closes the
            // connection.
            input = Input::new();
            connected = true;
        }
        if let Some(end) = input.fill(read).await {
            return end;
        }
    }
}

/// Logs why a connection is closed.
fn refuse(shared: &Shared, conn: &Conn, reason: Reason) -> End {
    shared.change(|state| state.record_closed(conn, reason));
    End::Fin
}

/// Waits while bytes to the server are stalled, and reads on, to notice if the client closes the
/// connection. Returns how it was closed in that case.
async fn stalled<S: Stream>(
    read: &mut ReadHalf<S>,
    input: &mut Input,
    conn: &Conn,
    shared: &Shared,
    max_frame: usize,
) -> Option<End> {
    loop {
        tokio::select! {
            biased;
            () = shared.until_flows(conn, Direction::ToServer) => return None,
            end = input.fill(read), if input.pending().len() < max_frame => {
                if end.is_some() {
                    return end;
                }
            }
        }
    }
}

/// Waits until the connect is accepted, as ZooKeeper does: the requests behind it belong to the
/// session that is granted. Returns how the connection was closed, if it was.
async fn greeted<S: Stream>(
    read: &mut ReadHalf<S>,
    input: &mut Input,
    conn: &Conn,
    to_processor: &ToProcessor,
    max_frame: usize,
) -> Option<End> {
    loop {
        tokio::select! {
            biased;
            () = conn.moved.until(|| conn.is_greeted()) => return None,
            () = to_processor.closed() => return None,
            end = input.fill(read), if input.pending().len() < max_frame => {
                if end.is_some() {
                    return end;
                }
            }
        }
    }
}

#[derive(Debug)]
struct Input {
    bytes: Vec<u8>,
    start: usize,
    /// How much is read at once: little for a client that is idle, since there may be many.
    room: usize,
}

/// The most that is read at once.
const READ: usize = 64 * 1024;

impl Input {
    fn new() -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            room: 512,
        }
    }

    fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Reads the bytes that are available; returns how the connection was closed, if it was.
    async fn fill<S: Stream>(&mut self, read: &mut ReadHalf<S>) -> Option<End> {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.reserve(self.room);
        match read.read_buf(&mut self.bytes).await {
            Ok(0) | Err(_) => Some(End::Gone),
            Ok(read) => {
                if read >= self.room {
                    self.room = READ.min(self.room * 2);
                }
                None
            }
        }
    }
}

/// Decodes, counts and logs a frame, and renews its session. Returns `None` if the connection is to
/// be closed.
fn arrive(conn: &Conn, shared: &Shared, frame: &[u8], connected: bool) -> Option<Inbound> {
    conn.received.fetch_add(1, Ordering::Relaxed);
    if !connected {
        let connect = Connect::decode(frame).ok()?;
        let number = shared.change(|state| {
            let number = state.next_request();
            state.counters.count(connect.session, Op::Connect);
            state.record(
                LogKind::Arrived,
                number,
                connect.session,
                Op::Connect,
                0,
                "",
                0,
            );
            number
        });
        return Some(Inbound::Connect(number, connect));
    }
    let mut reader = Reader::new(frame);
    let (xid, opcode) = (reader.i32().ok()?, reader.i32().ok()?);
    let body = Request::decode(opcode, &mut reader, shared.since_3_9);
    let op = Op::of(opcode);
    if matches!(opcode, opcode::AUTH | opcode::SASL) && body.is_err() {
        // ZooKeeper decodes these at once, and closes the connection.
        return None;
    }
    let (number, known) = shared.change(|state| {
        let (number, session) = (state.next_request(), conn.session());
        let heard_at = state.heard_at();
        // Requests that reach an isolated member do not reach the other members, which expire the
        // session.
        let heard = !state.is_cut(conn)
            || state
                .sessions
                .get(session)
                .is_some_and(|known| known.local.is_some());
        // A member to which a connection is left when its session is resumed elsewhere continues to
        // tell the leader that the session is alive.
        if heard && state.connections.contains_key(&conn.id) {
            state.sessions.touch(session, heard_at);
        }
        state.counters.count(session, op);
        let path = body.as_ref().map_or("", Request::path);
        state.record(LogKind::Arrived, number, session, op, opcode, path, 0);
        (number, state.config.version.knows(opcode))
    });
    if !known {
        return None;
    }
    Some(Inbound::Ask(Ask {
        number,
        xid,
        opcode,
        op,
        body,
    }))
}

async fn process_all(
    mut from_reader: mpsc::Receiver<(Inbound, Permits)>,
    conn: &Arc<Conn>,
    shared: &Shared,
) {
    while let Some((inbound, _permits)) = from_reader.recv().await {
        conn.room().await;
        let verdict = shared.with(|state| state.plan.judge_request(&asked(conn, &inbound)));
        for cell in &verdict.hold {
            cell.hit(hit(conn, &inbound, None));
        }
        for cell in &verdict.hold {
            cell.until_end().await;
        }
        if let Some((loss, cell)) = verdict.lose {
            conn.lose(loss);
            shared.change(|state| discard(state, conn, &inbound));
            cell.hit(hit(conn, &inbound, None));
            return;
        }
        let next = match &inbound {
            Inbound::Connect(number, connect) => greet(conn, shared, *number, connect, &inbound),
            Inbound::Ask(ask) => answer(conn, shared, ask, &inbound),
        };
        match next {
            Next::GoOn => {}
            Next::Stop => return,
            Next::Closed => {
                // The requests have arrived, and the connection is still open.
                while let Ok((inbound, _permits)) = from_reader.try_recv() {
                    if let Inbound::Ask(ask) = &inbound {
                        answer(conn, shared, ask, &inbound);
                    }
                }
                conn.queue(Out::End(End::Fin));
                return;
            }
            Next::Stuck => {
                shared.until_changed(|state| !state.is_cut(conn)).await;
                shared.change(|state| discard(state, conn, &inbound));
                return;
            }
        }
    }
}

/// How a connection continues after a request.
enum Next {
    GoOn,
    Stop,
    /// The session is closed, and replies may come before its end.
    Closed,
    /// The member is isolated: the request waits for the other members, and all that follow wait
    /// behind it.
    Stuck,
}

/// Returns a request as faults match it.
fn asked<'a>(conn: &Conn, inbound: &'a Inbound) -> Asked<'a> {
    match inbound {
        Inbound::Connect(_, connect) => Asked {
            op: Op::Connect,
            opcode: 0,
            session: connect.session,
            paths: Vec::new(),
        },
        Inbound::Ask(ask) => Asked {
            op: ask.op,
            opcode: ask.opcode,
            session: conn.session(),
            paths: ask.body.iter().flat_map(Request::paths).collect(),
        },
    }
}

fn discard(state: &mut State, conn: &Conn, inbound: &Inbound) {
    let (number, op, opcode, path) = match inbound {
        Inbound::Connect(number, _) => (*number, Op::Connect, 0, ""),
        Inbound::Ask(ask) => (
            ask.number,
            ask.op,
            ask.opcode,
            ask.body.as_ref().map_or("", Request::path),
        ),
    };
    state.record(
        LogKind::Discarded,
        number,
        conn.session(),
        op,
        opcode,
        path,
        0,
    );
}

fn hit(conn: &Conn, inbound: &Inbound, path: Option<&str>) -> Hit {
    let (op, asked) = match inbound {
        Inbound::Connect(..) => (Op::Connect, ""),
        Inbound::Ask(ask) => (ask.op, ask.body.as_ref().map_or("", Request::path)),
    };
    Hit {
        session: conn.session(),
        op,
        path: path.unwrap_or(asked).to_owned(),
    }
}

/// Handles a connect and queues its reply.
fn greet(conn: &Conn, shared: &Shared, number: u64, connect: &Connect, inbound: &Inbound) -> Next {
    let (next, cells) = shared.change(|state| {
        // A connect whose connection was closed while it waited must not resume the session.
        if !state.connections.contains_key(&conn.id) {
            state.record(
                LogKind::Discarded,
                number,
                connect.session,
                Op::Connect,
                0,
                "",
                0,
            );
            return (Next::Stop, Vec::new());
        }
        if state.is_read_only(conn.member) {
            if connect.read_only != Some(true) {
                // The client must try another member.
                conn.queue(Out::End(End::Fin));
                return (Next::Stop, Vec::new());
            }
        } else if state.is_alone(conn.member) {
            return (Next::Stuck, Vec::new());
        }
        let verdict = state.plan.judge_reply(&asked(conn, inbound));
        let mut cells = Vec::new();
        let greeting = match verdict.fail {
            Some((_, cell)) => {
                cells.push(cell);
                None
            }
            None => {
                let greeting = state.connect(conn, connect);
                if let Some(greeting) = &greeting {
                    state.record(
                        LogKind::Applied,
                        number,
                        conn.session(),
                        Op::Connect,
                        0,
                        "",
                        greeting.error(),
                    );
                }
                greeting
            }
        };
        if let Some((delay, cell)) = verdict.delay {
            conn.queue(Out::Due(Instant::now() + delay));
            cells.push(cell);
        }
        for cell in verdict.hold {
            conn.queue(Out::Held(Arc::clone(&cell)));
            cells.push(cell);
        }
        if let Some((loss, cell)) = verdict.lose {
            conn.lose(loss);
            cells.push(cell);
            return (Next::Stop, cells);
        }
        let Some(greeting) = greeting else {
            conn.queue(Out::End(End::Fin));
            return (Next::Stop, cells);
        };
        let session = conn.session();
        let replied = Replied {
            request: number,
            session,
            op: Op::Connect,
            opcode: 0,
            path: String::new(),
            error: 0,
        };
        let next = match greeting {
            Greeting::Accepted(frame) => {
                conn.push(frame, Some(replied));
                conn.greeted.store(true, Ordering::Release);
                conn.moved.raise();
                Next::GoOn
            }
            Greeting::Refused(frame) => {
                conn.push(frame, Some(replied));
                conn.queue(Out::End(End::Fin));
                Next::Stop
            }
            Greeting::Failed(frame) => {
                conn.push(frame, Some(replied));
                Next::Stop
            }
        };
        (next, cells)
    });
    for cell in cells {
        cell.hit(Hit {
            session: conn.session(),
            op: Op::Connect,
            path: String::new(),
        });
    }
    next
}

/// Applies a request and queues its reply.
fn answer(conn: &Conn, shared: &Shared, ask: &Ask, inbound: &Inbound) -> Next {
    let (next, cells, path) = shared.change(|state| {
        let is_open = state.connections.contains_key(&conn.id);
        if conn.has_left() || !state.is_cut(conn) && state.has_moved(conn) {
            let is_served = is_open && state.is_served_there(conn, ask);
            if conn.has_left() || !is_served {
                discard(state, conn, inbound);
                if is_open {
                    state.close_moved(conn);
                }
                return (Next::Stop, Vec::new(), String::new());
            }
        }
        if !is_open && ask.body.as_ref().is_ok_and(Request::is_read) {
            // No client would get the reply.
            discard(state, conn, inbound);
            return (Next::GoOn, Vec::new(), String::new());
        }
        let session = conn.session();
        if state.is_cut(conn) && !state.answers_alone(conn, ask) {
            return (Next::Stuck, Vec::new(), String::new());
        }
        let verdict = state.plan.judge_reply(&asked(conn, inbound));
        let fail = verdict.fail.as_ref().map(|(code, _)| *code);
        let answer = if state.is_cut(conn) {
            state.submit_isolated(conn, ask, fail)
        } else {
            state.submit(conn, ask, fail)
        };
        let Ask {
            number,
            xid,
            op,
            opcode,
            ..
        } = *ask;
        *lock(&conn.last) = Some((opcode, xid, state.zxid));
        state.record(
            LogKind::Applied,
            number,
            session,
            op,
            opcode,
            &answer.path,
            answer.error,
        );
        let mut cells: Vec<Arc<Cell>> = verdict.fail.into_iter().map(|(_, cell)| cell).collect();
        if let Some((delay, cell)) = verdict.delay {
            conn.queue(Out::Due(Instant::now() + delay));
            cells.push(cell);
        }
        for cell in verdict.hold {
            conn.queue(Out::Held(Arc::clone(&cell)));
            cells.push(cell);
        }
        if let Some((loss, cell)) = verdict.lose {
            conn.lose(loss);
            cells.push(cell);
            return (Next::Stop, cells, answer.path);
        }
        let (path, error) = (answer.path.clone(), answer.error);
        if let Some(frame) = answer.frame {
            let replied = Replied {
                request: number,
                session,
                op,
                opcode,
                path,
                error,
            };
            state.send(conn, frame, Some(replied));
        }
        let next = match (
            answer.close,
            shared.races && matches!((op, error), (Op::CloseSession, 0) | (_, -112)),
        ) {
            (true, true) => Next::Closed,
            (true, false) => {
                conn.queue(Out::End(End::Fin));
                Next::Stop
            }
            (false, _) => Next::GoOn,
        };
        (next, cells, answer.path)
    });
    for cell in cells {
        cell.hit(hit(conn, inbound, Some(&path)));
    }
    next
}
