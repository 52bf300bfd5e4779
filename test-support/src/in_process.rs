//! Helpers for tests of this library's locks on a server in the same process: they set up both
//! ends, and define what "queued" and "clean" mean.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(
    clippy::missing_panics_doc,
    reason = "all of them panic where the test has failed"
)]

use std::fmt::Debug;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use zookeeper_recipes::{
    AcquireError, Client, ClientBuilder, ConnectError, ErrorKind, InterProcessFairLock,
    InterProcessLock, InterProcessMutex, LockGuard, Lost, LostReason, NodePath, QueuedLock,
    ReleaseError, RetryPolicy, Token, TryLockError,
};
use zookeeper_test_server::{Fault, Gate, LogEntry, LogKind, Loss, Match, Op, Server, View};

use crate::wait::{PATIENCE, SOON, within};

/// The lock's directory in these tests.
pub const DIRECTORY: &str = "/locks/sku-42";

/// A session timeout so long that no heartbeat, which is sent after a sixth of it, is due during a
/// test.
pub const HOUR: Duration = Duration::from_secs(3600);

/// The result of an acquire.
pub type Acquired<G = LockGuard> = Result<G, AcquireError>;

/// Starts an empty server, which grants [calm] clients their session timeout.
#[must_use]
pub fn start_empty() -> Server {
    Server::builder().max_session_timeout(HOUR).start().unwrap()
}

/// Starts a server like [`start_empty`], on which the lock's directory exists.
#[must_use]
pub fn start() -> Server {
    let server = start_empty();
    server.create(DIRECTORY, "").unwrap();
    server
}

/// Starts a server like [`start`], which grants session timeouts from 200 ms to 2 s.
#[must_use]
pub fn start_impatient() -> Server {
    let server = Server::builder()
        .tick(Duration::from_millis(100))
        .start()
        .unwrap();
    server.create(DIRECTORY, "").unwrap();
    server
}

/// Returns a retry policy with many repetitions and short pauses, for tests in which the lock must
/// be granted in the end.
pub fn eager() -> RetryPolicy {
    RetryPolicy::n_times(100_000, Duration::from_millis(5))
}

/// Returns a client with a separate session, as another process would have it; it retries
/// [eagerly](eager).
pub async fn connect(server: &Server) -> Client {
    connect_with(server, eager()).await
}

/// Connects a client like [`connect`], with another retry policy.
pub async fn connect_with(server: &Server, policy: RetryPolicy) -> Client {
    connect_as(Client::builder().retry_policy(policy), server).await
}

/// Connects a client like [`connect`], with another session timeout T: the client sends a heartbeat
/// every T/6, its session lease lasts 2T/3, and it gives up a connection that is silent for T/8,
/// but for at least half a second.
pub async fn connect_for(server: &Server, session_timeout: Duration) -> Client {
    let builder = Client::builder()
        .session_timeout(session_timeout)
        .connect_timeout(SOON);
    connect_as(builder.retry_policy(eager()), server).await
}

/// Connects a client that sends only what the test requests: no heartbeat is due while a test
/// lasts. The client keeps a silent connection, such as one whose answer is held back, for almost
/// twenty seconds, while other clients give it up within two. The server must have been started by
/// [`start_empty`] or a function that uses it.
pub async fn calm(server: &Server) -> Client {
    calm_with(server, eager()).await
}

/// Connects a client like [`calm`], with another retry policy.
pub async fn calm_with(server: &Server, policy: RetryPolicy) -> Client {
    let builder = Client::builder()
        .session_timeout(HOUR)
        .connect_timeout(SOON);
    connect_as(builder.retry_policy(policy), server).await
}

/// Connects a client with the options of a builder, which sets the retry policy too. If a busy
/// machine needs longer than the connect timeout, the connect is repeated.
pub async fn connect_as(builder: ClientBuilder, server: &Server) -> Client {
    let connected = async {
        loop {
            match builder.clone().connect(&server.connect_string()).await {
                Err(ConnectError::TimedOut { .. }) => {}
                connected => return connected.unwrap(),
            }
        }
    };
    within("the session", connected).await
}

/// Returns a server with `N` clients: `let (server, [client, other]) = with_clients(start(),
/// calm).await;`
pub async fn with_clients<const N: usize>(
    server: Server,
    connect: impl AsyncFn(&Server) -> Client,
) -> (Server, [Client; N]) {
    let mut clients = Vec::with_capacity(N);
    for _ in 0..N {
        clients.push(connect(&server).await);
    }
    (server, clients.try_into().expect("as many as asked for"))
}

/// Holds the reply to a request if the server is to carry the request out, or else the request
/// itself.
pub fn hold_back(server: &Server, request: Match, carried_out: bool) -> Gate {
    if carried_out {
        server.hold_reply(request)
    } else {
        server.hold_request(request)
    }
}

/// Loses the reply to a request if the server is to carry the request out, or else the request
/// itself, in both cases with the connection.
pub fn lose(server: &Server, request: Match, carried_out: bool, loss: Loss) -> Fault {
    if carried_out {
        server.drop_reply(request, loss)
    } else {
        server.drop_request(request, loss)
    }
}

/// Returns the mutex at [`DIRECTORY`].
#[must_use]
pub fn mutex(client: &Client) -> InterProcessMutex {
    InterProcessMutex::new(client, DIRECTORY).unwrap()
}

/// Returns a place in the queue whose attempt already waits for its predecessor.
pub async fn place(lock: &InterProcessFairLock) -> QueuedLock {
    let mut place = within("the place", lock.enqueue()).await.unwrap();
    // This query is sent after the attempt's own list, and answered after it.
    within("the position", place.position()).await.unwrap();
    place
}

/// Returns the fair lock at [`DIRECTORY`].
#[must_use]
pub fn fair(client: &Client) -> InterProcessFairLock {
    InterProcessFairLock::new(client, DIRECTORY).unwrap()
}

/// Acquires the mutex at [`DIRECTORY`], and returns its guard.
#[track_caller]
pub fn hold(client: &Client) -> impl Future<Output = LockGuard> + use<> {
    // The attempt starts here, so that the lock names the caller's line as that of its holder.
    let attempt: Pin<Box<dyn Future<Output = Acquired> + Send>> = Box::pin(mutex(client).lock());
    let granted = within("the grant", attempt);
    async move { granted.await.unwrap() }
}

/// Returns the id of the client's session.
#[must_use]
pub fn session(client: &Client) -> i64 {
    client.session_id().expect("a session")
}

/// Returns the numbers of a token of either kind. The numbers of both kinds are in one order.
pub fn numbers(token: impl Into<Token>) -> (i64, u64) {
    let token = token.into();
    (token.zxid(), token.counter())
}

/// Waits until the condition holds for the server.
#[track_caller]
pub fn until<C: FnMut(View<'_>) -> bool + Send + 'static>(
    server: &Server,
    what: &str,
    condition: C,
) -> impl Future<Output = ()> + use<C> {
    let (caller, what) = (std::panic::Location::caller(), what.to_owned());
    let shown = server.wait_until(condition, PATIENCE);
    async move {
        assert!(shown.await, "{caller}: expected {what} within {PATIENCE:?}");
    }
}

/// Returns the guard of an attempt that runs as a task.
pub async fn granted<G: Debug>(attempt: JoinHandle<Acquired<G>>) -> G {
    within("the grant", attempt).await.unwrap().unwrap()
}

/// Returns the error of an acquire that times out after the servers have shown the contenders
/// ahead. A busy machine may need longer for that, so if the error means that an answer is missing,
/// the acquire is repeated with twice the timeout.
pub async fn timed_out<G: Debug>(acquire: impl AsyncFn(Duration) -> Acquired<G>) -> AcquireError {
    let mut timeout = Duration::from_millis(30);
    loop {
        match within("the end", acquire(timeout)).await.unwrap_err() {
            error if error.kind() == Some(ErrorKind::Connection) && timeout < SOON => timeout *= 2,
            error => return error,
        }
    }
}

/// Calls a try until it returns a guard. A try waits for a tenth of a second behind a node that is
/// about to be deleted. If a busy machine needs longer for the deletion, the try is repeated. A try
/// must not give up earlier.
pub async fn tried<G, F>(attempt: impl Fn() -> F + Send + Sync) -> G
where
    F: Future<Output = Result<G, TryLockError>> + Send,
{
    let again = async {
        loop {
            let began = Instant::now();
            match attempt().await {
                Ok(guard) => return guard,
                Err(TryLockError::WouldBlock { .. })
                    if began.elapsed() >= Duration::from_millis(100) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    within("a try that has time enough", again).await
}

/// Returns the children of a lock's directory, as paths, in the order of their numbers.
#[must_use]
pub fn queue_at(server: &Server, directory: &str) -> Vec<String> {
    let mut names = server.children(directory);
    names.sort_by_key(|name| name.rsplit_once('-').map(|(_, number)| number.to_owned()));
    names
        .into_iter()
        .map(|name| format!("{directory}/{name}"))
        .collect()
}

/// Returns the children of [`DIRECTORY`] like [`queue_at`].
#[must_use]
pub fn queue(server: &Server) -> Vec<String> {
    queue_at(server, DIRECTORY)
}

/// A contender that waits.
#[derive(Debug)]
pub struct Waiter {
    /// The acquire, as a task.
    pub attempt: JoinHandle<Acquired>,
    /// The path of its node.
    pub node: NodePath,
}

/// Puts a client into the queue, and waits until it watches the node before its own. Another
/// contender must be in the queue.
pub async fn enqueue(server: &Server, client: &Client) -> Waiter {
    let before = queue(server);
    let last = before.last().expect("a contender to wait for").clone();
    let attempt = tokio::spawn(mutex(client).lock());
    let id = session(client);
    until(server, "the waiter's watch", move |view| {
        view.watches_on(&last).contains(&id)
    })
    .await;
    let node = queue(server)
        .into_iter()
        .find(|node| !before.contains(node))
        .expect("a new node");
    Waiter {
        attempt,
        node: node.parse().expect("a lock node"),
    }
}

/// Waits until a handle reports that its lock is no longer held. Without the guard, no event
/// reports a loss by the clock alone.
pub async fn until_lost(lock: &impl InterProcessLock) {
    let lost = async {
        while lock.is_acquired_in_this_process() {
            // Only a call notices the change.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the loss", lost).await;
}

/// Lets time pass in which the condition must not hold for the server. Use this for what only time
/// brings about, such as a heartbeat. If an event can show that nothing has happened, wait for that
/// event instead ([`Barrier`]).
#[track_caller]
pub fn never_for(
    time: Duration,
    server: &Server,
    what: &str,
    condition: impl FnMut(View<'_>) -> bool + Send + 'static,
) -> impl Future<Output = ()> {
    let (caller, shown) = (
        std::panic::Location::caller(),
        server.wait_until(condition, time),
    );
    async move { assert!(!shown.await, "{caller}: {what}") }
}

/// Shows that a client has done all that it can do by itself: when [`pass`](Self::pass) returns,
/// the client has done everything that needs no further answer of a server.
///
/// The barrier holds a fair lock for which only one caller may wait, waits for the lock, and asks
/// for it again. The client itself refuses the last call, on the session's thread, which does one
/// thing after the other. No server is asked.
#[derive(Debug)]
pub struct Barrier {
    lock: InterProcessFairLock,
    _held: LockGuard,
    _waiting: QueuedLock,
}

impl Barrier {
    /// Returns a barrier for the work of the client from now on. It uses the lock at `/barrier`,
    /// which must be free.
    pub async fn new(client: &Client) -> Self {
        Self::at(client, "/barrier").await
    }

    /// Returns a barrier that uses the lock at another path.
    pub async fn at(client: &Client, path: &str) -> Self {
        let lock = InterProcessFairLock::builder(client, path)
            .max_waiters(1)
            .build()
            .unwrap();
        let held = within("the barrier's lock", lock.lock()).await.unwrap();
        let waiting = within("the barrier's waiter", lock.enqueue())
            .await
            .unwrap();
        Self {
            lock,
            _held: held,
            _waiting: waiting,
        }
    }

    /// Waits until the client has done all that it can do by itself.
    pub async fn pass(&self) {
        // Each task may wake the next, so a single answer is not enough.
        for _ in 0..20 {
            let refused = within("the client's own answer", self.lock.lock())
                .await
                .unwrap_err();
            assert!(
                matches!(refused, AcquireError::TooManyWaiters { .. }),
                "{refused}"
            );
        }
    }
}

/// Waits until the only watch on a node is this client's.
#[track_caller]
pub fn watches(server: &Server, client: &Client, node: &str) -> impl Future<Output = ()> + use<> {
    let (id, node) = (session(client), node.to_owned());
    until(server, "the watch", move |view| {
        view.watches_on(&node) == [id]
    })
}

/// Waits for all that the clients have under way, and for the end of all nodes and watches of the
/// lock at [`DIRECTORY`], which must be free then.
#[track_caller]
pub fn clean(server: &Server, clients: &[&Client]) -> impl Future<Output = ()> {
    let what = format!("the end of {}", std::panic::Location::caller());
    async move {
        for client in clients {
            within(&what, client.flush(SOON)).await.unwrap();
        }
        assert_clean(server, &what).await;
    }
}

/// Waits until no node is left below the lock and no watch anywhere; then the lock must be free.
pub async fn assert_clean(server: &Server, what: &str) {
    until(server, &format!("an empty directory: {what}"), |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
    // A handle that was granted the lock again and again watches the data of its directory, until
    // it has not needed that for some heartbeats. The write uses the watch up. The directory may be
    // missing.
    let _ = server.set_data(DIRECTORY, "");
    until(server, &format!("the end of all watches: {what}"), |view| {
        view.watches() == 0
    })
    .await;
    let client = connect(server).await;
    let guard = within(what, mutex(&client).lock()).await.unwrap();
    guard.release().await.unwrap();
    client.close().await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0], "{what}");
}

/// Returns the server's log of one operation in one session, of one kind.
#[must_use]
pub fn logged(server: &Server, session: i64, op: Op, kind: LogKind) -> Vec<LogEntry> {
    let mut log = server.log();
    log.retain(|entry| entry.session == session && entry.op == op && entry.kind == kind);
    log
}

/// Asserts that the lock at [`DIRECTORY`] was lost because its lease had ended.
#[track_caller]
pub fn assert_over(lost: &Lost) {
    assert_eq!(
        (lost.reason(), lost.path()),
        (LostReason::LeaseOver, DIRECTORY)
    );
}

/// Asserts that a release came after the end of the lease.
#[track_caller]
pub fn assert_released_too_late(released: Result<(), ReleaseError>) {
    match released {
        Err(ReleaseError::Lost(lost)) => assert_over(&lost),
        other => panic!("{other:?}"),
    }
}

/// Returns the paths that a client's session has asked to delete.
#[must_use]
pub fn deletions(server: &Server, client: &Client) -> Vec<String> {
    let arrived = logged(server, session(client), Op::Delete, LogKind::Arrived);
    arrived.into_iter().map(|entry| entry.path).collect()
}

/// Waits until no node is left below the lock at [`DIRECTORY`].
#[track_caller]
pub fn until_free(server: &Server) -> impl Future<Output = ()> + use<> {
    until(server, "an empty directory", |view| {
        view.children(DIRECTORY).is_empty()
    })
}

/// Returns the largest number of nodes that were below the lock at the same time, by the log.
#[must_use]
pub fn most_nodes(server: &Server) -> usize {
    let below = format!("{DIRECTORY}/");
    let (mut nodes, mut most) = (0_usize, 0);
    for entry in server.log() {
        if entry.kind == LogKind::Applied && entry.error == 0 && entry.path.starts_with(&below) {
            match entry.op {
                Op::Create => nodes += 1,
                Op::Delete => nodes -= 1,
                _ => {}
            }
            most = most.max(nodes);
        }
    }
    most
}

/// The read-write lock at [`DIRECTORY`], its guards where the lock is free, and their downgrade.
pub mod read_write {
    use tokio::task::JoinHandle;
    use zookeeper_recipes::{
        Client, ConversionError, InterProcessReadWriteLock, ReadGuard, WriteGuard,
    };
    use zookeeper_test_server::{Gate, Match, Server};

    use super::{DIRECTORY, hold_back, session};
    use crate::wait::within;

    /// Returns the lock.
    #[must_use]
    pub fn lock(client: &Client) -> InterProcessReadWriteLock {
        InterProcessReadWriteLock::new(client, DIRECTORY).unwrap()
    }

    /// Returns a granted read lock.
    pub async fn read(client: &Client) -> ReadGuard {
        within("a read lock", lock(client).read_lock().lock())
            .await
            .unwrap()
    }

    /// Returns the granted write lock.
    pub async fn write(client: &Client) -> WriteGuard {
        within("the write lock", lock(client).write_lock().lock())
            .await
            .unwrap()
    }

    /// Returns a downgrade whose first request is held: its reply if the server is to carry it out,
    /// or the request itself.
    pub async fn downgrade(
        server: &Server,
        client: &Client,
        carried_out: bool,
    ) -> (
        Gate,
        JoinHandle<Result<ReadGuard, ConversionError<WriteGuard>>>,
    ) {
        let writer = write(client).await;
        let first = Match::any()
            .session(session(client))
            .path_contains("__READ__");
        let gate = hold_back(server, first, carried_out);
        let task = tokio::spawn(writer.downgrade());
        within("the downgrade", gate.wait_hit()).await;
        (gate, task)
    }
}
