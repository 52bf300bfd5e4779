//! One ZooKeeper session.
//!
//! A session that has ended cannot be resumed: the servers delete its nodes, and the locks held by
//! these nodes are lost. So everything that belongs to a session is kept in its [`Session`], and
//! nothing of an earlier session is used in a later one. CURATOR-498 and CURATOR-604 show what
//! happens otherwise (docs/protocol.md#one-session).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client as zk;

use crate::error::{Cause, LostReason};
use crate::protocol::hold::HoldEvent;
use crate::protocol::lease::{Lease, LeaseMargin, LeaseState};
use crate::protocol::moment::Moment;
use crate::protocol::numbers::SessionNumber;
use crate::session::contents::creates::DEFAULT_MAX_BYTES;
use crate::session::contents::holds::{SessionLock, SessionLocks};
use crate::session::contents::limits::{WatchLimit, Windows};
use crate::session::contents::nodes::Nodes;
use crate::session::contents::unknown_creates::UnknownCreates;
use crate::session::live::session_lease::{self, Leased, SessionLease};
use crate::session::reports::log;
use crate::session::threads::BoxFuture;
use crate::session::threads::clock;
use crate::session::threads::mutex::Mutex;

/// One session, from its beginning to its end. After the end, no lock is held or waited for in the
/// session, and no request can be sent in it.
pub(crate) struct Session {
    /// The number of the session within its client, from 1.
    pub(crate) number: SessionNumber,
    pub(crate) session_id: i64,
    /// `None` once the session has ended, so that a guard that is kept for a long time does not
    /// keep the connection of a dead session.
    handle: Mutex<Option<zk::Client>>,
    ended: watch::Sender<Option<LostReason>>,
    /// The session timeout that the servers granted. Its source is the handle, which is dropped at
    /// the end of the session. The lease has copies.
    timeout: Duration,
    pub(crate) lease: SessionLease,
    pub(crate) holds: SessionLocks,
    pub(crate) nodes: Nodes,
    pub(crate) unknown_creates: UnknownCreates,
    /// Attempts, conversions and all other work that may have requests under way in the session
    /// subscribe to this channel. While there are subscribers the session is
    /// [wanted](Self::is_wanted), and a client that is closed because its credentials were refused
    /// waits for them. `close` waits for the servers' answer: by then the subscribers have ended,
    /// or else `close` ends their tasks. The callers of such tasks get [`Core::why_ended`], or an
    /// error that says that the outcome of a request is unknown.
    ///
    /// [`Core::why_ended`]: crate::session::core::Core::why_ended
    pub(crate) running: watch::Sender<()>,
    pub(crate) watches: Arc<WatchLimit>,
    pub(crate) windows: Windows,
    /// Whether the servers are assumed to support a read of several nodes.
    reads_together: AtomicBool,
    /// Whether the end of the session was requested, by closing the client.
    end_expected: AtomicBool,
    /// Whether the servers have expired the session.
    expired_by_servers: AtomicBool,
    /// Whether a spare connection has renewed the lease since the client library's last connection.
    kept_by_spare: AtomicBool,
}

/// The options of a client for each of its sessions.
#[derive(Clone, Copy)]
pub(crate) struct SessionOptions {
    pub(crate) margin: LeaseMargin,
    /// The limit on the size of the paths of the session's nodes (docs/protocol.md#session-nodes).
    pub(crate) max_node_bytes: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            margin: LeaseMargin::default(),
            max_node_bytes: DEFAULT_MAX_BYTES,
        }
    }
}

/// The name of the log event of a loss.
const LOST: &str = "lock.lost";

/// The session has ended: no request can be sent in it.
#[derive(Clone, Copy)]
pub(crate) struct SessionGone;

/// Waits until the connected server has answered a read. A refusal is an answer, too
/// (docs/protocol.md#renewal).
pub(crate) async fn answers(handle: &zk::Client) -> Result<(), zk::Error> {
    match handle.check_stat("/").await {
        Ok(_) | Err(zk::Error::NoAuth) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns whether the servers have expired a session that the client library reports as expired.
/// Otherwise, the client library gave the session up by its own clock: 7/5 of the timeout after a
/// moment that is later than the last renewal.
pub(crate) fn expired_by_servers(last_renewal: Option<Moment>, timeout: Duration) -> bool {
    // The client library's clock starts when the answer to the renewal arrives, or later. So up to
    // 7/5 of the timeout after the renewal was sent, only the servers can have expired the session;
    // 5/4 leaves room for two clocks that differ.
    last_renewal.is_some_and(|renewal| clock::now().since(renewal) < timeout / 4 * 5)
}

impl Session {
    pub(crate) fn new(
        number: SessionNumber,
        handle: zk::Client,
        options: SessionOptions,
    ) -> Arc<Self> {
        let SessionOptions {
            margin,
            max_node_bytes,
        } = options;
        let (session_id, timeout) = (handle.session_id().0, handle.session_timeout());
        Arc::new(Self {
            number,
            session_id,
            handle: Mutex::new(Some(handle)),
            ended: watch::Sender::new(None),
            timeout,
            lease: SessionLease::new(Lease::new(timeout, margin), timeout),
            holds: SessionLocks::default(),
            nodes: Nodes::new(number, max_node_bytes),
            unknown_creates: UnknownCreates::default(),
            running: watch::Sender::new(()),
            watches: Arc::default(),
            windows: Windows::default(),
            reads_together: AtomicBool::new(true),
            end_expected: AtomicBool::new(false),
            expired_by_servers: AtomicBool::new(false),
            kept_by_spare: AtomicBool::new(false),
        })
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Runs one piece of I/O, once: `work` sends requests in the session and waits for their
    /// answers. `work` is called at once, and the future that it returns is dropped when the
    /// session ends. Await the returned future at once, because it has the handle.
    ///
    /// The client library closes the session when the last clone of the handle is dropped, so a
    /// clone that is kept during a pause, or a wait for a watch, would delay `close` and keep the
    /// nodes (docs/protocol.md#lent-session). So keep pauses and waits for watches outside `work`,
    /// and requests that are sent together inside.
    pub(crate) fn request<'a, F: Future<Output: Send> + Send + 'a>(
        &'a self,
        work: impl FnOnce(zk::Client) -> F,
    ) -> impl Future<Output = Result<F::Output, SessionGone>> + Send + 'a {
        // The request is boxed, so that a task that waits for something else reserves no memory for
        // it, and so that the wait is compiled once for each type of answer instead of each
        // request. (Checking that each caller is `Send`, with everything that a request contains,
        // took a quarter of the time of the compiler's checks.)
        let work: Option<BoxFuture<'a, F::Output>> =
            self.handle().map(|handle| Box::pin(work(handle)) as _);
        self.answered(work)
    }

    /// Waits for the answers to the requests that were sent, until the session ends.
    async fn answered<T: Send>(&self, work: Option<BoxFuture<'_, T>>) -> Result<T, SessionGone> {
        self.until_ended(work.ok_or(SessionGone)?).await
    }

    /// Waits for `work`, which need not be `Send`, for as long as the session lives.
    pub(crate) async fn until_ended<F: Future>(&self, work: F) -> Result<F::Output, SessionGone> {
        tokio::select! {
            // An answer that has arrived counts, even if the session has ended since.
            biased;
            answer = work => Ok(answer),
            _ = self.ended() => Err(SessionGone),
        }
    }

    /// Returns a watcher of the state that the client library reports; `None` if the session has
    /// ended. The current state counts as seen.
    pub(crate) fn states(&self) -> Option<zk::StateWatcher> {
        self.handle().map(|handle| handle.state_watcher())
    }

    /// Returns the client library's handle; `None` if the session has ended. Requests get it from
    /// [`request`](Self::request): another clone would keep the session open.
    pub(crate) fn handle(&self) -> Option<zk::Client> {
        self.handle.lock().clone()
    }

    /// Returns how the session ended; `None` if it has not.
    pub(crate) fn end_reason(&self) -> Option<LostReason> {
        *self.ended.borrow()
    }

    /// Waits until the session ends. The future does not borrow the session.
    pub(crate) fn ended(&self) -> impl Future<Output = LostReason> + Send + use<> {
        let mut ended = self.ended.subscribe();
        async move {
            match ended.wait_for(Option::is_some).await {
                Ok(reason) => (*reason).unwrap_or(LostReason::Closed),
                // The session has been dropped, so no lock is held in it.
                Err(_) => LostReason::Closed,
            }
        }
    }

    /// Ends the session: notifies guards, waiters and requests, and drops the handle, which closes
    /// the session on the servers. Requests under way are abandoned. If this is called again, the
    /// first reason stays.
    pub(crate) fn end(&self, reason: LostReason) {
        // The count is frozen before any task is notified, because the tasks give up their creates.
        self.nodes.creates.freeze();
        if self.end_reason().is_none() {
            // The locks are notified first: a task that is notified of the end must find no guard
            // that still reports `Held`.
            for lock in self.holds.active() {
                lock.on(HoldEvent::Ended(reason));
            }
        }
        let first = self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(reason);
            }
            first
        });
        if first {
            // A lock that was registered since the loop above is notified here; one that is
            // registered from now on sees the end itself (`Held::register`).
            for node in self.holds.all() {
                node.lock.on(HoldEvent::Ended(reason));
            }
            log::count!(session_ended(reason.label()));
            let (session, session_id) = (self.number.get(), format!("{:#x}", self.session_id));
            log::info!([name: "session.ended"] session, session_id, %reason, "session over");
        }
        // The handle is dropped last, because the drop of its last clone closes the session. The
        // drop runs code of the client library, so the mutex is unlocked first.
        let handle = self.handle.lock().take();
        drop(handle);
    }

    /// Ends the session because the client library reports that it has expired.
    pub(crate) fn expired(&self) {
        if expired_by_servers(self.last_own_renewal(), self.timeout()) {
            self.expired_by_servers.store(true, Ordering::Relaxed);
        }
        self.end(LostReason::SessionExpired);
    }

    /// Returns whether the servers have expired the session, and deleted its nodes; `false` if only
    /// the client has given the session up.
    pub(crate) fn is_expired_by_servers(&self) -> bool {
        self.expired_by_servers.load(Ordering::Relaxed)
    }

    /// Records that the client library has a connection of its own from here on.
    pub(crate) fn connected(&self) {
        // Renewals from here on come over that connection, so the client library's clock knows of
        // them.
        self.kept_by_spare.store(false, Ordering::Relaxed);
        self.lease.set_connected(true);
    }

    /// Records that a spare connection renews the lease from here on.
    pub(crate) fn set_kept_by_spare(&self) {
        self.kept_by_spare.store(true, Ordering::Relaxed);
    }

    /// Returns the last renewal, if it came over the client library's connection. The client
    /// library gives the session up by a clock that starts at a later moment than such a renewal.
    pub(crate) fn last_own_renewal(&self) -> Option<Moment> {
        self.lease
            .last_renewal()
            .filter(|_| !self.kept_by_spare.load(Ordering::Relaxed))
    }

    /// Returns whether this session owns a node with this Stat, which was created by this client.
    /// If not, the servers have replaced the session, and this method ends it here too
    /// (docs/protocol.md#replaced-session).
    pub(crate) fn check_owner(&self, stat: &zk::Stat) -> bool {
        // An invalid Stat names no owner: ZooKeeper 3.8.0 answers a create in a transaction with
        // one (ZOOKEEPER-4026).
        let owns = stat.is_invalid() || stat.ephemeral_owner == self.session_id;
        if !owns {
            self.end(LostReason::SessionReplaced);
        }
        owns
    }

    /// Returns whether a session that has ended here may have left nodes on the servers: nodes that
    /// are known, those of creates that were not answered, and those of creates that cleanup did
    /// not find. A flush waits for the end of such a session. Heartbeats depend on known nodes and
    /// on held locks instead.
    pub(crate) fn may_have_nodes(&self) -> bool {
        self.nodes.creates.any_may_exist() || !self.unknown_creates.is_empty()
    }

    /// Returns whether a lock that is held in the session may be granted to another caller without
    /// a request.
    pub(crate) fn is_healthy(&self) -> bool {
        self.lease.is_valid() && self.end_reason().is_none()
    }

    /// Logs that a lock was lost.
    pub(crate) fn log_loss(&self, lock: &dyn SessionLock, reason: LostReason) {
        let (path, name, session) = (lock.directory().user(), lock.node(), self.number.get());
        let node = &*name;
        if reason == LostReason::Closed && self.end_expected.load(Ordering::Relaxed) {
            log::debug!([name: LOST] path, node, session, "lock lost: the client was closed while it was held");
        } else {
            log::warn!([name: LOST] path, node, session, %reason, "lock lost");
        }
    }

    /// Records that the end of the session is requested, so that the loss of its locks is not
    /// logged as a warning.
    pub(crate) fn expect_end(&self) {
        self.end_expected.store(true, Ordering::Relaxed);
    }

    /// Registers a lock under its current state, or forgets it. A lock calls this after each change
    /// of its state.
    pub(crate) fn update_registration<L: SessionLock + 'static>(self: &Arc<Self>, lock: &Arc<L>) {
        let lock: Arc<dyn SessionLock> = Arc::<L>::clone(lock);
        let (is_first, lease_end) = self.holds.update(&lock);
        if is_first {
            session_lease::arm(&(Arc::<Self>::clone(self) as Arc<dyn Leased>));
        }
        if let Some(end) = lease_end {
            session_lease::wake_by(end);
        }
    }

    /// Notifies the holders, and the tasks that wait for a change, if the passing of time has
    /// changed the lease or ended hold leases. Returns the time until the next change if no renewal
    /// comes.
    pub(crate) fn check_clock(&self) -> Duration {
        let now = clock::now();
        // Hold leases come first: the node of a lock whose hold lease has ended is deleted at once,
        // and is not kept as after the end of the session lease (docs/protocol.md#lease-over).
        for lock in self.holds.hold_leases_over(now) {
            lock.on(HoldEvent::LeaseOver { now });
        }
        self.lease.check_valid();
        if self.lease.state() == LeaseState::Expired {
            for lock in self.holds.active() {
                // The lease is checked again for each lock, after its registration: a lock that was
                // granted by a renewal of this very moment is not lost.
                if self.lease.state() == LeaseState::Expired {
                    lock.on(HoldEvent::LeaseExpired {
                        until: self.lease.kept_until(),
                    });
                }
            }
        }
        // The events above may have taken a while, so the clock is read again.
        let next = self.lease.until_next_state();
        self.holds
            .next_hold_lease_end()
            .map_or(next, |end| next.min(end.since(clock::now())))
    }

    /// Releases the nodes of lost locks that need not be kept any longer. Returns the time until
    /// the next node is due.
    pub(crate) fn release_overdue(&self) -> Option<Duration> {
        let (over, next) = self.holds.overdue(clock::now());
        for lock in over {
            lock.on(HoldEvent::GraceOver);
        }
        next
    }

    /// Reads the children of several nodes by one request, which is sent when this is called.
    /// Returns `None` if the servers are assumed not to support that read.
    ///
    /// ZooKeeper supports this read since 3.6. An older server, or another product, may refuse the
    /// request or close the connection, so after any failure the request is not sent again in this
    /// session.
    pub(crate) fn read_together<'a>(
        &'a self,
        handle: &'a zk::Client,
        mut paths: impl ExactSizeIterator<Item = &'a str>,
    ) -> Option<impl Future<Output = Result<Vec<zk::MultiReadResult>, zk::Error>> + Send + 'a> {
        if !self.reads_together.load(Ordering::Relaxed) {
            return None;
        }
        let (count, mut reader) = (paths.len(), handle.new_multi_reader());
        // An error is not expected: the paths have been checked.
        let put = paths.try_for_each(|path| reader.add_get_children(path));
        let read = put.map(|()| reader.commit());
        Some(async move {
            let answer = match read {
                Ok(read) => read.await,
                Err(error) => Err(error),
            };
            let other = || zk::Error::UnexpectedError("an answer of another length".to_owned());
            let answer = answer.and_then(|results| {
                if results.len() == count {
                    Ok(results)
                } else {
                    Err(other())
                }
            });
            if answer.is_err() {
                self.reads_together.store(false, Ordering::Relaxed);
            }
            answer
        })
    }

    /// Returns whether writes are expected in the session: heartbeats, while nodes are known, or
    /// those of work that is [`running`](Self::running).
    pub(crate) fn is_wanted(&self) -> bool {
        *self.nodes.count().borrow() > 0 || self.running.receiver_count() > 0
    }
}

impl Leased for Session {
    fn notify_holders(&self) -> Duration {
        self.check_clock()
    }

    fn is_watched(&self) -> bool {
        // The end of the session has notified its locks, and a lock that is registered later
        // notices the end itself. So the session is not watched, although its guards may be kept
        // for a long time.
        self.holds.any() && self.end_reason().is_none()
    }
}

/// Returns an error of the client library as the source of an error of this crate.
pub(crate) fn cause(error: zk::Error) -> Cause {
    Arc::new(error)
}
