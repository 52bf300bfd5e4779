//! Who is first in a lock's queue, as its errors say it. The attempts of a path lock share what is known of that
//! node, so that it costs them a request once, or none (docs/protocol.md#held-by).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zookeeper_client as zk;

use crate::contender::Contender;
use crate::engine::contenders::first_contender;
use crate::engine::path_lock::PathLock;
use crate::engine::requests::list_alone;
use crate::protocol::queue::Queue;
use crate::session::zk_session::Session;

/// How long what was read counts, for an error that is made by then: longer than a call asks before its deadline.
const COUNTS_FOR: Duration = Duration::from_millis(500);

/// How long it is between two reads before deadlines: thousands of calls may end one after the other.
const PAUSE: Duration = Duration::from_millis(50);

/// How long before its deadline a call asks at most; it is a quarter of its time if that is less.
const BEFORE: Duration = Duration::from_millis(100);

/// How often one question is asked: if the first has gone, another list shows the next.
const ROUNDS: u32 = 2;

/// What the attempts of a path lock know of the node that is first in the queue.
#[derive(Debug, Default)]
pub(super) struct FirstSeen(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The name of the node that was first by the last list.
    name: Option<Arc<str>>,
    /// What a read of a node has returned, and when it was known to exist.
    known: Option<(Contender, Instant)>,
    /// How many watches are set on that node: while there is one, it exists.
    watches: usize,
    /// When it was read last before a deadline.
    asked: Option<Instant>,
}

impl Seen {
    fn knows(&self, name: &str) -> bool {
        self.known.as_ref().is_some_and(|(known, _)| known.node().name() == name)
    }

    /// Returns whether it is certain enough who is first.
    fn is_certain(&self) -> bool {
        let exists = |(_, at): &(Contender, Instant)| self.watches > 0 || at.elapsed() < COUNTS_FOR;
        self.name.as_deref().is_some_and(|name| self.knows(name)) && self.known.as_ref().is_some_and(exists)
    }
}

impl FirstSeen {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a list shows. Returns the name of the first node if nothing is known of it.
    pub(super) fn saw(&self, queue: &Queue) -> Option<Arc<str>> {
        let (name, _) = queue.holders().next()?;
        let mut seen = self.lock();
        if seen.name.as_deref() != Some(name) {
            seen.name = Some(name.into());
        }
        let is_known = seen.knows(name);
        match &mut seen.known {
            // Listed: it exists.
            Some((_, at)) if is_known => *at = Instant::now(),
            _ => {}
        }
        seen.name.clone().filter(|_| !is_known)
    }

    /// Notes what a read of a node has returned.
    fn know(&self, contender: Contender) {
        let mut seen = self.lock();
        let is_other = !seen.knows(contender.node().name());
        let old = seen.known.replace((contender, Instant::now()));
        if is_other {
            seen.watches = 0;
        }
        drop(seen);
        // Outside of the mutex.
        drop(old);
    }

    /// Notes what a read of a node has returned that has set a watch, if the node is the first. It exists until
    /// the result is dropped.
    pub(super) fn watched(&self, contender: Contender) -> Option<Watched<'_>> {
        let name: Arc<str> = contender.node().name().into();
        if self.lock().name.as_ref() != Some(&name) {
            return None;
        }
        self.know(contender);
        self.lock().watches += 1;
        Some(Watched { first: self, name })
    }

    /// Returns who is first in the queue; `None` if that is not known, or was too long ago.
    pub(super) fn contender(&self) -> Option<Contender> {
        let seen = self.lock();
        let known = seen.known.as_ref().filter(|_| seen.is_certain());
        known.map(|(contender, _)| contender.now())
    }

    /// Returns whether who is first has to be asked.
    fn begin(&self) -> bool {
        let mut seen = self.lock();
        let asks = !seen.is_certain() && seen.asked.is_none_or(|asked| asked.elapsed() >= PAUSE);
        if asks {
            seen.asked = Some(Instant::now());
        }
        asks
    }

    /// Returns the name of the first node by the last list.
    fn name(&self) -> Option<Arc<str>> {
        self.lock().name.clone()
    }

    /// Notes that this node is gone.
    fn gone(&self, name: &str) {
        let old = self.lock().name.take_if(|known| &**known == name);
        // Outside of the mutex.
        drop(old);
    }
}

/// A watch on the first node, until it is dropped.
pub(super) struct Watched<'a> {
    first: &'a FirstSeen,
    name: Arc<str>,
}

impl Watched<'_> {
    /// Notes that the watch has fired: the node may be gone.
    pub(super) fn fired(self) {
        let mut seen = self.first.lock();
        let old = if seen.knows(&self.name) { seen.known.take() } else { None };
        drop(seen);
        // Outside of the mutex, which the drop of this locks again.
        drop(old);
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut seen = self.first.lock();
        if !seen.knows(&self.name) {
            return;
        }
        seen.watches = seen.watches.saturating_sub(1);
        if let Some((_, at)) = &mut seen.known {
            // It has not fired: the node exists, as far as is known.
            *at = Instant::now();
        }
    }
}

/// When a call with this deadline asks who is first, for the error if it is not granted in time; `None` if its time
/// is too short.
pub(super) fn ask_at(deadline: Instant, asked: Duration) -> Option<Instant> {
    deadline.checked_sub((asked / 4).min(BEFORE)).filter(|at| *at > Instant::now())
}

/// Asks who is first, unless that is known or has just been asked. One of many calls that end soon asks for all.
pub(super) fn ask(path_lock: &Arc<PathLock>) {
    let first = path_lock.first_seen();
    // A hold of this client is named by its line.
    if !first.begin() || path_lock.is_first_by_itself() {
        return;
    }
    let Some(session) = path_lock.client().live() else { return };
    let asking = Arc::clone(path_lock);
    path_lock.client().spawn(async move {
        let path_lock = &asking;
        for _ in 0..ROUNDS {
            if path_lock.first_seen().name().is_none() && !list(path_lock, &session).await {
                return;
            }
            let Some(name) = path_lock.first_seen().name() else { return };
            let path = &path_lock.path().child(&name);
            let read = session.request(|handle| async move { handle.get_data(path).await });
            match read.await {
                Ok(Ok(read)) => return know(path_lock, &session, &name, &read),
                Ok(Err(zk::Error::NoNode)) => path_lock.first_seen().gone(&name),
                // It is for a message only.
                _ => return,
            }
        }
    });
}

/// Lists the directory. Returns whether there is an answer.
async fn list(path_lock: &Arc<PathLock>, session: &Arc<Session>) -> bool {
    let list = session.request(|handle| async move { list_alone(path_lock, session, &handle).await });
    let Ok(Ok(Ok(queue))) = list.await else { return false };
    path_lock.first_seen().saw(&queue);
    true
}

/// Notes what a read of the node `name` has returned.
pub(super) fn know(path_lock: &PathLock, session: &Session, name: &str, (data, stat): &(Vec<u8>, zk::Stat)) {
    if let Some(contender) = first_contender(path_lock, session, name, (data, stat)) {
        path_lock.first_seen().know(contender);
    }
}
