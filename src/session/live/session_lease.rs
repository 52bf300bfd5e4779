//! The lease of one session: when it was last renewed, whether it is valid, and the tasks that wait
//! for its validity to change. This module also has the thread that notifies holders that their
//! lease has expired or ended.
//!
//! A holder that asks its guard gets its answer from the clock. A holder that waits for
//! [`lost`](crate::LockGuard::lost), or runs a future by
//! [`while_held`](crate::LockGuard::while_held), must be woken, and the session's thread may be
//! busy at that time, with thousands of nodes or in a waker that blocks. So a separate thread of
//! the process does this. That thread sends no request, logs through the journal, and locks no
//! mutex that another thread holds while it reports or waits. The thread sleeps until a lease may
//! have expired, compares the clock with the last renewal, and wakes the waiting tasks
//! (docs/protocol.md#telling-a-loss). A waker that blocks would block this thread too; no executor
//! has such wakers.
//!
//! A renewal only moves the end of a lease further away, so a renewal does not wake the thread,
//! which sees the new end when it next wakes.
//!
//! The thread also notifies holders when the lease that their caller has set ends
//! (docs/protocol.md#lease-over): [`wake_by`]. The node of such a lock is passed to cleanup, which
//! deletes it on the session's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{io, ptr};

use tokio::sync::{Notify, watch};

use crate::protocol::lease::{Lease, LeaseState};
use crate::protocol::moment::Moment;
use crate::session::threads::background::OfProcess;
use crate::session::threads::clock::Latest;
use crate::session::threads::mutex::Mutex;
use crate::session::threads::{background, clock};

pub(crate) struct SessionLease {
    pub(crate) rule: Lease,
    /// The same value as in the session, for [`kept_until`](Self::kept_until). The `rule` has
    /// another copy, which is private.
    timeout: Duration,
    /// When the last write was sent that renewed the lease.
    last_renewal: Latest,
    connected: AtomicBool,
    /// Whether the lease was valid at the last notification. Waiting tasks are woken when this
    /// changes, not by each renewal.
    validity: watch::Sender<bool>,
}

impl SessionLease {
    pub(crate) fn new(rule: Lease, timeout: Duration) -> Self {
        Self {
            rule,
            timeout,
            last_renewal: Latest::default(),
            connected: AtomicBool::new(true),
            // The lease is not valid before the first renewal.
            validity: watch::Sender::new(false),
        }
    }

    /// Renews the lease: a write that was sent at `sent` has been answered.
    pub(crate) fn renewed(&self, sent: Moment) {
        self.last_renewal.raise(sent);
        self.check_valid();
    }

    /// Returns when the last write that was answered was sent.
    pub(crate) fn last_renewal(&self) -> Option<Moment> {
        self.last_renewal.get()
    }

    /// Returns when the last write that was answered was sent, and the current time.
    pub(crate) fn last_renewal_and_now(&self) -> (Option<Moment>, Moment) {
        // The clock is read first, so that a renewal that comes between the two reads is not taken
        // for an old one.
        let now = clock::now();
        (self.last_renewal(), now)
    }

    pub(crate) fn state(&self) -> LeaseState {
        let (last_renewal, now) = self.last_renewal_and_now();
        self.rule.state(last_renewal, now)
    }

    /// Returns how long until the state gets worse without a renewal.
    pub(crate) fn until_next_state(&self) -> Duration {
        let (last_renewal, now) = self.last_renewal_and_now();
        self.rule.until_next_state(last_renewal, now)
    }

    /// Returns until when the node of a lost lock is kept: T after the last renewal, when the
    /// servers may have expired the session by themselves
    /// (docs/protocol.md#lost-lock-keeps-its-node).
    pub(crate) fn kept_until(&self) -> Moment {
        self.last_renewal()
            .map_or_else(clock::now, |renewal| renewal.plus(self.timeout))
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Release);
        self.check_valid();
    }

    /// Returns whether a server is connected, and the lease is neither suspended nor expired.
    pub(crate) fn is_valid(&self) -> bool {
        self.connected.load(Ordering::Acquire) && self.state() == LeaseState::Valid
    }

    /// Returns [`is_valid`](Self::is_valid), and wakes the waiting tasks if the value has changed.
    /// The passing of time changes the value too, so this is called from time to time. Each task
    /// also calls it before it waits, so that any later change wakes the task.
    pub(crate) fn check_valid(&self) -> bool {
        let mut valid = false;
        self.validity.send_if_modified(|validity| {
            // The state is read under the lock of the channel, so that the later of two threads
            // determines the value.
            valid = self.is_valid();
            std::mem::replace(validity, valid) != valid
        });
        valid
    }

    /// Returns a receiver that changes whenever [`check_valid`](Self::check_valid) finds a change.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.validity.subscribe()
    }

    /// Waits until the lease is [valid](Self::is_valid). No lock is granted before that
    /// (docs/protocol.md#suspended).
    pub(crate) async fn until_valid(&self) {
        let mut validity = self.watch();
        while !self.check_valid() {
            // The sender lives as long as the session.
            if validity.changed().await.is_err() {
                return;
            }
        }
    }
}

/// A session whose lease the thread watches.
pub(crate) trait Leased: Send + Sync {
    /// Notifies the holders if the passing of time has changed the lease. Returns the time until
    /// the next change.
    fn notify_holders(&self) -> Duration;

    /// Returns whether there is a holder to notify.
    fn is_watched(&self) -> bool;
}

/// The longest sleep of the thread while a lock is held. The thread's timer does not count the time
/// during which the machine sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The thread's name.
const NAME: &str = "zk-lease";

static LEASES: OfProcess<Leases> = OfProcess::new();

#[derive(Default)]
struct Leases {
    armed: Mutex<Armed>,
    changed: Notify,
}

/// The leases that the thread watches.
#[derive(Default)]
struct Armed {
    /// The sessions in which locks are held. Weak, because a session ends with its last handle or
    /// guard.
    sessions: Vec<Weak<dyn Leased>>,
    /// The number of additions: of sessions, and of lease ends for which the thread may have to
    /// read the clock earlier. An addition while the thread is awake keeps it from sleeping.
    additions: u64,
    /// When the thread reads the clock next; `None` while the thread is awake.
    wakes_at: Option<Moment>,
}

/// Starts the thread, unless it is running. Each new client calls this, so that a client in a
/// forked child has the thread too.
pub(crate) fn start_thread() -> io::Result<()> {
    LEASES.start(|| {
        let leases = Arc::new(Leases::default());
        let watched = Arc::clone(&leases);
        background::start(NAME, async move { watched.run().await })?;
        Ok(leases)
    })
}

/// Watches the lease of a session from its first hold until no lock is held in it.
///
/// Only the first hold wakes the thread, because the others have the same lease, whose end the
/// thread knows. A hold that is registered after its lease has expired (because its thread was
/// paused after the grant) is notified when this thread wakes, after at most T/6 and at most
/// [`LONGEST_SLEEP`]. Its guard reads the clock and reports the loss at once.
pub(crate) fn arm(session: &Arc<dyn Leased>) {
    // The thread was started with the client.
    let Some(leases) = LEASES.get() else { return };
    let mut armed = leases.armed.lock();
    if !armed
        .sessions
        .iter()
        .any(|known| ptr::addr_eq(known.as_ptr(), Arc::as_ptr(session)))
    {
        armed.sessions.push(Arc::downgrade(session));
        armed.additions += 1;
        drop(armed);
        leases.changed.notify_one();
    }
}

/// Makes the thread read the clock no later than at this moment, because a caller has set the end
/// of a lease. The thread is woken only if it would sleep longer, so a lease of more than
/// [`LONGEST_SLEEP`] costs nothing.
pub(crate) fn wake_by(moment: Moment) {
    let Some(leases) = LEASES.get() else { return };
    let mut armed = leases.armed.lock();
    // A thread that should be awake by now may have been delayed by a suspended machine.
    let in_time = armed
        .wakes_at
        .is_some_and(|wakes_at| wakes_at <= moment && clock::now() < wakes_at);
    if !in_time {
        armed.additions += 1;
        drop(armed);
        leases.changed.notify_one();
    }
}

impl Leases {
    async fn run(&self) {
        let mut forget = true;
        loop {
            let (sessions, additions) = self.wait_for_holds(forget).await;
            let mut sleep = LONGEST_SLEEP;
            for session in sessions {
                // The call wakes tasks of other executors, and may drop the last reference to a
                // session. A panic there must not keep other holders from being notified. The next
                // check follows at once, since the result is lost.
                let told = catch_unwind(AssertUnwindSafe(move || session.notify_holders()));
                sleep = sleep.min(told.unwrap_or_default());
            }
            self.armed.lock().wakes_at = Some(clock::now().plus(sleep));
            // A thread that was woken by an addition forgets no session. Otherwise, if sessions
            // take turns with a lock, each grant would wake the thread, only to forget the session
            // that has just released the lock.
            forget = tokio::time::timeout(sleep, self.wait_for_more(additions))
                .await
                .is_err();
            self.armed.lock().wakes_at = None;
        }
    }

    /// Waits for an addition.
    async fn wait_for_more(&self, additions: u64) {
        while self.armed.lock().additions == additions {
            self.changed.notified().await;
        }
    }

    /// Waits until a lock is held in any session. Returns the sessions in which a lock is held, or
    /// was until now. If `forget` is true, forgets the sessions in which none is held.
    async fn wait_for_holds(&self, forget: bool) -> (Vec<Arc<dyn Leased>>, u64) {
        loop {
            let (sessions, additions) = self.holds(forget);
            if !sessions.is_empty() {
                return (sessions, additions);
            }
            self.changed.notified().await;
        }
    }

    fn holds(&self, forget: bool) -> (Vec<Arc<dyn Leased>>, u64) {
        let mut armed = self.armed.lock();
        // All sessions are returned, whether a lock is held in them or not, because this may be the
        // last reference to a session, which must not be dropped under the mutex.
        let mut sessions = Vec::new();
        // Sessions are forgotten under the mutex. If a session gets its first hold after this
        // check, the thread that adds the hold then calls `arm`, which adds the session again.
        armed.sessions.retain(|session| {
            let Some(session) = session.upgrade() else {
                return false;
            };
            let watched = !forget || session.is_watched();
            sessions.push(session);
            watched
        });
        (sessions, armed.additions)
    }
}

#[cfg(test)]
mod tests {
    use zookeeper_test_server::Server;

    use super::*;
    use crate::{Client, InterProcessMutex};

    struct Nothing;

    impl Leased for Nothing {
        fn notify_holders(&self) -> Duration {
            Duration::MAX
        }

        fn is_watched(&self) -> bool {
            false
        }
    }

    #[test]
    fn clock_forgets_sessions_without_locks() {
        let leases = Leases::default();
        let session: Arc<dyn Leased> = Arc::new(Nothing);
        leases.armed.lock().sessions.push(Arc::downgrade(&session));
        for (forget, left) in [(false, 1), (true, 0)] {
            assert_eq!(leases.holds(forget).0.len(), 1);
            assert_eq!(leases.armed.lock().sessions.len(), left);
        }
    }

    #[tokio::test]
    async fn ended_session_is_not_watched() {
        let server = Server::start().unwrap();
        let client = Client::connect(&server.connect_string()).await.unwrap();
        let mutex = InterProcessMutex::new(&client, "/locks/a").unwrap();
        let guard = mutex.lock().await.unwrap();
        let session = client.core.live().unwrap();
        let leases = LEASES.get().unwrap();
        let is_watched_now = || {
            leases
                .armed
                .lock()
                .sessions
                .iter()
                .any(|known| ptr::addr_eq(known.as_ptr(), Arc::as_ptr(&session)))
        };
        assert!(is_watched_now());
        server.expire_session(session.session_id);
        guard.lost().await;
        // The thread forgets the session when it wakes, within a second.
        let forgotten = || (!is_watched_now()).then_some(());
        test_support::poll_until("the end of the watch", 10 * LONGEST_SLEEP, forgotten).unwrap();
    }
}
