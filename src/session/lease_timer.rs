//! Tells holders that their lease has expired or is over, on a thread that does nothing else.
//!
//! A holder that asks its guard gets its answer from the clock. One that waits for
//! [`lost`](crate::LockGuard::lost), or runs a future by [`while_held`](crate::LockGuard::while_held), has to
//! be woken, and the session's thread may be busy then: with a crowd of nodes, or with a tracing subscriber
//! that blocks because it writes to a full pipe. So one thread of the process sends no request, logs nothing,
//! and takes no lock that another thread holds while it logs or waits. It sleeps until a lease may have
//! expired, compares the clock with the last renewal, and wakes the waiting tasks
//! (docs/protocol.md#telling-a-loss). A waker that blocks would block this thread too; no executor has such
//! wakers.
//!
//! A renewal only moves the end of a lease further away, so it does not wake the thread, which finds it when
//! it wakes.
//!
//! The thread also tells holders that the lease that their caller has set is over
//! (docs/protocol.md#lease-over): [`wake_by`].

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crate::protocol::moment::Moment;
use crate::session::clock;

/// What the thread watches: the lease of a session.
pub(super) trait Leased: Send + Sync {
    /// Tells the holders how the passing of time has changed the lease. Returns how long until the next
    /// change.
    fn tell_time(&self) -> Duration;

    /// Returns whether there is a holder to tell.
    fn is_watched(&self) -> bool;
}

/// The longest sleep while a lock is held: the thread's timer does not count the time that the machine
/// sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The thread's name. Linux shows at most fifteen characters.
const NAME: &str = "zk-lease";

static LEASES: Leases = Leases { armed: Mutex::new(Armed::new()), changed: Condvar::new() };

struct Leases {
    armed: Mutex<Armed>,
    changed: Condvar,
}

/// The leases that the thread watches.
struct Armed {
    /// The process in which the thread runs: a forked child has none of its parent's threads.
    runs_in: Option<u32>,
    /// The sessions in which locks are held. Weak, because a session ends with its last handle or guard.
    sessions: Vec<Weak<dyn Leased>>,
    /// How many sessions and earlier ends have been added, so that one that is added while the thread is
    /// awake keeps it from sleeping.
    additions: u64,
    /// When the thread looks at the clock next; `None` while it is looking.
    wakes_at: Option<Moment>,
}

impl Armed {
    const fn new() -> Self {
        Self { runs_in: None, sessions: Vec::new(), additions: 0, wakes_at: None }
    }

    /// Returns whether this process has no such thread yet. Forgets the sessions of a parent process: they
    /// are the parent's, and other threads may have been changing them during the fork.
    fn is_without_thread(&mut self, process: u32) -> bool {
        let without = self.runs_in != Some(process);
        if without {
            self.sessions.clear();
        }
        without
    }
}

/// Starts the thread, unless it is running. Called for each new client, so that a client of a forked child
/// has it too. (A fork while another thread holds the mutex would leave it locked in the child; it is held
/// for microseconds.)
pub(super) fn start() -> io::Result<()> {
    let mut armed = LEASES.lock();
    let process = std::process::id();
    if armed.is_without_thread(process) {
        thread::Builder::new().name(NAME.to_owned()).spawn(|| LEASES.run())?;
        armed.runs_in = Some(process);
    }
    Ok(())
}

/// Watches the lease of a session from its first hold until no lock is held in it.
///
/// Only the first hold wakes the thread: the others have the same lease, whose end the thread knows. A hold
/// that is registered after its lease has expired (because its thread was paused after the grant) is told
/// when the thread wakes, within T/6 and [`LONGEST_SLEEP`]. Its guard reads the clock and reports the loss at
/// once.
pub(super) fn arm(session: &Arc<dyn Leased>) {
    let mut armed = LEASES.lock();
    if !armed.sessions.iter().any(|known| ptr::addr_eq(known.as_ptr(), Arc::as_ptr(session))) {
        armed.sessions.push(Arc::downgrade(session));
        armed.additions += 1;
        drop(armed);
        LEASES.changed.notify_one();
    }
}

/// Has the thread look at the clock no later than at this moment: a caller has set the end of a lease. Wakes
/// it only if it would sleep longer, so a lease of more than [`LONGEST_SLEEP`] costs nothing.
pub(super) fn wake_by(moment: Moment) {
    let mut armed = LEASES.lock();
    // One that should be awake by now may have slept through a sleep of the machine.
    let in_time = armed.wakes_at.is_some_and(|wakes_at| wakes_at <= moment && clock::now() < wakes_at);
    if !in_time {
        armed.additions += 1;
        drop(armed);
        LEASES.changed.notify_one();
    }
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, Armed> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut forget = true;
        loop {
            let (sessions, additions) = self.wait_for_holds(forget);
            let mut sleep = LONGEST_SLEEP;
            for session in sessions {
                // This calls wakers of other executors, and may drop the last reference to a session. A panic
                // there must not keep other holders from being told. The next check follows at once, since
                // the result is lost.
                let told = catch_unwind(AssertUnwindSafe(move || session.tell_time()));
                sleep = sleep.min(told.unwrap_or_default());
            }
            let mut armed = self.lock();
            armed.wakes_at = Some(clock::now().plus(sleep));
            let woken = self.changed.wait_timeout_while(armed, sleep, |armed| armed.additions == additions);
            // Poisoned or not, the state is consistent.
            let (mut armed, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            armed.wakes_at = None;
            // Not when another session has its first hold: of sessions that take turns with a lock, each grant
            // would wake this thread, to forget the session that has just released it.
            forget = timeout.timed_out();
        }
    }

    /// Waits until a lock is held in any session. Returns the sessions in which one is, or was until now.
    /// Forgets those in which none is, if so wanted.
    fn wait_for_holds(&self, forget: bool) -> (Vec<Arc<dyn Leased>>, u64) {
        let mut armed = self.lock();
        loop {
            // All are returned, whether a lock is held or not: this may be the last reference to a session,
            // which must not be dropped under the mutex.
            let mut sessions = Vec::new();
            // Under the mutex: a thread that adds the first hold of a session calls `arm` after that.
            armed.sessions.retain(|session| {
                let Some(session) = session.upgrade() else { return false };
                let watched = !forget || session.is_watched();
                sessions.push(session);
                watched
            });
            if !sessions.is_empty() {
                return (sessions, armed.additions);
            }
            armed = self.changed.wait(armed).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use zookeeper_test_server::Server;

    use super::*;
    use crate::{Client, InterProcessMutex};

    struct Nothing;

    impl Leased for Nothing {
        fn tell_time(&self) -> Duration {
            Duration::MAX
        }

        fn is_watched(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_forked_child_starts_a_thread_of_its_own_and_leaves_the_parents_sessions_alone() {
        let mut armed = Armed::new();
        assert!(armed.is_without_thread(1));
        armed.runs_in = Some(1);
        armed.sessions.push(Weak::<Nothing>::new());
        assert!(!armed.is_without_thread(1));
        assert_eq!(armed.sessions.len(), 1);
        assert!(armed.is_without_thread(2));
        assert_eq!(armed.sessions.len(), 0);
    }

    #[test]
    fn a_session_whose_lock_is_released_is_forgotten_at_the_next_look_by_the_clock_only() {
        let leases = Leases { armed: Mutex::new(Armed::new()), changed: Condvar::new() };
        let session: Arc<dyn Leased> = Arc::new(Nothing);
        leases.lock().sessions.push(Arc::downgrade(&session));
        for (forget, left) in [(false, 1), (true, 0)] {
            assert_eq!(leases.wait_for_holds(forget).0.len(), 1);
            assert_eq!(leases.lock().sessions.len(), left);
        }
    }

    #[tokio::test]
    async fn a_session_that_has_ended_is_not_watched_although_its_guards_live() {
        let server = Server::start().unwrap();
        let client = Client::connect(&server.connect_string()).await.unwrap();
        let mutex = InterProcessMutex::new(&client, "/locks/a").unwrap();
        let guard = mutex.lock().await.unwrap();
        let session = client.core.live().unwrap();
        let is_watched_now =
            || LEASES.lock().sessions.iter().any(|known| ptr::addr_eq(known.as_ptr(), Arc::as_ptr(&session)));
        assert!(is_watched_now());
        server.expire_session(session.session_id());
        guard.lost().await;
        // The thread forgets it when it wakes, which is within a second.
        let forgotten = || (!is_watched_now()).then_some(());
        test_support::poll_until("the end of the watch", 10 * LONGEST_SLEEP, forgotten).unwrap();
    }
}
