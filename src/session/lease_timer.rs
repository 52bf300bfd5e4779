//! Tells holders that their lease is over, on a thread that does nothing else.
//!
//! A holder that asks its guard is answered by the clock. One that waits for [`lost`](crate::LockGuard::lost), or is in
//! the middle of [`while_held`](crate::LockGuard::while_held), has to be woken, and the session's thread may be busy at
//! that very moment: with a crowd of nodes, or with a tracing subscriber that blocks, because it writes to a pipe that is
//! full. So there is one thread in the process that sends no request, logs nothing, and takes no lock that another thread
//! holds while it logs or waits. It sleeps until a lease may be over, looks at the clock and the last proof, and wakes
//! those that wait. (A waker that blocks blocks this thread, too; no executor has such wakers.)
//!
//! A proof only moves the end of a lease further away, so that proofs do not concern the thread: it finds them when it
//! wakes.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// What the thread looks after: a session.
pub(super) trait Leased: Send + Sync {
    /// Tells what time has done; returns how long until it will have done more.
    fn tell_time(&self) -> Duration;

    /// Returns whether anything is held in it that is to be told.
    fn is_watched(&self) -> bool;
}

/// While something is held it looks at the clock at least this often: a sleep of the machine does not count for its
/// timers.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The thread's name; Linux shows no more than fifteen characters.
const NAME: &str = "zookeeper-lease";

static LEASES: Leases = Leases { armed: Mutex::new(Armed::new()), changed: Condvar::new() };

struct Leases {
    armed: Mutex<Armed>,
    changed: Condvar,
}

/// What the thread looks after.
struct Armed {
    /// The process in which the thread runs: a child that was forked has none of its parent's threads.
    runs_in: Option<u32>,
    /// The sessions in which something is held. Not kept: a session ends with its last handle or guard.
    sessions: Vec<Weak<dyn Leased>>,
    /// Counts what was added, so that nothing is slept through that was added while the thread was awake.
    additions: u64,
}

impl Armed {
    const fn new() -> Self {
        Self { runs_in: None, sessions: Vec::new(), additions: 0 }
    }

    /// Whether there is no thread in this process. What the parent's looked after is not this one's: its sessions belong to
    /// the parent, and other threads may have been in the middle of them.
    fn is_without_thread(&mut self, process: u32) -> bool {
        let without = self.runs_in != Some(process);
        if without {
            self.sessions.clear();
        }
        without
    }
}

/// Starts the thread, unless it runs. Called for each new client, so that one made by a child that was forked has it too.
/// (What a fork is never safe from is a lock that was held at that moment; this one is for microseconds.)
pub(super) fn start() -> io::Result<()> {
    let mut armed = LEASES.lock();
    let process = std::process::id();
    if armed.is_without_thread(process) {
        thread::Builder::new().name(NAME.to_owned()).spawn(|| LEASES.run())?;
        armed.runs_in = Some(process);
    }
    Ok(())
}

/// Looks after a session in which something is held, from now on until nothing is.
///
/// The thread is woken for the first hold alone: another has the same lease, whose end is in its plan. Only a hold that is
/// registered after its lease was over (its thread was paused since the grant) is told late: at the next look, within T/6 and
/// [`LONGEST_SLEEP`]. Its guard, which asks the clock, knows at once.
pub(super) fn arm(session: &Arc<dyn Leased>) {
    let mut armed = LEASES.lock();
    if !armed.sessions.iter().any(|known| ptr::addr_eq(known.as_ptr(), Arc::as_ptr(session))) {
        armed.sessions.push(Arc::downgrade(session));
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
        loop {
            let (sessions, additions) = self.wait_for_holds();
            let mut sleep = LONGEST_SLEEP;
            for session in sessions {
                // A waker is foreign code, and so is what goes with the last handle of a session. A panic in it must not
                // keep others from being told, now or ever after; what it came from is done, so the next look is at once.
                let told = catch_unwind(AssertUnwindSafe(move || session.tell_time()));
                sleep = sleep.min(told.unwrap_or_default());
            }
            let armed = self.lock();
            // Poisoned or not, it is as good as it was.
            drop(self.changed.wait_timeout_while(armed, sleep, |armed| armed.additions == additions));
        }
    }

    /// Waits until something is held anywhere; returns the sessions in which it is, or was until now.
    fn wait_for_holds(&self) -> (Vec<Arc<dyn Leased>>, u64) {
        let mut armed = self.lock();
        loop {
            // They go to the caller whatever they hold: one of these may be the last handle, which is not dropped in here.
            let mut sessions = Vec::new();
            // In one go: a thread that adds the first hold of a session calls `arm` after that.
            armed.sessions.retain(|session| {
                let Some(session) = session.upgrade() else { return false };
                let watched = session.is_watched();
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

    #[tokio::test]
    async fn an_session_that_has_ended_is_not_looked_after_although_its_guards_live() {
        let server = Server::start().unwrap();
        let client = Client::connect(&server.connect_string()).await.unwrap();
        let mutex = InterProcessMutex::new(&client, "/locks/a").unwrap();
        let guard = mutex.lock().await.unwrap();
        let session = client.core.live().unwrap();
        let is_looked_after =
            || LEASES.lock().sessions.iter().any(|known| ptr::addr_eq(known.as_ptr(), Arc::as_ptr(&session)));
        assert!(is_looked_after());
        server.expire_session(session.session_id());
        guard.lost().await;
        // At its next look, which is within a second.
        let given_up = || (!is_looked_after()).then_some(());
        test_support::poll_until("the end of the looks", 10 * LONGEST_SLEEP, given_up).unwrap();
    }
}
